"""A trained MLP from its file to the first result, each time in a new process.

The filling round compiles and writes the files, weights inside; the others load one and run it
once. `import` is the library, `load` from the path to the result.
"""

import os
import sys
import time

TITLE = "A saved MLP, 8x64 to 128 to 10, from its file to the first result"
MODE = "fresh"
KEEP_CACHES = True
UNIT = "ms"
SLOW = ()
TOLERANCE = 1e-5

now = time.perf_counter


def arrays():
    """x, w1, b1, w2, b2."""
    import numpy as np

    generator = np.random.default_rng(0)
    shapes = [(8, 64), (64, 128), (128,), (128, 10), (10,)]
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


def measure(library, suffix, write, load):
    """Phases of one process: `write(path, arrays)` makes the file, `load(path, x)` runs it."""
    start = now()
    __import__(library)
    phases = {"import": now() - start}
    from pathlib import Path

    path = str(Path(os.environ["NOVA_CACHE_DIR"]).parent / f"mlp{suffix}")
    data = arrays()
    if "BENCH_FILLING" in os.environ:
        write(path, data)
    start = now()
    result = load(path, data[0])
    phases["load"] = now() - start
    check(result, data)
    return phases


def check(result, data):
    import numpy as np
    from harness.case import read_all, worst_error

    x, w1, b1, w2, b2 = (a.astype(np.float64) for a in data)
    worst_error(read_all(result), [np.maximum(x @ w1 + b1, 0) @ w2 + b2], TOLERANCE)


# --- Nova -----------------------------------------------------------------------------------------


def write_nova(path, data):
    import nova

    x, *params = data
    X = nova.tensor(x, name="x")
    names = ("w1", "b1", "w2", "b2")
    w1, b1, w2, b2 = leaves = [nova.tensor(a, name=n) for a, n in zip(params, names, strict=True)]
    y = nova.relu(X @ w1 + b1) @ w2 + b2
    nova.compile(y, inputs=[X], params=leaves).save(path, weights="embed")


def load_nova(path, x):
    import nova

    return nova.load(path).forward(x)


def nova():
    phases = measure("nova", ".nova", write_nova, load_nova)
    loaded = {"torch_mlir", "llvmlite"} & set(sys.modules)
    assert "BENCH_FILLING" in os.environ or not loaded, f"loaded without need: {loaded}"
    return phases


# --- peers ----------------------------------------------------------------------------------------


def write_torch(path, data):
    import torch

    x, w1, b1, w2, b2 = map(torch.tensor, data)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.b1 = torch.nn.Parameter(w1), torch.nn.Parameter(b1)
            self.w2, self.b2 = torch.nn.Parameter(w2), torch.nn.Parameter(b2)

        def forward(self, x):
            return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2

    torch.jit.freeze(torch.jit.trace(Model().eval(), x)).save(path)


def load_torch(path, x):
    import torch

    with torch.inference_mode():
        return torch.jit.load(path)(torch.from_numpy(x))


def write_onnx(path, data):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    x, *params = data
    names = ("w1", "b1", "w2", "b2")
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["z"]),
        helper.make_node("Relu", ["z"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [x.shape[0], 10])],
        [numpy_helper.from_array(a, n) for a, n in zip(params, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, path)


def load_onnx(path, x):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


def write_iree(path, data):
    import iree.compiler.tools as compiler
    import jax
    import numpy as np

    x, w1, b1, w2, b2 = data

    def mlp(x):
        return jax.numpy.maximum(x @ w1 + b1, 0) @ w2 + b2

    binary = compiler.compile_str(
        jax.jit(mlp).lower(np.asarray(x)).as_text(),
        input_type="stablehlo",
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O2"],
    )
    with open(path, "wb") as file:
        file.write(binary)


def load_iree(path, x):
    import iree.runtime as runtime

    return runtime.load_vm_flatbuffer_file(path, driver="local-sync").main(x).to_host()


CONTENDERS = {
    "Nova": ("nova", nova),
    "onnxruntime": (
        "onnxruntime",
        lambda: measure("onnxruntime", ".onnx", write_onnx, load_onnx),
    ),
    "torch.jit.load": ("torch", lambda: measure("torch", ".pt", write_torch, load_torch)),
    "IREE": ("iree", lambda: measure("iree.runtime", ".vmfb", write_iree, load_iree)),
}
