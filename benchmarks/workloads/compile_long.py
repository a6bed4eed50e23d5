"""`sin(x) * 1.01` repeated 500, 1,000 and 2,000 times, compiled cold, to the first result.

Each time in a new process. The phases are those of `compile_cold`. A compiler whose time is linear
takes twice as long for twice the length; jax.jit compiles the same chains.
"""

import functools
import time

TITLE = "Compile of long chains of elementwise ops, cold"
MODE = "fresh"
KEEP_CACHES = False
UNIT = "ms"
SLOW = ("Nova, 2000", "jax.jit, 2000")
STARTS = 3
LENGTHS = (500, 1000, 2000)

now = time.perf_counter


def timed_import(*names):
    """Seconds to import modules. Names, so that this file imports nothing itself."""
    start = now()
    for name in names:
        __import__(name)
    return now() - start


def check(result, length):
    """The result against the chain in f64."""
    import numpy as np

    expected = np.linspace(0, 1, 4096)
    for _ in range(length):
        expected = np.sin(expected) * 1.01
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-3)


def nova(length):
    phases = {"import": timed_import("nova"), "compiler": timed_import("nova.compiler.driver")}
    import numpy as np

    import nova

    data = np.linspace(0, 1, 4096, dtype=np.float32)
    start = now()
    x = y = nova.tensor(data, name="x")
    for _ in range(length):
        y = nova.sin(y) * 1.01
    program = nova.compile(y, inputs=[x])
    result = program.run([data])
    phases["compile"] = now() - start
    assert program.origin == "compiled", program.origin
    check(result, length)
    return phases


def jax_jit(length):
    phases = {"import": timed_import("jax")}
    import jax
    import numpy as np

    start = now()
    jax.devices()  # starts the backend
    phases["compiler"] = now() - start

    def chain(x):
        for _ in range(length):
            x = jax.numpy.sin(x) * 1.01
        return x

    data = np.linspace(0, 1, 4096, dtype=np.float32)
    start = now()
    result = jax.block_until_ready(jax.jit(chain)(data))
    phases["compile"] = now() - start
    check(result, length)
    return phases


CONTENDERS = {
    f"{name}, {length}": (library, functools.partial(run, length))
    for length in LENGTHS
    for name, library, run in (("Nova", "nova", nova), ("jax.jit", "jax", jax_jit))
}
