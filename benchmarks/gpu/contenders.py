"""Contenders on a GPU: a contender is a workload as one library runs it.

`call` puts one run into the device's queue and does not wait; `read` waits and gives the results of
the last run as numpy arrays. Data is on the device before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Contender:
    """One library on one workload."""

    name: str
    call: Callable[[], Any]
    read: Callable[[], list[np.ndarray]]
    wait: Callable[[], Any] = lambda: None  # for a queue of the library's own


@dataclass(frozen=True)
class Workload:
    """A row of the table: microseconds that Nova must reach, absolute or of the best peer."""

    title: str
    make: Callable[[], Sequence[Callable[[], Contender]]]
    most_us: float | None = None
    most_ratio: float | None = None
    flops: float = 0.0
    least_tflops: float | None = None
    moved: float = 0.0
    tolerance: float = 1e-4


Make = Callable[[], Contender]


def last(
    function: Callable[[], Any],
    to_numpy: Callable[[Any], list[np.ndarray]],
    name: str,
    wait: Callable[[Any], Any] = lambda result: None,
) -> Contender:
    """A contender whose call returns its results."""
    latest: list[Any] = [None]

    def call() -> None:
        latest[0] = function()

    return Contender(name, call, lambda: to_numpy(latest[0]), lambda: wait(latest[0]))


def _many(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def from_torch(results: Any) -> list[np.ndarray]:
    return [r.detach().float().cpu().numpy() for r in _many(results)]


def from_jax(results: Any) -> list[np.ndarray]:
    return [np.asarray(r, np.float32) for r in _many(results)]


def from_nova(results: Any) -> list[np.ndarray]:
    return [
        np.asarray(r.numpy() if hasattr(r, "numpy") else r).astype(np.float32)
        for r in _many(results)
    ]


def torch_arrays(arrays: Sequence[np.ndarray], half: bool = False) -> list[Any]:
    import torch

    tensors = [torch.from_numpy(np.ascontiguousarray(a)).cuda() for a in arrays]
    return [m.bfloat16() if half and m.is_floating_point() else m for m in tensors]


def nova_forward(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], half: bool = False
) -> Callable[[], Contender]:
    """`function` compiled for this GPU, on arrays of Nova, results left on the device."""

    def make() -> Contender:
        import ml_dtypes

        import nova

        element = ml_dtypes.bfloat16 if half else np.float32
        data = [nova.tensor(a.astype(element), name=f"a{i}") for i, a in enumerate(arrays)]
        program = nova.compile(function(*data), inputs=data, target="cuda")
        placed = [nova.to_device(a.astype(element)) for a in arrays]
        return last(lambda: program(*placed), from_nova, "Nova")

    return make


def torch_forward(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], mode: str | None, half: bool = False
) -> Make:
    """`function` in eager torch, or compiled in the given mode."""

    def make() -> Contender:
        import torch

        tensors = torch_arrays(arrays, half)
        if mode is None:
            return last(lambda: function(*tensors), from_torch, "torch")
        compiled = torch.compile(function, mode=mode)
        with torch.no_grad():
            for _ in range(3):
                compiled(*tensors)
        return last(lambda: compiled(*tensors), from_torch, f"torch.compile {mode}")

    return make


def jax_forward(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], half: bool = False
) -> Callable[[], Contender]:
    def make() -> Contender:
        import jax
        import jax.numpy as jnp

        element = jnp.bfloat16 if half else None
        data = [jax.device_put(jnp.asarray(a, element)) for a in arrays]
        compiled = jax.jit(function)
        return last(lambda: compiled(*data), from_jax, "jax.jit", jax.block_until_ready)

    return make
