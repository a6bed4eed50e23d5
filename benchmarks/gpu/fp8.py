"""GEMMs of 8-bit floats on a Hopper GPU, compared with `torch._scaled_mm`, in one process.

    python benchmarks/gpu/fp8.py check            # correctness of types, scales, shapes and tiles
    python benchmarks/gpu/fp8.py time [--tiles]   # microseconds of a run in the queue

B is stored by columns (its rows run along k). torch accumulates as the tensor cores do
(`use_fast_accum`), or adds their sums in f32 every few steps. Data is random; runs of contenders
are interleaved.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from benchmarks.gpu.wgmma import measure
from nova.core.dtypes import dtype

TORCH = {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bf16": "bfloat16", "f32": "float32"}
CHOICES = ("wgmma-128x256x2", "wgmma-128x256x1x1", "wgmma-256x128", "wgmma-128x192x1x1")


@dataclass(frozen=True)
class Case:
    """A GEMM; with `rows`, a scale for each row of A and column of B."""

    m: int
    n: int
    k: int
    rows: bool = False
    types: tuple[str, str] = ("f8e4m3", "f8e4m3")
    result: str = "bf16"

    @property
    def name(self) -> str:
        scales = "row" if self.rows else "tensor"
        return f"{self.m}x{self.n}x{self.k} {' '.join(self.types)} {scales} {self.result}"


TIMED = [
    Case(4096, 4096, 4096),
    Case(8192, 8192, 8192),
    Case(4096, 4096, 4096, rows=True),
    Case(8192, 8192, 8192, rows=True),
]
CHECKED = [
    Case(512, 768, 1024),
    Case(512, 768, 1024, rows=True, types=("f8e4m3", "f8e5m2"), result="f32"),
    Case(200, 304, 272, rows=True, types=("f8e5m2", "f8e4m3")),
    Case(1000, 1000, 1008, types=("f8e5m2", "f8e5m2"), result="f32"),
    Case(2048, 2048, 2048, rows=True),
    Case(640, 50256, 256, rows=True),
]


def make_arrays(case: Case) -> list[Any]:
    """A, B by columns, and both scales, on the GPU."""
    import torch

    shapes = (case.m, case.k), (case.n, case.k)
    operands = [
        torch.randn(shape, device="cuda").to(getattr(torch, TORCH[type_]))
        for shape, type_ in zip(shapes, case.types, strict=True)
    ]
    sizes = ((case.m, 1), (1, case.n)) if case.rows else ((), ())
    return [*operands, *(torch.rand(size, device="cuda") + 0.5 for size in sizes)]


def make_nova(case: Case, arrays: Sequence[Any], choice: str = "auto") -> Callable[[], Any]:
    import torch

    elements = [dtype(type_).numpy for type_ in (*case.types, "f32", "f32")]
    placed = [
        np.asarray(x.contiguous().cpu().view(torch.uint8).numpy()).view(element).reshape(x.shape)
        if x.element_size() == 1
        else x.cpu().numpy()
        for x, element in zip(arrays, elements, strict=True)
    ]
    leaves = [nova.tensor(np.broadcast_to(np.zeros((), x.dtype), x.shape)) for x in placed]
    a, b, scale_a, scale_b = leaves
    product = nova.scaled_matmul(a, b.T, scale_a, scale_b, out_dtype=case.result)
    with nova.knobs.override(gpu_gemm=choice):
        program = nova.compile(product, inputs=leaves, target="cuda")
    on_device = [nova.to_device(x) for x in placed]
    return lambda: program(*on_device)


def torch_scaled(case: Case, arrays: Sequence[Any], *, fast: bool) -> Callable[[], Any]:
    import torch

    a, b, scale_a, scale_b = arrays
    return partial(
        torch._scaled_mm,
        a,
        b.T,
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=getattr(torch, TORCH[case.result]),
        use_fast_accum=fast,
    )


def check(cases: Sequence[Case]) -> int:
    import torch

    wrong = 0
    for case in cases:
        arrays = make_arrays(case)
        a, b, scale_a, scale_b = (x.double() for x in arrays)
        reference = (a @ b.T) * scale_a * scale_b
        for choice in ("auto", *CHOICES[:2]):
            try:
                result = torch.from_dlpack(make_nova(case, arrays, choice)()).double()
                error = float((result - reference).abs().max() / reference.abs().max())
                bad, message = not error < 8e-3, f"{error:.1e}"
            except Exception as failure:  # a case that fails is a line that says so
                refused = "its cluster does not divide" in str(failure)
                bad, message = not refused, f"{type(failure).__name__}: {failure}"[:300]
            wrong += bad
            print(f"{'WRONG ' if bad else ''}{case.name} {choice}: {message}", flush=True)
    print(f"{wrong} wrong", flush=True)
    return int(wrong > 0)


def time_case(case: Case, choices: Sequence[str] = ()) -> dict[str, float]:
    """Microseconds of both ways of torch, of `nova`, and of Nova with other choices."""
    arrays = make_arrays(case)
    calls: dict[str, Callable[[], Any]] = {}
    for name, fast in (("torch fast", True), ("torch", False)):
        call = torch_scaled(case, arrays, fast=fast)
        try:
            call()
            calls[name] = call
        except RuntimeError as error:
            print(f"{case.name}: {name}: {error}"[:200])
    for choice in ("auto", *choices):
        calls["nova" if choice == "auto" else choice] = make_nova(case, arrays, choice)
    return measure(calls)


def best_of_torch(times: dict[str, float]) -> float:
    return min(t for name, t in times.items() if name.startswith("torch"))


def time_cases(cases: Sequence[Case], tiles: bool) -> None:
    for case in cases:
        times = time_case(case, CHOICES if tiles else ())
        best = best_of_torch(times)
        line = "; ".join(f"{name} {t:.1f} us ({best / t:.3f})" for name, t in times.items())
        rate = 2.0 * case.m * case.n * case.k / times["nova"] / 1e6
        print(f"{case.name}: {line}; {rate:.0f} TFLOP/s", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("check", "time"))
    parser.add_argument("--tiles", action="store_true", help="time every large tile")
    options = parser.parse_args(arguments)
    if options.action == "check":
        return check(CHECKED)
    time_cases(TIMED, options.tiles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
