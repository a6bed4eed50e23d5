"""The small step compiled with empty caches, each time in a new process, to its first result.

Loading and compiling are separate phases: `import` is the library, `compiler` is loaded only to
compile, `compile` from the graph to the first result, once that is loaded. `compile_disk` runs the
peers' functions again with caches that are kept.
"""

import time

TITLE = "Compile of the small step, cold"
MODE = "fresh"
KEEP_CACHES = False
UNIT = "ms"
SLOW = ("torch.compile", "IREE")

now = time.perf_counter


def timed_import(*names):
    """Seconds to import modules. Names, so that this file imports nothing itself."""
    start = now()
    for name in names:
        __import__(name)
    return now() - start


def check(result):
    """The result of the step against the oracle."""
    from harness.case import read_all, worst_error

    from workloads import small_step

    worst_error(read_all(result), small_step.oracle(small_step.arrays()), small_step.TOLERANCE)


def timed_step(make):
    """Seconds from nothing to the checked result of `make(small_step, arrays)`."""
    from workloads import small_step

    data = small_step.arrays()
    start = now()
    result = make(small_step, data)
    elapsed = now() - start
    check(result)
    return elapsed


def run_nova(*origins):
    """A function for `timed_step` that asserts where the program came from."""

    def make(small_step, data):
        x, w, b, y = data
        program = small_step.nova_program(data)
        assert program.origin in origins, f"{program.origin}, not {origins}"
        return program.run([x, y], [w, b])

    return make


def nova():
    return {
        "import": timed_import("nova"),
        "compiler": timed_import("nova.compiler.driver"),  # MLIR and LLVM
        "compile": timed_step(run_nova("compiled")),
    }


def nova_warm():
    """In a process that has compiled another program before, without the disk cache."""
    import nova

    nova.knobs.cache = False
    x = nova.tensor([[1.0, 2.0], [3.0, 4.0]])
    nova.compile((x @ x.T).exp().sum(), inputs=[x])
    return {"compile": timed_step(run_nova("compiled"))}


def numba_by_hand():
    return {
        "import": timed_import("numba"),
        "compile": timed_step(lambda step, data: step.numba_step(cache=True)(*data)),
    }


def jax_jit():
    imported = timed_import("jax")
    import jax

    start = now()
    jax.devices()  # starts the backend
    return {
        "import": imported,
        "compiler": now() - start,
        "compile": timed_step(
            lambda step, data: jax.block_until_ready(jax.jit(step.jax_step)(*data))
        ),
    }


def torch_compiled():
    return {
        "import": timed_import("torch"),
        "compiler": timed_import("torch._dynamo", "torch._inductor.compile_fx"),
        "compile": timed_step(lambda step, data: step.torch_compiled(data).result()),
    }


def iree():
    return {
        "import": timed_import("iree.compiler.tools", "iree.runtime"),
        "compiler": timed_import("jax"),  # which writes its input
        "compile": timed_step(lambda step, data: step.iree(data).result()),
    }


CONTENDERS = {
    "Nova": ("nova", nova),
    "Nova, warm process": ("nova", nova_warm),
    "numba by hand": ("numba", numba_by_hand),
    "jax.jit": ("jax", jax_jit),
    "torch.compile": ("torch", torch_compiled),
    "IREE": ("iree", iree),
}
