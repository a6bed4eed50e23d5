"""The time of a call of a short program on this machine's GPU: microseconds, many calls in a row.

    python benchmarks/gpu/calls.py [--calls N] [--device NAME]

Programs of hand-written PTX, so that neither a compiler nor a peer is needed. A row is the best of
five rounds, from the first call to the end of the work of the last. The bar of a step of two
launches is 12 us (`train step` of run.py, which compares with torch and jax). The last rows are
what a future and an open trace add.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from gpu_samples import chain, load, one, training

import nova
from nova.runtime.devices import open_device

SIZE = 1 << 12
_ROUNDS = 5


def microseconds(call: Callable[[], Any], number: int, device: str) -> float:
    """The best round: from the first call to the end of the work."""
    opened = open_device(device)
    best = float("inf")
    for _ in range(_ROUNDS):
        opened.synchronize()
        started = time.perf_counter()
        for _ in range(number):
            call()
        opened.synchronize()
        best = min(best, (time.perf_counter() - started) / number * 1e6)
    return best


def measure(number: int, device: str) -> dict[str, float]:
    """All rows."""
    x = np.arange(SIZE, dtype="f4")
    step, long, single = (
        load(model, device) for model in (training(SIZE), chain(SIZE), one("scale", SIZE))
    )
    on_device, w = nova.to_device(x, device), nova.to_device(np.zeros(SIZE, "f4"), device)
    few = max(1, number // 7)
    rows = {
        "one launch": microseconds(lambda: single(on_device), number, device),
        "step of two launches": microseconds(lambda: step(on_device, w), number, device),
        "three launches": microseconds(lambda: long(on_device), number, device),
        "three launches, host arrays": microseconds(lambda: long(x), few, device),
        "three launches, submitted": microseconds(
            lambda: long.submit(on_device).result(), few, device
        ),
        "the same, host arrays": microseconds(lambda: long.submit(x).result(), few, device),
    }
    with nova.trace():
        rows["three launches, traced"] = microseconds(lambda: long(on_device), few, device)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000, help="in a round (2000)")
    parser.add_argument("--device", default="cuda", help="another device than cuda")
    options = parser.parse_args(arguments)
    for name, value in measure(options.calls, options.device).items():
        print(f"{name:<32}{value:8.2f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
