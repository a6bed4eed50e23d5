"""Square f32 matmuls."""

from __future__ import annotations

import numpy as np
from harness.case import Case
from harness.onnx_peers import model_of, onnxruntime_case, openvino_case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work, matmul_work

TITLE = "Matmul, f32"
MODE = "loop"
UNIT = "ms"
SIZES = {str(n): {"n": n} for n in (128, 256, 512, 1024, 2048)}
THREADS = (1, 2)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]


def arrays(n: int) -> Arrays:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((n, n)).astype(np.float32) for _ in range(2)]


def work(n: int) -> Work:
    return matmul_work((n, n, n))


def oracle(data: Arrays) -> Arrays:
    return [data[0].astype(np.float64) @ data[1].astype(np.float64)]


def nova_call(data: Arrays) -> Case:
    import nova

    x, y = (nova.tensor(a) for a in data)
    return Case(nova.compile(x @ y, inputs=[x, y]), data)


def numpy_call(data: Arrays) -> Case:
    return Case(np.matmul, data)


def torch_eager(data: Arrays) -> Case:
    return torch_case(lambda x, y: x @ y, data)


def jax_jit(data: Arrays) -> Case:
    return jax_case(lambda x, y: x @ y, data)


def iree(data: Arrays) -> Case:
    return iree_case(lambda x, y: x @ y, data)


def _onnx(data: Arrays) -> tuple[bytes, dict[str, np.ndarray]]:
    inputs = dict(zip("xy", data, strict=True))
    return model_of([("MatMul", "xy", "z")], inputs, "z"), inputs


def onnxruntime(data: Arrays) -> Case:
    return onnxruntime_case(*_onnx(data))


def openvino(data: Arrays) -> Case:
    return openvino_case(*_onnx(data))


# torch.compile calls the same library for a single matmul as torch does.
CONTENDERS = {
    "Nova": ("nova", nova_call),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "OpenVINO": ("openvino", openvino),
}
