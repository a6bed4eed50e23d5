"""The small step from the disk cache that an earlier process filled, to its first result.

Each library with the cache it has: Nova's is on by default. IREE has none.
"""

import os
import sys

from workloads.compile_cold import (
    jax_jit,
    numba_by_hand,
    run_nova,
    timed_import,
    timed_step,
    torch_compiled,
)

TITLE = "The small step from the disk cache"
MODE = "fresh"
KEEP_CACHES = True
UNIT = "ms"
SLOW = ("torch.compile",)


def nova():
    filling = "BENCH_FILLING" in os.environ
    phases = {
        "import": timed_import("nova"),
        "compile": timed_step(run_nova("disk", *(["compiled"] if filling else []))),
    }
    loaded = {"torch_mlir", "llvmlite"} & set(sys.modules)
    assert filling or not loaded, f"loaded without need: {loaded}"
    return phases


CONTENDERS = {
    "Nova": ("nova", nova),
    "numba by hand": ("numba", numba_by_hand),
    "jax.jit": ("jax", jax_jit),
    "torch.compile": ("torch", torch_compiled),
}
