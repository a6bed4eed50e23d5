"""The figures that Nova has to meet, each read from one row of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """`limit` seconds for the median of a contender; `phase` for workloads with phases."""

    text: str
    workload: str
    contender: str
    limit: float
    phase: str = ""


BARS = (
    Bar(
        "call of a compiled 8-float add, with argument checks and output allocation",
        "call_overhead",
        "Nova, Compiled()",
        1.2e-6,
    ),
    Bar("the same through nova.jit", "call_overhead", "Nova, nova.jit", 1.2e-6),
    Bar("forward + backward of 8x16 to 10", "small_step", "Nova, Compiled.run", 6e-6),
    Bar("compile of that step, cold, MLIR and LLVM loaded", "compile_cold", "Nova", 0.4, "compile"),
    Bar("the same with loading MLIR and LLVM", "compile_cold", "Nova", 0.4, "load + compile"),
    Bar("that step from the disk cache", "compile_disk", "Nova", 0.05, "compile"),
    Bar("import nova", "import_time", "nova", 0.2, "import"),
)
