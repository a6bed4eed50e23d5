"""Times and errors of `nova.fft` next to `torch.fft` and `numpy.fft`, on one thread.

Out: a table with the best time of several calls in milliseconds, the ratio to torch's, and the
largest error relative to the largest element of the transform in f64.

    NOVA_THREADS=1 python benchmarks/fft.py --calls 20
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import nova

# (function, batch, length): direct, two factors, three factors, a prime.
CASES = (
    *(("fft", 1024, 64), ("fft", 256, 1024), ("fft", 16, 16384), ("fft", 64, 1009)),
    *(("rfft", 1024, 64), ("rfft", 256, 1024), ("irfft", 256, 1024), ("fft2", 16, 128)),
)


def best_time(function: Callable[[], Any], calls: int) -> float:
    """The shortest of several calls, in milliseconds, after one that is not timed."""
    function()
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def operand(name: str, batch: int, n: int) -> np.ndarray:
    """Random numbers of the shape and type that a transform takes."""
    random = np.random.default_rng(0)
    shape = {"irfft": (batch, n // 2 + 1), "fft2": (batch, n, n)}.get(name, (batch, n))
    if name == "rfft":
        return random.normal(size=shape).astype("f4")
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype("c8")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    print("| transform | shape | Nova ms | torch ms | numpy ms | Nova / torch | error |")
    print("|---|---|---|---|---|---|---|")
    for name, batch, n in CASES:
        x = operand(name, batch, n)
        tensor, ours = torch.tensor(x), nova.jit(getattr(nova.fft, name))
        theirs, reference = getattr(torch.fft, name), getattr(np.fft, name)
        wide = reference(x.astype("c16" if np.iscomplexobj(x) else "f8"))
        error = abs(np.asarray(ours(x)) - wide).max() / abs(wide).max()
        calls = (partial(ours, x), partial(theirs, tensor), partial(reference, x))
        times = [best_time(call, options.calls) for call in calls]
        cells = " | ".join(f"{t:.3f}" for t in times)
        print(f"| {name} | {x.shape} | {cells} | {times[0] / times[1]:.1f} | {error:.1e} |")


if __name__ == "__main__":
    main()
