"""The training steps from the disk cache that an earlier process filled, to the first loss."""

import os
import sys

from workloads.train_compile_cold import (
    NOT_RUN,
    jax_jit,
    nova_step,
    timed_import,
    torch_compiled,
)

TITLE = "The training steps from the disk cache"
MODE = "fresh"
KEEP_CACHES = True
UNIT = "ms"
SLOW = ("torch.compile, MLP",)
STARTS = 3


def nova(workload):
    filling = "BENCH_FILLING" in os.environ
    phases = {
        "import": timed_import("nova"),
        "compile": nova_step(workload, "disk", *(["compiled"] if filling else [])),
    }
    loaded = {"torch_mlir", "llvmlite"} & set(sys.modules)
    assert filling or not loaded, f"loaded without need: {loaded}"
    return phases


CONTENDERS = {
    "Nova, MLP": ("nova", lambda: nova("train_mlp")),
    "jax.jit, MLP": ("jax", lambda: jax_jit("train_mlp")),
    "torch.compile, MLP": ("torch", lambda: torch_compiled("train_mlp")),
    "Nova, GPT": ("nova", lambda: nova("train_gpt")),
    "jax.jit, GPT": ("jax", lambda: jax_jit("train_gpt")),
    "torch.compile, GPT": ("torch", NOT_RUN),
}
