"""Loops on a GPU, microseconds an iteration: `python -m benchmarks.gpu.control_flow`.

The time of an iteration is the slope between two numbers of iterations, so launches and copies of a
run drop out. `nodes`: the device decides each iteration (a WHILE node); `auto` also unrolls loops
whose length is known and short; `host`: the host reads the condition. `--sim` runs a few iterations
on the simulator, whose times mean nothing, to check the programs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nova
from nova import knobs

STEPS, BATCH = 128, 8
RNG = np.random.default_rng(0)
Run = Callable[[int], Any]
"""Runs so many iterations."""


def best(run: Callable[[], Any], repeats: int) -> float:
    """The shortest time of a call, in microseconds."""
    run()
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def slope(run: Run, few: int, many: int, repeats: int) -> float:
    """Microseconds an iteration."""
    short, long = best(lambda: run(few), repeats), best(lambda: run(many), repeats)
    return (long - short) / (many - few)


def lstm(xs: Any, wx: Any, wh: Any, b: Any) -> Any:
    """The states of an LSTM."""

    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, g, n, o = nova.split(x + h @ wh, 4, axis=1)
        c = nova.sigmoid(g) * c + nova.sigmoid(i) * nova.tanh(n)
        h = nova.sigmoid(o) * nova.tanh(c)
        return (h, c), h

    zero = nova.zeros((BATCH, wh.shape[0]))
    return nova.scan(step, (zero, zero), xs @ wx + b)[1]


def loops(options: dict[str, Any]) -> dict[str, Run]:
    """Loops with a number of iterations that only the run knows."""
    matrix = RNG.normal(size=(256, 256)).astype(np.float32) / 16
    count = nova.jit(lambda n: nova.while_loop(lambda c: c < n, lambda c: c + 1, 0), **options)
    pair = nova.jit(
        lambda n: nova.while_loop(lambda c: c[0] < n, lambda c: c + 1, np.zeros(2, np.int64)),
        **options,
    )
    many = nova.jit(
        lambda n: nova.while_loop(lambda c: c[0] < n, lambda c: c + 1, np.zeros(64, np.int64)),
        **options,
    )
    vector = nova.jit(
        lambda n, x: nova.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, nova.tanh(c[1]) + 1), (0, x)
        ),
        **options,
    )
    product = nova.jit(
        lambda n, a: nova.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] @ a), (0, a)),
        **options,
    )
    branch = nova.jit(
        lambda n, x: nova.while_loop(
            lambda c: c[0] < n,
            lambda c: (
                c[0] + 1,
                nova.cond(c[0] % 2 == 0, lambda v: v + 1, lambda v: v * 0.5, c[1]),
            ),
            (0, x),
        ),
        **options,
    )
    small = np.ones(64, np.float32)
    return {
        "empty while, a number": lambda n: count(100 * n),
        "empty while, two numbers": lambda n: pair(100 * n),
        "empty while, 64 numbers": lambda n: many(n),
        "while, 16384 floats": lambda n: vector(n, np.ones(16384, np.float32)),
        "while, matmul 256": lambda n: product(n, matrix),
        "while with cond": lambda n: branch(n, small),
    }


def scans(options: dict[str, Any], steps: int, hidden: int) -> dict[str, Callable[[], Any]]:
    shapes = [(steps, BATCH, hidden), (hidden, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
    args = [RNG.normal(size=s).astype(np.float32) / 8 for s in shapes]
    if "run_mode" not in options:
        args = [nova.to_device(a, "cuda") for a in args]
    forward = nova.jit(lstm, **options)
    backward = nova.jit(nova.grad(lambda *a: (lstm(*a) ** 2).sum(), argnums=(1, 2, 3)), **options)

    def wait(results: Any) -> None:
        last = results[-1] if isinstance(results, tuple) else results
        np.asarray(last.numpy() if hasattr(last, "numpy") else last)

    return {
        f"LSTM {steps} steps": lambda: wait(forward(*args)),
        f"LSTM {steps} steps, gradient": lambda: wait(backward(*args)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sim", action="store_true")
    parser.add_argument("--modes", default=",".join(knobs.DEVICE_LOOPS))
    arguments = parser.parse_args()
    options: dict[str, Any] = {"target": "cuda"}
    few, many, repeats, steps, hidden = 200, 2200, 7, STEPS, 256
    if arguments.sim:
        options = {"target": "cuda:sm_80", "run_mode": "sim"}
        few, many, repeats, steps, hidden = 2, 4, 1, 4, 16
    print(f"{'us an iteration':<28}" + "".join(f"{m:>10}" for m in arguments.modes.split(",")))
    rows: dict[str, list[float]] = {}
    for mode in arguments.modes.split(","):
        with knobs.override(device_loops=mode):
            for name, run in loops(options).items():
                scale = 100 if name.endswith(("a number", "two numbers")) else 1
                rows.setdefault(name, []).append(slope(run, few, many, repeats) / scale)
            for name, call in scans(options, steps, hidden).items():
                rows.setdefault(name, []).append(best(call, repeats) / steps)
    for name, values in rows.items():
        print(f"{name:<28}" + "".join(f"{value:>10.3f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
