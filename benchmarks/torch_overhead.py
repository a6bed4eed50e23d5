"""Call overhead of `torch.compile`: an add of 8 floats through several backends, as ratios.

Out: the time of a call through each backend, that time without dynamo's own dispatch (guards and
frame evaluation: a call through a backend that returns a ready tensor), and both as ratios to
inductor's. Short batches, and the shortest of them: the machine may be busy.

    python benchmarks/torch_overhead.py
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

_BATCH, _BATCHES = 100, 400


def microseconds(run: Callable[[], Any]) -> float:
    """The time of one call: the best of many short batches."""
    for _ in range(500):
        run()
    best = float("inf")
    for _ in range(_BATCHES):
        start = time.perf_counter()
        for _ in range(_BATCH):
            run()
        best = min(best, (time.perf_counter() - start) / _BATCH)
    return best * 1e6


def ready_backend(module: Any, examples: Sequence[Any]) -> Callable[..., Any]:
    """A backend that computes nothing: what remains is dynamo's dispatch."""
    result = (torch.zeros(8),)
    return lambda *args: result


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


def main() -> None:
    torch.set_num_threads(1)
    a, b = torch.rand(8), torch.rand(8)
    times = {"eager": microseconds(lambda: add(a, b))}
    for name, backend in (("dispatch", ready_backend), ("nova", "nova"), ("inductor", "inductor")):
        torch._dynamo.reset()
        compiled = torch.compile(add, backend=backend)
        with torch.no_grad():
            times[name] = microseconds(lambda compiled=compiled: compiled(a, b))
    floor, best = times["dispatch"], times["inductor"]
    print("backend | call, us | ratio to inductor | without dispatch, us | ratio to inductor")
    for name, value in times.items():
        own = value - floor if name in ("nova", "inductor") else float("nan")
        print(f"{name} | {value:.2f} | {value / best:.2f} | {own:.2f} | {own / (best - floor):.2f}")


if __name__ == "__main__":
    main()
