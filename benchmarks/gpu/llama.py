"""Decoding with a Llama on a GPU, one sequence: `python -m benchmarks.gpu.llama`.

Nova runs examples/llama.py: prompt, cache of 1,024 positions and sampling loop are one program, and
the time of a token is the slope between two numbers of tokens. torch.compile runs the step of
benchmarks/llama_peers.py in a CUDA graph, one replay a token. Both have the same weights, in bf16,
and draw the most likely token.

A token reads all matrices once, and the cache: bytes over time is the speed, and its share of
`--memory` (TB/s; bulk copies of an H200 reach 4.57) is the last column. `--kernels` lists the
kernels of a token by their time, from torch's profiler. `--sim` writes two tokens of a small model
on the simulator, whose times mean nothing. `--overlap auto,off` compares settings of the knob
`device_overlap`, which must give the same tokens.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nova
from nova import knobs

sys.path.insert(0, str(Path(__file__).parents[1]))
from llama_peers import load_example, torch_step

CONTEXT, CHUNK = 1024, 32
PROMPT = list(range(1, 17))
CONFIGS = {
    "small": {
        "vocab_size": 32000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
    "tiny": {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 64, "head_dim": 8},
}


def random_weights(example: Any, config: Any) -> dict[str, np.ndarray]:
    """Weights in bf16 with the shapes of the example's, from one block of random numbers.

    The block is scaled and rounded once for each length of rows: a model of 1B parameters takes
    seconds, not a minute.
    """
    block = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)
    rounded: dict[tuple[int, bool], np.ndarray] = {}

    def make(shape: tuple[int, ...]) -> np.ndarray:
        key = shape[-1], len(shape) == 1
        if key not in rounded:
            scaled = block / np.float32(shape[-1] ** 0.5) + np.float32(len(shape) == 1)
            rounded[key] = scaled.astype(nova.bf16.numpy)
        return np.resize(rounded[key], shape)

    return {name: make(shape) for name, shape in example.weight_shapes(config).items()}


def token_bytes(config: Any) -> int:
    """Bytes of matrices and cache that a token reads."""
    width, heads = config.hidden_size, config.num_attention_heads + config.num_key_value_heads
    layer = 2 * heads * config.head_dim * width + 3 * config.intermediate_size * width
    cache = 2 * config.num_key_value_heads * config.head_dim * CONTEXT
    return 2 * (config.num_hidden_layers * (layer + cache) + config.vocab_size * width)


class Run:
    """Writes so many tokens after the prompt; returns seconds."""

    def __init__(self, example: Any, program: Any):
        self.example, self.program = example, program
        self.written: list[int] = []

    def __call__(self, count: int) -> float:
        start = time.perf_counter()
        self.written = self.example.generate(self.program, PROMPT, count)
        assert len(self.written) == count
        return time.perf_counter() - start


def nova_run(example: Any, config: Any, weights: Any, target: str, **options: Any) -> Run:
    """The program of the example, which has run once."""
    model = example.Llama(config, weights, nova.bf16)
    program = example.compile_generator(model, CONTEXT, CHUNK, target=target, **options)

    run = Run(example, program)
    run(2)
    return run


def slope(run: Callable[[int], float], few: int, many: int, repeats: int) -> float:
    """Microseconds a token."""
    best = {count: min(run(count) for _ in range(repeats)) for count in (few, many)}
    return (best[many] - best[few]) / (many - few) * 1e6


def torch_us(config: Any, weights: Any, repeats: int) -> float:
    """Microseconds a token of torch.compile in a CUDA graph."""
    import torch

    with torch.inference_mode(), torch.device("cuda"):
        step, caches = torch_step(config, weights, CONTEXT, "cuda")
        compiled = torch.compile(step)
        token, position = torch.tensor([1]), torch.tensor([len(PROMPT)])
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(token, position, caches)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            token.copy_(compiled(token, position, caches))
            position.add_(1)
        times = []
        for _ in range(repeats):
            position.fill_(len(PROMPT))
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(256):
                graph.replay()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / 256)
    return min(times) * 1e6


def list_kernels(run: Callable[[int], float], count: int) -> None:
    """The kernels of a token by their time on the device, gaps between them not counted."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    totals: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for tokens, sign in ((2, -1), (2 + count, 1)):
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run(tokens)
        for event in profiler.key_averages():
            totals[event.key] += sign * event.device_time_total
            calls[event.key] += sign * event.count
    print(f"{'kernel':<60}{'calls':>8}{'us each':>9}{'us':>9}")
    for name, total in totals.most_common(40):
        if calls[name]:
            each = total / calls[name]
            print(f"{name[:59]:<60}{calls[name] / count:>8.1f}{each:>9.2f}{total / count:>9.2f}")
    print(
        f"{'all':<60}{sum(calls.values()) / count:>8.1f}{'':>9}{sum(totals.values()) / count:>9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", default="small,1b")
    parser.add_argument("--memory", type=float, default=4.57)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--overlap", default="auto")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--sim", action="store_true")
    arguments = parser.parse_args()
    example = load_example()
    names = ["tiny"] if arguments.sim else arguments.configs.split(",")
    few, many = (2, 3) if arguments.sim else (32, 512)
    print(f"{'':<24}{'us a token':>12}{'MB a token':>12}{'TB/s':>8}{'of memory':>11}")
    for name in names:
        config = example.Config(**CONFIGS[name])
        weights = random_weights(example, config)
        nbytes = token_bytes(config)
        rows = {}
        target = "cuda:sm_90a" if arguments.sim else "cuda"
        options = {"run_mode": "sim"} if arguments.sim else {}
        tokens = set()
        for overlap in arguments.overlap.split(","):
            with knobs.override(device_overlap=overlap):
                run = nova_run(example, config, weights, target, **options)
                row = "Nova" if overlap == "auto" else f"Nova, {overlap}"
                rows[row] = slope(run, few, many, 1 if arguments.sim else arguments.repeats)
            tokens.add(tuple(run.written))
        assert len(tokens) == 1, "settings of device_overlap give other tokens"
        if not arguments.sim and not arguments.no_torch:
            rows["torch.compile, graph"] = torch_us(config, weights, arguments.repeats)
        for row, microseconds in rows.items():
            speed = nbytes / microseconds / 1e6
            print(
                f"{name + ' ' + row:<24}{microseconds:>12.1f}{nbytes / 1e6:>12.1f}{speed:>8.2f}"
                f"{speed / arguments.memory:>11.2f}",
                flush=True,
            )
        if arguments.kernels:
            with knobs.override(device_loops="host"):
                list_kernels(nova_run(example, config, weights, "cuda"), 16)


if __name__ == "__main__":
    main()
