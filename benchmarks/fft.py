"""Times and errors of `nova.fft` next to `torch.fft` and `numpy.fft`, on one thread.

Out: a table with the best CPU time of several rounds in milliseconds, the median ratio to torch's
in the same round, and the largest error relative to the largest element of the transform in f64.

    NOVA_THREADS=1 python benchmarks/fft.py --rounds 20
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

# (function, batch, length): passes of one radix and of several, long rows, and a prime.
CASES = (
    *(("fft", 1024, 64), ("fft", 256, 1024), ("fft", 64, 1000), ("fft", 16, 16384)),
    *(("fft", 1, 4096), ("fft", 4, 262144), ("fft", 64, 1009), ("fft2", 16, 128)),
    *(("rfft", 1024, 64), ("rfft", 256, 1024), ("irfft", 256, 1024)),
)
_ELEMENTS = 2_000_000
"""A round has as many calls as transform this many elements."""


def round_times(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The CPU time of a call of each, in milliseconds, one after the other."""
    times = []
    for call in calls:
        begin = time.thread_time()
        for _ in range(repeats):
            call()
        times.append((time.thread_time() - begin) / repeats * 1e3)
    return times


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
    parser.add_argument("--rounds", type=int, default=20)
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
        repeats = max(1, _ELEMENTS // x.size)
        rounds = np.array([round_times(calls, repeats) for _ in range(options.rounds)])
        cells = " | ".join(f"{t:.3f}" for t in rounds.min(axis=0))
        ratio = np.median(rounds[:, 0] / rounds[:, 1])
        print(f"| {name} | {x.shape} | {cells} | {ratio:.2f} | {error:.1e} |")


if __name__ == "__main__":
    main()
