"""Programs with symbolic sizes against static ones of the same sizes, as ratios of their times.

`taskset -c 1 env NOVA_THREADS=1 python benchmarks/symbolic_sizes.py` prints a table: for each
program and size the time of the static program, the ratio of the symbolic one to it, and how much
longer its first call with this size takes than a later one. A time is the least of many calls, in
turns of both programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import nova

SECONDS = 0.3
B = nova.dim("B", min=1, max=8192)
Function = Callable[..., Any]

# Name -> function, the shapes of its arguments, and the sizes of B.
CASES: dict[str, tuple[Function, list[tuple[Any, ...]], tuple[int, ...]]] = {
    "gelu": (nova.gelu, [(B, 1024)], (64, 512, 509)),
    "softmax": (nova.softmax, [(B, 512)], (64, 512, 509)),
    "matmul, rows": (lambda x, y: x @ y, [(B, 512), (512, 512)], (1, 64, 256, 512, 509)),
    "matmul, square": (lambda x, y: x @ y, [(B, B), (B, B)], (64, 256, 512, 509)),
    "attention": (nova.scaled_dot_product_attention, [(2, 8, B, 64)] * 3, (64, 128, 256, 251)),
    "MLP": (
        lambda x, w, b, v: nova.gelu(x @ w + b) @ v,
        [(B, 256), (256, 1024), (1024,), (1024, 256)],
        (1, 32, 256),
    ),
}


def compiled(function: Function, shapes: list[tuple[Any, ...]]) -> Any:
    inputs = [nova.input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    return nova.compile(function(*inputs), inputs=inputs)


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(calls: list[Callable[[], Any]]) -> list[float]:
    """The least time of each call, in turns."""
    least = [min(seconds(call) for _ in range(3)) for call in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end:
        least = [min(t, seconds(call)) for t, call in zip(least, calls, strict=True)]
    return least


def main() -> None:
    print(f"{'program':16} {'B':>5} {'static us':>10} {'ratio':>6} {'first call +us':>15}")
    rng = np.random.default_rng(0)
    for name, (function, shapes, sizes) in CASES.items():
        symbolic = compiled(function, shapes)
        for size in sizes:
            static_shapes = [tuple(size if n is B else n for n in shape) for shape in shapes]
            static = compiled(function, static_shapes)
            arrays = [rng.standard_normal(shape, np.float32) for shape in static_shapes]
            first = seconds(partial(symbolic, *arrays))
            times = measure([partial(static, *arrays), partial(symbolic, *arrays)])
            ratio, more = times[1] / times[0], (first - times[1]) * 1e6
            row = f"{name:16} {size:5} {times[0] * 1e6:10.1f} {ratio:6.3f} {more:15.0f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
