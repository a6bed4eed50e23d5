"""The figures that Nova has to meet, each read from one table of a run.

`SPEED` compares with the best peer of the same run, on one thread and on two; `BARS` adds what the
rest of Nova promises: calls, start-up, loading, the scheduler.
"""

from __future__ import annotations

from typing import Any

from harness.bar import BEST_PEER, Bar

_THREADS = {1: "one thread", 2: "two threads"}


def _beside_best(
    text: str, workload: str, contender: str, measure: str, limits: dict[int, float], **options: Any
) -> list[Bar]:
    """The same figure for each number of threads that has a limit."""
    return [
        Bar(
            f"{text}, {_THREADS[n]}",
            workload,
            contender,
            limit,
            measure,
            BEST_PEER,
            threads=n,
            **options,
        )
        for n, limit in limits.items()
    ]


SPEED = (
    *(
        bar
        for n in (128, 256, 512, 1024, 2048)
        for bar in _beside_best(
            f"matmul {n}", "matmul", "Nova", "speed", {1: 0.98, 2: 0.98}, size=str(n)
        )
    ),
    *(
        bar
        for shape in ("64x784x512", "64x512x512", "512x256x1024")
        for bar in _beside_best(
            f"matmul {shape}, weights packed",
            "constant_weights",
            "Nova, weights constant",
            "speed",
            {1: 1.05, 2: 1.05},
            size=shape,
        )
    ),
    *_beside_best("matmul 8x16x10", "small_matmul", "Nova", "speed", {1: 2.0}, size="8x16x10"),
    *(
        bar
        for size in ("1x768x768", "96 of 64x64x64")
        for bar in _beside_best(
            f"matmul {size}", "small_matmul", "Nova", "speed", {1: 1.2, 2: 1.2}, size=size
        )
    ),
    Bar("step 8x16 to 10, a call from Python", "small_step", "Nova, Compiled()", 4e-6),
    Bar("the same with SGD, weights in place", "train_small", "Nova, train_step", 4e-6),
    *_beside_best(
        "training step of the MLP",
        "train_mlp",
        "Nova, train_step and Batches",
        "share",
        {1: 0.85, 2: 0.70},
    ),
    *(
        bar
        for size in ("tanh, 16M", "erf, 16M")
        for bar in _beside_best(
            f"gelu(a * b + c), {size}", "gelu_chain", "Nova", "share", {1: 1.0, 2: 1.0}, size=size
        )
    ),
    *_beside_best("GPT-2 block forward", "gpt_block", "Nova", "share", {1: 0.95, 2: 0.90}),
    *_beside_best(
        "training step of the GPT", "train_gpt", "Nova, train_step", "share", {1: 0.78, 2: 0.75}
    ),
    *(
        Bar(
            f"cold compile of the {model} step",
            "train_compile_cold",
            f"Nova, {model}",
            1.0,
            "share",
            f"jax.jit, {model}",
            "load + compile",
        )
        for model in ("MLP", "GPT")
    ),
)

BARS = (
    *SPEED,
    Bar(
        "call of a compiled 8-float add, with argument checks and output allocation",
        "call_overhead",
        "Nova, Compiled()",
        1.2e-6,
    ),
    Bar("the same through nova.jit", "call_overhead", "Nova, nova.jit", 1.2e-6),
    Bar("forward + backward of 8x16 to 10", "small_step", "Nova, Compiled.run", 6e-6),
    Bar(
        "compile of that step, cold, MLIR and LLVM loaded",
        "compile_cold",
        "Nova",
        0.4,
        phase="compile",
    ),
    Bar("the same with loading MLIR and LLVM", "compile_cold", "Nova", 0.4, phase="load + compile"),
    Bar("that step from the disk cache", "compile_disk", "Nova", 0.05, phase="compile"),
    Bar("a saved MLP from its file to the first result", "load_file", "Nova", 0.005, phase="load"),
    Bar("import nova", "import_time", "nova", 0.2, phase="import"),
    Bar("10,000 empty tasks with two workers (150 ns each)", "task_dispatch", "Nova", 1.5e-3),
    Bar(
        "a run of 200 kernels over a C loop (1 µs each)",
        "kernel_chain",
        "Nova",
        200e-6,
        "difference",
        "the kernels in a C loop",
        threads=2,
    ),
    Bar(
        "two chains of matmuls on two cores, relative to one core",
        "two_chains",
        "Nova",
        0.55,
        "share",
        "Nova, one thread",
        size="4 x 512",
    ),
)
