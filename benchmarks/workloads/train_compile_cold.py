"""The training steps of `train_mlp` and `train_gpt` compiled with empty caches, to the first loss.

Each time in a new process. The phases are those of `compile_cold`; weights and data are in place
before `compile` starts. `train_compile_disk` runs them again with caches that are kept.
"""

import importlib
import time

TITLE = "Compile of the training steps, cold"
MODE = "fresh"
KEEP_CACHES = False
UNIT = "ms"
SLOW = ("Nova, GPT", "jax.jit, GPT", "torch.compile, MLP")
STARTS = 3

now = time.perf_counter


def timed_import(*names):
    """Seconds to import modules. Names, so that this file imports nothing itself."""
    start = now()
    for name in names:
        __import__(name)
    return now() - start


def timed_step(workload, library, **options):
    """Seconds of the first step, whose loss is checked, and the training it is of."""
    module = importlib.import_module(f"workloads.{workload}")
    from harness.case import read_all, worst_error

    data = module.arrays()
    training = getattr(module, f"{library}_training")(data, **options)
    start = now()
    loss = training.step()
    elapsed = now() - start
    worst_error(read_all(loss), module.oracle(data, steps=1), module.TOLERANCE)
    return elapsed, training


def nova_step(workload, *origins):
    """Seconds of Nova's step, which must have come from one of the `origins`."""
    elapsed, training = timed_step(workload, "nova")
    origin = training.program.compiled.origin
    assert origin in origins, f"{origin}, not {origins}"
    return elapsed


def nova(workload):
    return {
        "import": timed_import("nova"),
        "compiler": timed_import("nova.compiler.driver"),  # MLIR and LLVM
        "compile": nova_step(workload, "compiled"),
    }


def jax_jit(workload):
    imported = timed_import("jax")
    import jax

    start = now()
    jax.devices()  # starts the backend
    return {
        "import": imported,
        "compiler": now() - start,
        "compile": timed_step(workload, "jax")[0],
    }


def torch_compiled(workload):
    return {
        "import": timed_import("torch"),
        "compiler": timed_import("torch._dynamo", "torch._inductor.compile_fx"),
        "compile": timed_step(workload, "torch", compiled=True)[0],
    }


NOT_RUN = "not run: it takes about a minute"
CONTENDERS = {
    "Nova, MLP": ("nova", lambda: nova("train_mlp")),
    "jax.jit, MLP": ("jax", lambda: jax_jit("train_mlp")),
    "torch.compile, MLP": ("torch", lambda: torch_compiled("train_mlp")),
    "Nova, GPT": ("nova", lambda: nova("train_gpt")),
    "jax.jit, GPT": ("jax", lambda: jax_jit("train_gpt")),
    "torch.compile, GPT": ("torch", NOT_RUN),
}
