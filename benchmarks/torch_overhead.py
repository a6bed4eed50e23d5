"""Call overhead of `torch.compile`: an add of 8 floats through several backends, as ratios.

Out: the time of a call through each backend and its ratio to inductor's. "dispatch" is a backend
that returns a ready tensor: what remains is dynamo's guards and frame evaluation. "dispatch, no
record" is the same without dynamo's record for profilers, as in frames of Nova. Short batches, and
the shortest of them: the machine may be busy.

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
    for name, backend, recorded in (
        ("dispatch", ready_backend, True),
        ("dispatch, no record", ready_backend, False),
        ("nova", "nova", True),
        ("inductor", "inductor", True),
    ):
        torch._dynamo.reset()
        compiled = torch.compile(add, backend=backend)
        with torch.no_grad(), torch._dynamo.config.patch(record_runtime_overhead=recorded):
            times[name] = microseconds(lambda compiled=compiled: compiled(a, b))
    print("backend | call, us | ratio to inductor")
    for name, value in times.items():
        print(f"{name} | {value:.2f} | {value / times['inductor']:.2f}")


if __name__ == "__main__":
    main()
