"""Large f32 sums: errors against f64 and times, compared with numpy and torch.

`taskset -c 1 env NOVA_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/sums.py` prints the table of
SUMS.md. An error is relative, divided by 2**-24; a time is the least CPU time of a few calls, in
turns of all contenders.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nova

ROUNDS = 5
Build = Callable[..., Any]


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape, np.float32)


def far(*shape: int) -> np.ndarray:
    normal = np.random.default_rng(2).standard_normal(shape, np.float32)
    return normal + np.float32(1e6)


def equal(*shape: int) -> np.ndarray:
    return np.full(shape, 0.1, np.float32)


# Name -> arrays, and the function for Nova, numpy and torch.
CASES: dict[str, tuple[list[np.ndarray], Build, Build, Build]] = {
    "sum of 16M": ([uniform(1 << 24)], *[lambda x: x.sum()] * 3),
    "mean of 10M times 0.1": ([equal(10_000_000)], *[lambda x: x.mean()] * 3),
    "rows of 4096x4096": (
        [uniform(4096, 4096)],
        lambda x: x.sum(axis=1),
        lambda x: x.sum(axis=1),
        lambda x: x.sum(dim=1),
    ),
    "columns of 4096x4096": (
        [uniform(4096, 4096)],
        lambda x: x.sum(axis=0),
        lambda x: x.sum(axis=0),
        lambda x: x.sum(dim=0),
    ),
    "var of 1M of N(1e6, 1)": (
        [far(1_000_000)],
        lambda x: x.var(),
        lambda x: x.var(ddof=1),
        lambda x: x.var(),
    ),
    "1 x 1M x 64": ([uniform(1, 10**6), uniform(10**6, 64)], *[lambda a, b: a @ b] * 3),
    "64 x 1M x 64": ([uniform(64, 10**6), uniform(10**6, 64)], *[lambda a, b: a @ b] * 3),
}


def measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def compile_case(build: Build, arrays: list[np.ndarray]) -> Callable[[], Any]:
    tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
    program = nova.compile(build(*tensors), inputs=tensors)
    return lambda: program.run(arrays)


def main() -> None:
    try:
        import torch
    except ImportError:
        torch = None
    print("| case | Nova | numpy | torch |", "|---|---|---|---|", sep="\n")
    for name, (arrays, nova_function, numpy_function, torch_function) in CASES.items():
        calls = {
            "Nova": compile_case(nova_function, arrays),
            "numpy": lambda f=numpy_function, a=arrays: f(*a),
        }
        if torch is not None:
            data = [torch.from_numpy(a) for a in arrays]
            calls["torch"] = lambda f=torch_function, a=data: f(*a).numpy()
        exact = numpy_function(*[a.astype(np.float64) for a in arrays])
        times = measure(calls)
        cells = []
        for contender in ("Nova", "numpy", "torch"):
            if contender not in calls:
                cells.append("-")
                continue
            off = np.max(np.abs(calls[contender]() - exact) / np.abs(exact)) * 2**24
            cells.append(f"{off:.3g}, {times[contender] * 1e3:.3g} ms")
        print("|", name, "|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
