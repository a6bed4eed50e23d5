"""Warpgroup GEMMs on a Hopper GPU, compared with cuBLAS through torch, in one process.

    python benchmarks/gpu/wgmma.py check            # correctness of many shapes, layouts, epilogues
    python benchmarks/gpu/wgmma.py time [--tiles]   # microseconds of a run in the queue

`time` prints a line per shape: Nova, cuBLAS, their ratio, TFLOP/s. With `--tiles` it prints a line
for every tile, which is how the rates in `nova/codegen/gpu/wgmma/plan.py` were measured. Data is
random. Contenders take turns; the times are medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from benchmarks.gpu.device_lock import exclusive_device
from nova.codegen.gpu.wgmma.plan import TILES

ROUNDS = 9
ROUND_SECONDS = 0.006
ELEMENTS: dict[str, tuple[str, Any]] = {  # the names of torch and the types of numpy
    "bf16": ("bfloat16", ml_dtypes.bfloat16),
    "f16": ("float16", np.float16),
    "f32": ("float32", np.float32),
}


@dataclass(frozen=True)
class Case:
    """A matmul; `layout` says for A and B whether they are stored row-major or transposed.

    `epilogue` has letters: b adds a bias, g applies GELU, r adds a residual, f gives f32.
    """

    m: int
    n: int
    k: int
    layout: str = "nn"
    epilogue: str = ""
    batch: int = 0
    tile: int | None = None
    element: str = "bf16"

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch else ""
        tile = "" if self.tile is None else f" tile{self.tile}"
        return f"{batch}{self.m}x{self.n}x{self.k} {self.layout} {self.epilogue}{tile}"

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * max(1, self.batch)


BIG = [
    Case(4096, 4096, 4096),
    Case(8192, 8192, 8192),
    Case(4096, 4096, 11008, "nn"),
    Case(4096, 11008, 4096, "nn"),
    Case(16384, 768, 768),
    Case(4096, 4096, 4096, "nt"),
    Case(4096, 4096, 4096, "tn"),
]
# Forward, data gradient and weight gradient of a layer with weights [in, out], 8 x 1024 tokens.
GPT2 = [
    case
    for inputs, outputs in ((768, 2304), (768, 768), (768, 3072), (3072, 768))
    for case in (
        Case(8192, outputs, inputs, "nn"),
        Case(8192, inputs, outputs, "nt"),
        Case(inputs, outputs, 8192, "tn"),
    )
]
HEAD = [
    Case(8192, 50304, 768, "nt"),
    Case(8192, 50257, 768, "nt"),
    Case(8192, 768, 50304, "nn"),
    Case(50304, 768, 8192, "tn"),
]
SMALL = [Case(n, n, n) for n in (512, 1024, 2048)] + [
    Case(1024, n, k, "nn") for n, k in ((2304, 768), (768, 768), (3072, 768), (768, 3072))
]
FUSED = [Case(8192, 3072, 768, "nn", "bg"), Case(8192, 768, 3072, "nn", "br")]


def checked_cases() -> list[Case]:
    shapes = [(512, 512, 512), (384, 320, 200), (1000, 1000, 1000), (136, 72, 1032)]
    cases = [
        Case(*shape, layout, tile=tile)
        for shape in shapes
        for layout in ("nn", "nt", "tn", "tt")
        for tile in range(len(TILES))
    ]
    cases += [Case(640, 768, 512, "nt", e, tile=1) for e in ("b", "bg", "r", "bgr", "f", "brf")]
    cases += [Case(640, 50257, 256, "nt", "", tile=1), Case(640, 333, 256, "nt", "bf", tile=6)]
    cases += [Case(640, 333, 256, "nt", "b", tile=5), Case(300, 1001, 264, "nt", "f", tile=4)]
    cases += [
        Case(256, 320, 192, layout, "", 6, tile) for layout in ("nn", "nt") for tile in (1, 6)
    ]
    return [*cases, Case(512, 768, 256, "nn", "bg", element="f16", tile=1)]


def torch_function(case: Case) -> Callable[..., Any]:
    import torch

    def run(a: Any, b: Any, *others: Any) -> Any:
        a = a if case.layout[0] == "n" else a.mT
        b = b if case.layout[1] == "n" else b.mT
        left = list(others)
        x = a @ b
        if "b" in case.epilogue:
            x = x + left.pop(0)
        if "g" in case.epilogue:
            x = torch.nn.functional.gelu(x)
        if "r" in case.epilogue:
            x = x + left.pop(0)
        return x.float() if "f" in case.epilogue else x

    return run


def nova_function(case: Case) -> Callable[..., Any]:
    def run(a: Any, b: Any, *others: Any) -> Any:
        a = a if case.layout[0] == "n" else nova.swapaxes(a, -1, -2)
        b = b if case.layout[1] == "n" else nova.swapaxes(b, -1, -2)
        left = list(others)
        x = a @ b
        if "b" in case.epilogue:
            x = x + left.pop(0)
        if "g" in case.epilogue:
            x = nova.gelu(x)
        if "r" in case.epilogue:
            x = x + left.pop(0)
        return x.astype("f32") if "f" in case.epilogue else x

    return run


def make_arrays(case: Case) -> list[Any]:
    """Random torch tensors on the GPU."""
    import torch

    batch = (case.batch,) if case.batch else ()
    shapes: list[tuple[int, ...]] = [
        (*batch, case.m, case.k) if case.layout[0] == "n" else (*batch, case.k, case.m),
        (*batch, case.k, case.n) if case.layout[1] == "n" else (*batch, case.n, case.k),
    ]
    if "b" in case.epilogue:
        shapes.append((case.n,))
    if "r" in case.epilogue:
        shapes.append((*batch, case.m, case.n))
    element = getattr(torch, ELEMENTS[case.element][0])
    return [torch.randn(s, device="cuda", dtype=torch.float32).to(element) for s in shapes]


def tile_choice(number: int | None) -> str:
    """The value of the knob `gpu_gemm` for the tile with a number."""
    if number is None:
        return "auto"
    tile = TILES[number]
    return f"wgmma-{tile.rows}x{tile.columns}x{tile.cluster}x{tile.split}"


def make_nova(case: Case, arrays: Sequence[Any]) -> Callable[[], Any]:
    """The compiled program on device arrays; a `tile` number forces that tile."""
    import torch

    element = ELEMENTS[case.element][1]
    placed = [x.cpu().view(torch.uint8).numpy().view(element) for x in arrays]
    leaves = [nova.tensor(np.broadcast_to(np.zeros((), element), x.shape)) for x in placed]
    with nova.knobs.override(gpu_gemm=tile_choice(case.tile)):
        program = nova.compile(nova_function(case)(*leaves), inputs=leaves, target="cuda")
    on_device = [nova.to_device(x) for x in placed]
    return lambda: program(*on_device)


def check(cases: Sequence[Case]) -> int:
    import torch

    wrong = 0
    for case in cases:
        arrays = make_arrays(case)
        reference = torch_function(case)(*[x.double() for x in arrays]).double()
        try:
            run = make_nova(case, arrays)
            errors = []
            for _ in range(2):
                result = torch.from_dlpack(run()).double()
                errors.append(float((result - reference).abs().max() / reference.abs().max()))
            message = f"{max(errors):.1e}"
            bad = not max(errors) < 6e-3
        except Exception as error:  # a case that fails is a line that says so
            message, bad = f"{type(error).__name__}: {error}"[:400], True
        wrong += bad
        if bad:
            print(f"WRONG {case.name}: {message}", flush=True)
    print(f"{len(cases) - wrong} of {len(cases)} right", flush=True)
    return int(wrong > 0)


def measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Microseconds of a run in the queue."""
    for call in calls.values():  # a contender of torch may compile now, before others wait
        call()
    with exclusive_device():
        return _measure(calls)


