"""GEMM on a GPU, compared with cuBLAS: kernels are compiled here and may run elsewhere.

    python benchmarks/gpu/gemm.py emit FOLDER   # anywhere: writes PTX and a list of cases
    python benchmarks/gpu/gemm.py run FOLDER    # on a machine with a GPU, torch, cuda-bindings

`run` does not need Nova's compiler. It prints a line per case: microseconds, TFLOP/s, those of
torch, which calls cuBLAS, and the error against a matmul in f64, relative to the largest value. The
exit status is 1 if an error is larger than the dtype allows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

REPEATS = 30
BYTES = {"bf16": 2, "f16": 2, "f32": 4}
ALLOWED = {"bf16": 2e-5, "f16": 2e-5, "f32": 2e-5, "tf32": 2e-3, "tf32x3": 2e-5}


@dataclass(frozen=True)
class Case:
    """A matmul; `layout` says for A and B whether they are stored row-major or transposed."""

    m: int
    n: int
    k: int
    element: str
    layout: str = "nn"
    variant: str = ""
    """The difference from the plan that Nova would choose: `field=value,...` of its shape."""

    @property
    def name(self) -> str:
        extra = "-" + self.variant.replace("=", "").replace(",", "-") if self.variant else ""
        return f"{self.element}-{self.m}x{self.n}x{self.k}-{self.layout}{extra}"

    @property
    def type(self) -> str:
        return "f32" if self.element in ("tf32", "tf32x3") else self.element


def cases() -> list[Case]:
    big = [Case(4096, 4096, 4096, "bf16", layout) for layout in ("nn", "nt", "tn")]
    shapes = (
        "rows=128,columns=256,depth=64,warps=2x4,stages=4,blocks=1",
        "rows=128,columns=256,depth=64,warps=2x4,stages=3,blocks=1",
        "rows=128,columns=256,depth=32,warps=2x4,stages=4,blocks=1",
        "rows=256,columns=128,depth=64,warps=4x2,stages=4,blocks=1",
        "rows=128,columns=128,depth=64,warps=2x2,stages=3,blocks=2",
        "rows=128,columns=128,depth=32,warps=2x2,stages=4,blocks=2",
        "rows=128,columns=128,depth=64,warps=2x4,stages=3,blocks=2",
        "rows=128,columns=128,depth=64,warps=4x2,stages=3,blocks=2",
    )
    tuned = [Case(4096, 4096, 4096, "bf16", "nn", shape) for shape in shapes]
    sizes = [Case(n, n, n, "bf16") for n in (512, 1024, 2048, 8192)]
    odd = [Case(4096, 4096, 4100, "bf16"), Case(4000, 4001, 4002, "bf16")]
    plain = [Case(4096, 4096, 4096, "f32", layout) for layout in ("nn", "nt", "tn", "tt")]
    wide = (
        "rows=128,columns=128,depth=8,warps=2x2,stages=4,blocks=2,transposes=1",
        "rows=256,columns=128,depth=8,warps=4x2,stages=4,blocks=1,transposes=1",
        "rows=128,columns=256,depth=8,warps=2x4,stages=4,blocks=1,transposes=1",
    )
    plain += [
        Case(4096, 4096, 4096, "f32", layout, shape)
        for shape in wide
        for layout in ("nn", "nt", "tn", "tt")
    ]
    plain_shapes = (
        "rows=128,columns=128,depth=16,warps=4x2,stages=3,blocks=2",
        "rows=128,columns=128,depth=8,warps=4x2,stages=4,blocks=2",
        "rows=128,columns=128,depth=32,warps=4x2,stages=2,blocks=2",
        "rows=128,columns=128,depth=16,warps=4x2,stages=3,blocks=1",
        "rows=64,columns=128,depth=16,warps=2x2,stages=3,blocks=4",
        "rows=128,columns=64,depth=16,warps=4x1,stages=3,blocks=4",
        "rows=64,columns=64,depth=16,warps=4x2,stages=3,blocks=4",
        "rows=32,columns=32,depth=32,warps=2x1,split=4,stages=3,blocks=4",
        "rows=16,columns=32,depth=64,warps=1x1,split=8,stages=3,blocks=4",
        "rows=8,columns=32,depth=64,warps=1x1,split=8,stages=3,blocks=4",
    )
    layers = (
        ((512, 4096, 4096), 7),
        ((64, 512, 784), 10),
        ((784, 512, 64), 10),
        ((64, 10, 512), 10),
    )
    small = [Case(*size, "f32") for size, _ in layers]
    small += [
        Case(*size, "f32", "nn", shape)
        for size, count in layers
        for shape in plain_shapes[:count][-4:]
    ]
    plain += [Case(4096, 4096, 4096, "f32", "nn", shape) for shape in plain_shapes[1:6]]
    plain += [Case(4096, 4096, 4096, "f32", "nt", shape) for shape in plain_shapes[:5]]
    reduced = [
        Case(4096, 4096, 4096, element, layout)
        for element in ("tf32", "tf32x3")
        for layout in ("nn", "nt")
    ]
    block = [
        Case(*size, "bf16", "nn")
        for size in ((128, 2304, 768), (128, 768, 768), (128, 3072, 768), (128, 768, 3072))
    ]
    return [*big, *tuned, *sizes, *odd, *plain, *small, *reduced, *block]


# --- here ---------------------------------------------------------------------------------------


def emit(folder: Path, only: str) -> None:
    from nova.codegen.common.match_contraction import Contraction
    from nova.codegen.gpu.gemm.plan import GpuGemm, Shape, make_plan
    from nova.codegen.gpu.gemm.select_plan import plan_gemm

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in cases():
        if only not in case.name:
            continue
        m, n, k = case.m, case.n, case.k
        a = (k, 1) if case.layout[0] == "n" else (1, m)
        b = (n, 1) if case.layout[1] == "n" else (1, k)
        precision = {"tf32": "tf32", "tf32x3": "high"}.get(case.element, "highest")
        spec = Contraction(m, n, k, a, b, (n, 1), case.type, case.type, "f32", False)
        plan = plan_gemm(GpuGemm(spec), "sm_90a", precision=precision)
        if case.variant:
            fields: dict[str, Any] = dict(part.split("=") for part in case.variant.split(","))
            warps = tuple(int(w) for w in fields.pop("warps").split("x"))
            numbers = {name: int(value) for name, value in fields.items()}
            if "transposes" in numbers:
                numbers["transposes"] = bool(numbers["transposes"])
            shape = Shape(**{"split": 1, "speed": 1.0, **numbers, "warps": warps})
            plan = make_plan(plan.gemm, plan.core_type, plan.element, shape)
        from benchmarks.gpu.launch import gemm_ptx

        ptx, order = gemm_ptx(plan, spec)
        (folder / f"{case.name}.ptx").write_text(ptx)
        launch = {"grid": plan.grid, "block": plan.block, "shared": plan.shared_bytes}
        rows.append({"case": asdict(case), "order": order, **launch})
        print(case.name, plan.shape, flush=True)
    (folder / "cases.json").write_text(json.dumps(rows))


# --- there --------------------------------------------------------------------------------------


def run(folder: Path) -> int:
    import torch
    from cuda.bindings import driver

    torch.manual_seed(0)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.zeros(1, device="cuda")
    wrong = 0
    for row in json.loads((folder / "cases.json").read_text()):
        case = Case(**row["case"])
        element = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[case.type]
        shapes = (case.m, case.k), (case.k, case.n)
        a, b = (torch.randn(s, device="cuda", dtype=torch.float32).to(element) for s in shapes)
        stored = [
            x if layout == "n" else x.t().contiguous()
            for x, layout in zip((a, b), case.layout, strict=True)
        ]
        x, y = (
            s if layout == "n" else s.t() for s, layout in zip(stored, case.layout, strict=True)
        )
        c = torch.zeros(case.m, case.n, device="cuda", dtype=torch.float32)
        launch = _launcher(driver, folder / f"{case.name}.ptx", row, [*stored, c])
        launch()
        torch.cuda.synchronize()
        far = 0.0
        for start in range(0, case.m, 1024):
            rows = slice(start, start + 1024)
            want = a[rows].double() @ b.double()
            far = max(far, float((c[rows].double() - want).abs().max() / want.abs().max()))
        torch.backends.cuda.matmul.fp32_precision = "tf32" if case.element == "tf32" else "ieee"
        nova_time, torch_time = _compare(torch, launch, partial(torch.mm, x, y))
        flops = 2 * case.m * case.n * case.k
        verdict = "" if far < ALLOWED[case.element] else "  WRONG"
        wrong += bool(verdict)
        print(
            f"{case.name:95} {nova_time:9.1f} us {flops / nova_time / 1e6:7.1f} TFLOP/s   "
            f"torch {torch_time:9.1f} us {flops / torch_time / 1e6:7.1f}   "
            f"ratio {torch_time / nova_time:5.2f}   off {far:.1e}{verdict}",
            flush=True,
        )
    return min(1, wrong)


@dataclass(frozen=True)
class _Launch:
    """A kernel to call again and again, with the code and the memory that it names."""

    start: Callable[[], Any]
    module: Any
    buffers: list[Any]

    def __call__(self) -> None:
        self.start()


def _launcher(driver: Any, path: Path, row: dict[str, Any], buffers: list[Any]) -> _Launch:
    import ctypes

    import torch

    def check(result: Any) -> Any:
        if int(result[0]):
            raise RuntimeError(f"{path.name}: {result[0]}")
        return result[1] if len(result) > 1 else None

    module = check(driver.cuModuleLoadData(path.read_bytes() + b"\0"))
    function = check(driver.cuModuleGetFunction(module, b"kernel_0_kernel"))
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    check(driver.cuFuncSetAttribute(function, limit, row["shared"]))
    values = tuple(buffers[i].data_ptr() for i in row["order"])
    arguments = (values, tuple([ctypes.c_void_p] * len(values)))
    stream = torch.cuda.current_stream().cuda_stream
    shape = (*row["grid"], *row["block"], row["shared"], stream, arguments, 0)

    return _Launch(lambda: check(driver.cuLaunchKernel(function, *shape)), module, buffers)


def _compare(torch: Any, *calls: Any) -> list[float]:
    """Medians of microseconds, in turns, so that both find the same clocks."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(5):
            call()
    for _ in range(REPEATS):
        for call, samples in zip(calls, times, strict=True):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(4):
                call()
            last.record()
            last.synchronize()
            samples.append(first.elapsed_time(last) * 1000 / 4)
    return [sorted(samples)[len(samples) // 2] for samples in times]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("emit", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    arguments = parser.parse_args()
    if arguments.action == "run":
        return run(arguments.folder)
    emit(arguments.folder, arguments.only)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
