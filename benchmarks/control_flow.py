"""Loops against jax and against plain calls, in one process: `python benchmarks/control_flow.py`.

Prints one row a workload: the best time of Nova, that of the reference, and their ratio (above 1:
Nova is faster). Both run in rounds, one after the other (`--rounds`, `--seconds` of each). The
references are `jax.jit` on the CPU, and for the loop over a matmul a Python loop over the compiled
matmul, the closest to the same kernel called from C.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import nova

HIDDEN, STEPS, BATCH = 256, 128, 8
RNG = np.random.default_rng(0)


def best(run: Callable[[], Any], seconds: float) -> float:
    """The shortest time of a call, in milliseconds."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def lstm(f: Any, ops: Any, xs: Any, wx: Any, wh: Any, b: Any) -> Any:
    """The states of an LSTM; `f` has the control flow, `ops` the functions."""

    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, g, n, o = ops.split(x + h @ wh, 4, axis=1)
        c = ops.sigmoid(g) * c + ops.sigmoid(i) * ops.tanh(n)
        h = ops.sigmoid(o) * ops.tanh(c)
        return (h, c), h

    zero = ops.zeros((BATCH, HIDDEN), dtype="float32")
    return f.scan(step, (zero, zero), xs @ wx + b)[1]


class _Jax:
    split, tanh, zeros, sigmoid = jnp.split, jnp.tanh, jnp.zeros, jax.nn.sigmoid


class _Nova:
    split, tanh, sigmoid = nova.split, nova.tanh, nova.sigmoid

    @staticmethod
    def zeros(shape: Any, dtype: str) -> Any:
        return nova.zeros(shape)


def arguments() -> list[np.ndarray]:
    shapes = [(STEPS, BATCH, HIDDEN), (HIDDEN, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,)]
    return [RNG.normal(size=s).astype(np.float32) / 8 for s in shapes]


def workloads() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    args = arguments()
    mine = nova.jit(lambda *a: lstm(nova, _Nova, *a))
    theirs = jax.jit(lambda *a: lstm(lax, _Jax, *a))
    my_step = nova.jit(nova.grad(lambda *a: (lstm(nova, _Nova, *a) ** 2).sum(), argnums=(1, 2, 3)))
    their_step = jax.jit(jax.grad(lambda *a: (lstm(lax, _Jax, *a) ** 2).sum(), argnums=(1, 2, 3)))
    imported = nova.from_jax(lambda *a: lstm(lax, _Jax, *a), *args)
    matrix = RNG.normal(size=(256, 256)).astype(np.float32) / 16
    product = nova.jit(lambda a, x: x @ a)
    loop = nova.jit(
        lambda a, x: nova.while_loop(lambda c: c[0] < 1000, lambda c: (c[0] + 1, c[1] @ a), (0, x))
    )
    count = nova.jit(lambda n: nova.while_loop(lambda c: c < n, lambda c: c + 1, 0))
    their_count = jax.jit(lambda n: lax.while_loop(lambda c: c < n, lambda c: c + 1, 0))

    def called() -> None:
        for _ in range(1000):
            product(matrix, matrix)

    return {
        "LSTM forward": (lambda: mine(*args), lambda: theirs(*args).block_until_ready()),
        "LSTM gradient": (
            lambda: my_step(*args),
            lambda: jax.block_until_ready(their_step(*args)),
        ),
        "LSTM imported": (lambda: imported(*args), lambda: theirs(*args).block_until_ready()),
        "1000 matmuls of 256": (lambda: loop(matrix, matrix), called),
        "100,000 empty iterations": (
            lambda: count(100_000),
            lambda: their_count(100_000).block_until_ready(),
        ),
    }


def row_updates(seconds: float) -> None:
    """The time of an iteration that writes one row of a cache, for caches of several sizes."""
    row, few, many = np.ones((1, 64), np.float32), 4_000, 200_000

    def fill(cache: Any, row: Any, count: Any) -> Any:
        def body(state: Any) -> Any:
            i, cache = state
            return i + 1, nova.dynamic_update_slice(cache, row, (i % 512, 0))

        return nova.while_loop(lambda state: state[0] < count, body, (0, cache))[1]

    print(f"\n{'rows of the cache':<26}{'ns an iteration':>18}")
    for rows in (512, 4_096, 32_768, 131_072):
        cache, loop = np.zeros((rows, 64), np.float32), nova.jit(fill)
        # A difference: a loop copies the argument once.
        short, long = (best(partial(loop, cache, row, n), seconds) for n in (few, many))
        print(f"{rows:<26}{(long - short) * 1e6 / (many - few):>18.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    print(f"{'workload':<26}{'nova ms':>10}{'other ms':>10}{'ratio':>8}")
    for name, contenders in workloads().items():
        times = [[best(run, options.seconds) for run in contenders] for _ in range(options.rounds)]
        mine, other = map(min, zip(*times, strict=True))
        print(f"{name:<26}{mine:>10.3f}{other:>10.3f}{other / mine:>8.2f}", flush=True)
    row_updates(options.seconds)


if __name__ == "__main__":
    main()