def _measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    import torch

    counts, samples = {}, {name: [] for name in calls}
    for name, call in calls.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        counts[name] = max(5, int(ROUND_SECONDS * 5 / (time.perf_counter() - started)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(counts[name]):
                call()
            torch.cuda.synchronize()
            samples[name].append((time.perf_counter() - started) / counts[name] * 1e6)
    return {name: statistics.median(times) for name, times in samples.items()}


def time_case(case: Case, tiles: Sequence[int] = ()) -> dict[str, float]:
    """Microseconds of `torch`, `nova`, and of Nova with tiles: `t` and their numbers."""
    import torch

    arrays = make_arrays(case)
    function = torch_function(case)
    compiled = torch.compile(function) if case.epilogue else function
    with torch.no_grad():
        calls: dict[str, Callable[[], Any]] = {"torch": partial(compiled, *arrays)}
        for number in (None, *tiles):
            varied = Case(**{**case.__dict__, "tile": number})
            try:
                calls["nova" if number is None else f"t{number}"] = make_nova(varied, arrays)
            except Exception as error:
                print(f"{varied.name}: {type(error).__name__}: {error}"[:300])
        return measure(calls)


def time_cases(title: str, cases: Sequence[Case], tiles: bool) -> None:
    print(title)
    ratios = []
    for case in cases:
        times = time_case(case, range(len(TILES)) if tiles else ())
        best = times["torch"]
        ratio = best / times.get("nova", float("inf"))
        ratios.append(ratio)
        rates = " ".join(
            f"{name} {t:.1f} ({best / t:.3f})" for name, t in times.items() if name != "torch"
        )
        rate = case.flops / times.get("nova", float("inf")) / 1e6
        print(f"{case.name}: torch {best:.1f} us; {rates}; {rate:.0f} TFLOP/s", flush=True)
    print(f"geometric mean of torch / Nova {geometric_mean(ratios):.3f}", flush=True)


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("check", "time"))
    parser.add_argument("--tiles", action="store_true", help="time every tile")
    parser.add_argument("--only", default="big,gpt2,fused,head,small", help="groups of shapes")
    parser.add_argument("--quick", action="store_true", help="check fewer cases")
    options = parser.parse_args(arguments)
    if options.action == "check":
        return check(checked_cases()[:: 5 if options.quick else 1])
    groups = {"big": BIG, "gpt2": GPT2, "fused": FUSED, "head": HEAD, "small": SMALL}
    for name in options.only.split(","):
        time_cases(name, groups[name], options.tiles)
    return 0


if __name__ == "__main__":
    sys.exit(main())
