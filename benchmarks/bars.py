"""The figures that Nova has to meet, each read from one row of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """`limit` seconds for the median of a contender; `phase` for workloads with phases.

    With `beside`, another contender of the same table, the limit is for the difference to it in
    seconds, or with `ratio` for the share of its time. `size` picks a table.
    """

    text: str
    workload: str
    contender: str
    limit: float
    phase: str = ""
    beside: str = ""
    ratio: bool = False
    size: str = ""


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
    Bar("a saved MLP from its file to the first result", "load_file", "Nova", 0.005, "load"),
    Bar("import nova", "import_time", "nova", 0.2, "import"),
    Bar("10,000 empty tasks with two workers (150 ns each)", "task_dispatch", "Nova", 1.5e-3),
    Bar(
        "a run of 200 kernels over a C loop (1 µs each)",
        "kernel_chain",
        "Nova",
        200e-6,
        beside="the kernels in a C loop",
    ),
    Bar(
        "two chains of matrix products on two cores, to one core",
        "two_chains",
        "Nova",
        0.55,
        beside="Nova, one thread",
        ratio=True,
        size="4 x 512",
    ),
)
