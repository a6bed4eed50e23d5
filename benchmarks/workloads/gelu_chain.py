"""Elementwise work that fuses: gelu(a * b + c) in both forms, in memory and in caches.

Fresh outputs cost page faults that are several times the arithmetic; each peer is measured with
them, and in its own way to write over the result of the call before. Nova is called plainly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from harness.case import Case
from harness.onnx_peers import model_of, onnxruntime_case, openvino_case
from harness.peers import iree_case, jax_case, torch_case, torch_tensors
from harness.rates import Work

TITLE = "gelu(a * b + c)"
MODE = "loop"
UNIT = "ms"
SIZES = {
    "tanh, 16M": {"form": "tanh", "count": 1 << 24},
    "erf, 16M": {"form": "none", "count": 1 << 24},
    "tanh, 1M": {"form": "tanh", "count": 1 << 20},
}
THREADS = (1, 2)
TOLERANCE = 1e-5

Data = tuple[str, list[np.ndarray]]
"""The form of gelu by its name in torch, and a, b and c."""


def arrays(form: str, count: int) -> Data:
    generator = np.random.default_rng(0)
    return form, [generator.standard_normal(count, np.float32) for _ in range(3)]


def work(form: str, count: int) -> Work:
    """Three floats read and one written; data in caches has no such bound."""
    return Work(byte=4 * 4 * count)


def _by_hand(form: str, a: Any, b: Any, c: Any) -> Any:
    from scipy.special import erf

    x = a * b + c
    if form == "none":
        return 0.5 * x * (1 + erf(x * np.sqrt(0.5, dtype=x.dtype)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def oracle(data: Data) -> list[np.ndarray]:
    form, inputs = data
    return [_by_hand(form, *(a.astype(np.float64) for a in inputs))]


def _nova_program(data: Data) -> Any:
    import nova

    form, inputs = data
    a, b, c = (nova.tensor(array) for array in inputs)
    return nova.compile(nova.gelu(a * b + c, approximate=form), inputs=[a, b, c])


def nova_call(data: Data) -> Case:
    return Case(_nova_program(data), data[1])


def nova_out(data: Data) -> Case:
    return Case(_nova_program(data), data[1], {"out": np.empty_like(data[1][0])})


def numpy_call(data: Data) -> Case:
    form, inputs = data
    return Case(lambda *args: _by_hand(form, *args), inputs)


def _torch(form: str) -> Any:
    import torch

    return lambda a, b, c: torch.nn.functional.gelu(a * b + c, approximate=form)


def torch_eager(data: Data) -> Case:
    return torch_case(_torch(data[0]), data[1])


def torch_out(data: Data) -> Case:
    import torch

    form, inputs = data
    a, b, c = torch_tensors(inputs)
    out = torch.empty_like(a)

    def call() -> Any:
        torch.addcmul(c, a, b, out=out)
        return torch.ops.aten.gelu.out(out, approximate=form, out=out)

    return Case(call, read=lambda result: [result.numpy().copy()])


def torch_compiled(data: Data) -> Case:
    return torch_case(_torch(data[0]), data[1], compiled=True)


def torch_compiled_out(data: Data) -> Case:
    import torch

    gelu = _torch(data[0])
    *inputs, out = torch_tensors([*data[1], np.empty_like(data[1][0])])
    compiled = torch.compile(lambda out, *args: out.copy_(gelu(*args)))
    return Case(compiled, [out, *inputs], read=lambda result: [result.numpy().copy()])


def _jax(form: str) -> Any:
    import jax

    return lambda a, b, c: jax.nn.gelu(a * b + c, approximate=form == "tanh")


def jax_jit(data: Data) -> Case:
    return jax_case(_jax(data[0]), data[1])


def jax_reused(data: Data) -> Case:
    return jax_case(_jax(data[0]), data[1], reused=True)


def iree(data: Data) -> Case:
    return iree_case(_jax(data[0]), data[1])


def _onnx(data: Data) -> tuple[bytes, dict[str, np.ndarray]]:
    form, (a, b, c) = data
    inputs = {"a": a, "b": b, "c": c}
    nodes = [("Mul", "ab", "m"), ("Add", "mc", "s"), ("Gelu", "s", "y", {"approximate": form})]
    return model_of(nodes, inputs, "y"), inputs


def onnxruntime(data: Data) -> Case:
    return onnxruntime_case(*_onnx(data))


def onnxruntime_reused(data: Data) -> Case:
    return onnxruntime_case(*_onnx(data), reused=True)


def openvino(data: Data) -> Case:
    return openvino_case(*_onnx(data))


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "Nova, out=": ("nova", nova_out),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "torch, out=": ("torch", torch_out),
    "torch.compile": ("torch", torch_compiled),
    "torch.compile, into an output": ("torch", torch_compiled_out),
    "jax.jit": ("jax", jax_jit),
    "jax.jit, output donated": ("jax", jax_reused),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "onnxruntime, output bound": ("onnxruntime", onnxruntime_reused),
    "OpenVINO, output reused": ("openvino", openvino),
}
