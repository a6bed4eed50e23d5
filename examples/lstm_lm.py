"""An LSTM language model of characters (Hochreiter and Schmidhuber, 1997), trained on a short text.

The model is written with the names that torch and Nova share; a test runs the same class with
torch. The state is carried from one piece of the text to the next (truncated backpropagation).

    python examples/lstm_lm.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import nova as lib
from nova import nn

TEXT = Path(__file__).parent / "data" / "lighthouse.txt"


class LanguageModel(nn.Module):
    """The scores of the next character, and the state after the last one."""

    def __init__(self, characters: int, width: int = 32, layers: int = 2):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, tokens: Any, hidden: Any, cell: Any) -> Any:
        y, state = self.lstm(self.embedding(tokens), (hidden, cell))
        return self.head(y), state


def pieces(text: str, batch: int, length: int) -> tuple[list[str], np.ndarray]:
    """The alphabet, and `batch` rows of the text cut into pieces of `length` characters and one."""
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    count = (len(text) - 1) // (batch * length)
    data = np.array([number[c] for c in text[: batch * count * length + 1]])
    rows = [data[i * count * length :][: count * length + 1] for i in range(batch)]
    starts = range(0, count * length, length)
    return alphabet, np.array([[row[s : s + length + 1] for row in rows] for s in starts])


def main(epochs: int = 8, width: int = 32) -> list[float]:
    """Train; returns the mean loss of each epoch."""
    alphabet, data = pieces(TEXT.read_text(), batch=8, length=16)
    model = LanguageModel(len(alphabet), width)

    def loss(m: Any, tokens: Any, following: Any, hidden: Any, cell: Any) -> Any:
        scores, state = m(tokens, hidden, cell)
        return lib.cross_entropy(scores.reshape(-1, len(alphabet)), following.reshape(-1)), state

    step = lib.train_step(model, loss, lib.optim.Adam(model.parameters(), 1e-2), has_aux=True)
    means = []
    for epoch in range(epochs):
        hidden = cell = np.zeros((2, 8, width), "f4")
        losses = []
        for piece in data:
            value, (hidden, cell) = step(
                np.ascontiguousarray(piece[:, :-1]),
                np.ascontiguousarray(piece[:, 1:]),
                hidden,
                cell,
            )
            losses.append(float(value))
        means.append(float(np.mean(losses)))
        print(f"epoch {epoch}: loss {means[-1]:.3f}")
    return means


if __name__ == "__main__":
    main()
