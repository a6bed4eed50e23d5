"""Programs with symbolic sizes against static ones of the same sizes, as ratios of their times.

`taskset -c 1 env NOVA_THREADS=1 python benchmarks/symbolic_sizes.py` prints two tables. The first
one has, for each program and size, the time of the static program and the ratio of the symbolic one
to it. A time is the least of many calls, in turns of both programs. The second one has 30 batch
sizes of an MLP: how much longer the first call with a size takes than the least of four later ones,
in CPU time of the thread. A file is loaded several times, and a size counts with its lower
quartile: the cores may be shared. The calls of a second round, whose sizes are known but whose data
and code are not in the caches any more, are the part of it that any change of sizes costs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import nova

SECONDS = 0.3
B = nova.dim("B", min=1, max=8192)
Function = Callable[..., Any]

ATTENTION_ROWS = (*range(1, 10), 13, 15, 16, 17, 31, 32, 33, 64, 65, 128, 251, 256)

# Name -> function, the shapes of its arguments, and the sizes of B.
CASES: dict[str, tuple[Function, list[tuple[Any, ...]], tuple[int, ...]]] = {
    "gelu": (nova.gelu, [(B, 1024)], (1, 2, 3, 8, 64, 512, 509)),
    "softmax": (nova.softmax, [(B, 512)], (64, 512, 509)),
    "matmul, rows": (
        lambda x, y: x @ y,
        [(B, 512), (512, 512)],
        (1, 2, 3, 4, 7, 8, 13, 31, 64, 256, 512, 509),
    ),
    "matmul, square": (
        lambda x, y: x @ y,
        [(B, B), (B, B)],
        (1, 4, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 80, 96, 127, 128, 129, 256, 512, 509),
    ),
    "attention": (nova.scaled_dot_product_attention, [(2, 8, B, 64)] * 3, ATTENTION_ROWS),
    "MLP": (
        lambda x, w, b, v: nova.gelu(x @ w + b) @ v,
        [(B, 256), (256, 1024), (1024,), (1024, 256)],
        (1, 2, 3, 4, 7, 8, 13, 31, 32, 61, 64, 97, 128, 251, 256),
    ),
}
BATCHES = [8 * i + i % 3 for i in range(1, 31)]
LOADS = 12
"""How often the file is loaded."""


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


def thread_us(call: Callable[[], Any]) -> float:
    started = time.thread_time()
    call()
    return (time.thread_time() - started) * 1e6


def first_calls(rng: np.random.Generator) -> None:
    """Print the table of 30 batch sizes."""
    function, shapes, _ = CASES["MLP"]
    weights = [rng.standard_normal(shape, np.float32) for shape in shapes[1:]]
    batches = [rng.standard_normal((n, shapes[0][1]), np.float32) for n in (300, *BATCHES)]
    rounds: list[dict[int, list[float]]] = [{n: [] for n in BATCHES} for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlp.nova"
        compiled(function, shapes).save(path)
        for _ in range(LOADS):
            call = nova.load(path).forward
            call(batches[0], *weights)
            for more in rounds:
                for batch in batches[1:]:
                    x = batch.copy()  # in the caches
                    first = thread_us(partial(call, x, *weights))
                    later = min(thread_us(partial(call, x, *weights)) for _ in range(4))
                    more[len(batch)].append(first - later)
    for name, more in zip(("new", "known"), rounds, strict=True):
        us = [sorted(values)[len(values) // 4] for values in more.values()]
        print(f"{name + ' sizes':12} {min(us):6.0f} {median(us):6.0f} {max(us):6.0f}")


def main() -> None:
    print(f"{'program':16} {'B':>5} {'static us':>10} {'ratio':>6}")
    rng = np.random.default_rng(0)
    for name, (function, shapes, sizes) in CASES.items():
        symbolic = compiled(function, shapes)
        for size in sizes:
            static_shapes = [tuple(size if n is B else n for n in shape) for shape in shapes]
            static = compiled(function, static_shapes)
            arrays = [rng.standard_normal(shape, np.float32) for shape in static_shapes]
            times = measure([partial(static, *arrays), partial(symbolic, *arrays)])
            ratio = times[1] / times[0]
            print(f"{name:16} {size:5} {times[0] * 1e6:10.1f} {ratio:6.3f}", flush=True)
    print(f"\n{'':12} {'least':>6} {'median':>6} {'most':>6}  (us more than a later call)")
    first_calls(rng)


if __name__ == "__main__":
    main()
