"""Products with weights that never change, so that packing them may be done once, at load.

Nova's way to say so is `nova_constant`; the peers that can, get the weights as constants of their
model and prepare them when it is loaded, the others get them as an argument.
"""

from __future__ import annotations

import numpy as np
from harness.case import Case
from harness.onnx_peers import model_of, onnxruntime_case, openvino_case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work, matmul_work

from workloads.matmul import nova_call, numpy_call, oracle, torch_eager

TITLE = "Matmul with constant weights, f32"
MODE = "loop"
UNIT = "ms"
SIZES = {
    f"{m}x{k}x{n}": {"shape": (m, k, n)}
    for m, k, n in ((64, 784, 512), (64, 512, 512), (512, 256, 1024))
}
THREADS = (1, 2)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]

__all__ = ["oracle"]


def arrays(shape: tuple[int, int, int]) -> Arrays:
    """x and the weights (in, out)."""
    generator = np.random.default_rng(0)
    m, k, n = shape
    return [generator.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n))]


def work(shape: tuple[int, int, int]) -> Work:
    return matmul_work(shape)


def nova_constant(data: Arrays) -> Case:
    """The weights are part of the program."""
    import nova

    x = nova.tensor(data[0])
    return Case(nova.compile(x @ nova.tensor(data[1]), inputs=[x]), data[:1])


def torch_prepacked(data: Arrays) -> Case:
    """oneDNN's own layout of the weights, as torch's frozen models have."""
    import torch

    rows = len(data[0])
    weights = torch.tensor(data[1]).T.contiguous()
    packed = torch.ops.mkldnn._reorder_linear_weight(weights, rows)
    linear = torch.ops.mkldnn._linear_pointwise
    return torch_case(lambda x: linear(x, packed, None, "none", [], ""), data[:1])


def jax_jit(data: Arrays) -> Case:
    weights = data[1]
    return jax_case(lambda x: x @ weights, data[:1])


def iree(data: Arrays) -> Case:
    weights = data[1]
    return iree_case(lambda x: x @ weights, data[:1])


def _onnx(data: Arrays) -> tuple[bytes, dict[str, np.ndarray]]:
    x, weights = data
    return model_of([("MatMul", "xw", "y")], {"x": x}, "y", {"w": weights}), {"x": x}


def onnxruntime(data: Arrays) -> Case:
    return onnxruntime_case(*_onnx(data))


def openvino(data: Arrays) -> Case:
    return openvino_case(*_onnx(data))


CONTENDERS = {
    "Nova, weights constant": ("nova", nova_constant),
    "Nova, weights as an argument": ("nova", nova_call),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "torch, weights prepacked": ("torch", torch_prepacked),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "OpenVINO": ("openvino", openvino),
}
