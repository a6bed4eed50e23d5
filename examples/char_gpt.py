"""A character-level GPT, trained on a short text; prints what it would write.

python examples/char_gpt.py --steps 600
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import nova
from nova import nn, optim

sys.path.insert(0, str(Path(__file__).parent))
from gpt import GPT, Config

TEXT = Path(__file__).parent / "data" / "lighthouse.txt"


class Characters:
    """Characters as numbers and back."""

    def __init__(self, text: str):
        self.alphabet = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.alphabet)}

    def encode(self, text: str) -> np.ndarray:
        return np.array([self.number[c] for c in text])

    def decode(self, numbers: np.ndarray) -> str:
        return "".join(self.alphabet[i] for i in numbers)


def random_windows(
    data: np.ndarray, context: int, batch: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Windows of the text, and the same windows one character later."""
    starts = rng.integers(0, len(data) - context - 1, batch)
    windows = np.stack([data[s : s + context + 1] for s in starts])
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def sample(
    model: GPT, characters: Characters, start: str, length: int, rng: np.random.Generator
) -> str:
    """Text that follows `start`, one character at a time, at temperature 0.7."""
    context = model.config.context
    model.eval()
    scores = nova.jit(lambda tokens: model(tokens))
    numbers = list(characters.encode(start))
    for _ in range(length):
        window = np.zeros((1, context), np.int64)
        recent = numbers[-context:]
        window[0, : len(recent)] = recent
        row = scores(window)[0, len(recent) - 1].astype(np.float64) / 0.7
        chances = np.exp(row - row.max())
        numbers.append(int(rng.choice(len(chances), p=chances / chances.sum())))
    model.train()
    return characters.decode(np.array(numbers))


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sample", type=int, default=240)
    options = parser.parse_args(arguments)

    text = TEXT.read_text()
    characters = Characters(text)
    data = characters.encode(text)
    nn.manual_seed(0)
    rng = np.random.default_rng(0)
    config = Config(len(characters.alphabet), options.context, options.width, 4, options.layers)
    model = GPT(config)
    size = sum(p.size for p in model.parameters())
    print(f"{len(data)} characters, {config.vocabulary} different; {size:,} parameters")

    warmup = max(1, min(50, options.steps // 4))
    rate = optim.LinearWarmup(optim.CosineAnnealing(3e-3, options.steps), warmup)
    optimizer = optim.AdamW(model.parameters(), lr=rate, clip_norm=1.0)
    step = nova.train_step(model, lambda m, x, y: m.loss(x, y), optimizer)
    first = last = 0.0
    for number in range(options.steps):
        last = float(step(*random_windows(data, config.context, options.batch, rng)))
        first = first or last
        if number % max(1, options.steps // 10) == 0 or number == options.steps - 1:
            print(f"step {number:5d}   loss {last:.4f}")
    print("\n" + sample(model, characters, "The keeper", options.sample, rng))
    if not last < first:
        raise SystemExit("the loss did not fall")
    return last


if __name__ == "__main__":
    main()
