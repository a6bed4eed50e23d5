"""Long rows and sums of columns on a GPU, compared with torch, in one process.

    python benchmarks/gpu/rows.py [--no-compile]

Prints a line per workload: microseconds of a run in the queue of Nova, torch and torch.compile, and
the bandwidth of Nova, counting each element once. Results are compared with torch's in f32 first.
Contenders alternate; the times are medians over rounds.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from benchmarks.gpu.wgmma import measure

Function = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """A function of rows; `written` says whether its result has all elements of a row."""

    name: str
    function: Function
    reference: Function
    rows: int
    length: int
    element: str = "f32"
    inputs: int = 1
    written: int = 1

    @property
    def moved(self) -> float:
        size = 4 if self.element == "f32" else 2
        return float(self.rows * self.length * size * (self.inputs + self.written))


def _nova_gradient(y: Any, g: Any) -> Any:
    return y * (g - nova.sum(g * y, axis=-1, keepdims=True))


def _torch_gradient(y: Any, g: Any) -> Any:
    return y * (g - (g * y).sum(-1, keepdim=True))


def workloads() -> list[Workload]:
    import torch

    softmax, log_softmax = partial(torch.softmax, dim=-1), partial(torch.log_softmax, dim=-1)
    lse = partial(torch.logsumexp, dim=-1)

    def nova_lse(x: Any) -> Any:
        return nova.logsumexp(x, axis=-1)

    def nova_norm(x: Any) -> Any:
        return x / nova.sqrt(nova.mean(x * x, axis=-1, keepdims=True) + 1e-5)

    def torch_norm(x: Any) -> Any:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)

    def nova_sums(x: Any) -> Any:
        return nova.sum(nova.cast(x, "f32"), axis=0)

    def torch_sums(x: Any) -> Any:
        return x.sum(0, dtype=torch.float32)

    return [
        Workload("softmax", nova.softmax, softmax, 4096, 50257),
        Workload("softmax", nova.softmax, softmax, 4096, 50304),
        Workload("log_softmax", nova.log_softmax, log_softmax, 4096, 50257),
        Workload("gradient of softmax", _nova_gradient, _torch_gradient, 4096, 50257, inputs=2),
        Workload("RMS norm", nova_norm, torch_norm, 4096, 50257),
        Workload("logsumexp", nova_lse, lse, 8192, 50304, "bf16", written=0),
        Workload("softmax", nova.softmax, softmax, 8192, 50304, "bf16"),
        Workload("softmax", nova.softmax, softmax, 4096, 131072),
        # The gradients of the biases of GPT-2 small.
        *(
            Workload("column sums", nova_sums, torch_sums, 8192, width, "bf16", written=0)
            for width in (768, 2304, 3072)
        ),
    ]


def time_workload(workload: Workload, compiled: bool) -> dict[str, float]:
    """Microseconds of `nova`, `torch` and `torch.compile`."""
    import torch

    shape = (workload.rows, workload.length)
    is_f32 = workload.element == "f32"
    element = torch.float32 if is_f32 else torch.bfloat16
    arrays = [
        torch.randn(shape, device="cuda", dtype=torch.float32).to(element)
        for _ in range(workload.inputs)
    ]
    dtype: Any = np.float32 if is_f32 else ml_dtypes.bfloat16
    leaves = [nova.tensor(np.broadcast_to(np.zeros((), dtype), shape)) for _ in arrays]
    program = nova.compile(workload.function(*leaves), inputs=leaves, target="cuda")
    integer = torch.int32 if is_f32 else torch.int16
    device_arrays = [nova.to_device(x.cpu().view(integer).numpy().view(dtype)) for x in arrays]
    result = torch.from_dlpack(program(*device_arrays)).float()
    expected = workload.reference(*[x.float() for x in arrays])
    error = float((result - expected).abs().max() / expected.abs().max())
    if not error < (1e-5 if is_f32 else 1e-2):
        print(f"WRONG {workload.name}: differs from torch by {error:.1e}")
    del result, expected
    calls = {
        "nova": lambda: program(*device_arrays),
        "torch": partial(workload.reference, *arrays),
    }
    if compiled:
        calls["torch.compile"] = partial(torch.compile(workload.reference), *arrays)
    return measure(calls)


def run(workload: Workload, compiled: bool) -> None:
    times = time_workload(workload, compiled)
    line = ", ".join(f"{name} {time:.1f} us" for name, time in times.items())
    rate = workload.moved / times["nova"] / 1e6
    shape = (workload.rows, workload.length)
    print(f"{workload.name} {shape} {workload.element}: {line}; {rate:.2f} TB/s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-compile", action="store_true", help="do not time torch.compile")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for workload in workloads():
        run(workload, not options.no_compile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
