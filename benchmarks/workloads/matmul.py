"""Square f32 matrix products."""

from __future__ import annotations

import numpy as np
from harness.case import Case
from harness.onnx_peers import model_of, onnxruntime_case, openvino_case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work, products

TITLE = "Matrix product, f32"
KIND = "loop"
UNIT = "ms"
SIZES = {str(n): {"n": n} for n in (128, 256, 512, 1024, 2048)}
THREADS = (1, 2)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]


def arrays(n: int) -> Arrays:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((n, n)).astype(np.float32) for _ in range(2)]


def work(n: int) -> Work:
    return products((n, n, n))


def oracle(given: Arrays) -> Arrays:
    return [given[0].astype(np.float64) @ given[1].astype(np.float64)]


def nova_call(given: Arrays) -> Case:
    import nova

    x, y = (nova.tensor(a) for a in given)
    return Case(nova.compile(x @ y, inputs=[x, y]), given)


def numpy_call(given: Arrays) -> Case:
    return Case(np.matmul, given)


def torch_eager(given: Arrays) -> Case:
    return torch_case(lambda x, y: x @ y, given)


def jax_jit(given: Arrays) -> Case:
    return jax_case(lambda x, y: x @ y, given)


def iree(given: Arrays) -> Case:
    return iree_case(lambda x, y: x @ y, given)


def _onnx(given: Arrays) -> tuple[bytes, dict[str, np.ndarray]]:
    inputs = dict(zip("xy", given, strict=True))
    return model_of([("MatMul", "xy", "z")], inputs, "z"), inputs


def onnxruntime(given: Arrays) -> Case:
    return onnxruntime_case(*_onnx(given))


def openvino(given: Arrays) -> Case:
    return openvino_case(*_onnx(given))


# torch.compile calls the same library for a product on its own as torch does, a little later.
CONTENDERS = {
    "Nova": ("nova", nova_call),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "OpenVINO": ("openvino", openvino),
}
