"""A transformer block as in GPT-2, forward: width 768, 12 heads, 128 positions, one sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from harness.case import Case
from harness.onnx_peers import Node, model_of, onnxruntime_case, openvino_case
from harness.peers import iree_case, jax_case, torch_case
from harness.rates import Work, matmul_work

TITLE = "GPT-2 block forward, 128x768, 12 heads"
MODE = "loop"
UNIT = "ms"
SIZES: dict[str, dict[str, Any]] = {"": {}}
THREADS = (1, 2)
TOLERANCE = 1e-5

LENGTH, WIDTH, HEADS = 128, 768, 12
Arrays = list[np.ndarray]


def arrays() -> Arrays:
    """x; scale and shift, qkv, projection; scale and shift, up, down; each weight with a bias."""
    generator = np.random.default_rng(0)
    norm, d = [(WIDTH,), (WIDTH,)], WIDTH
    shapes = [(LENGTH, d), *norm, (d, 3 * d), (3 * d,), (d, d), (d,)]
    shapes += [*norm, (d, 4 * d), (4 * d,), (4 * d, d), (d,)]
    return [
        (generator.standard_normal(s) * (0.02 if len(s) == 2 and s[0] != LENGTH else 1)).astype(
            np.float32
        )
        for s in shapes
    ]


def work() -> Work:
    """The matmuls, and the two of attention; all heads together are one of full width."""
    d = WIDTH
    linear = [(LENGTH, d, n * d) for n in (3, 1, 4, 4)]
    return matmul_work(*linear, (LENGTH, d, LENGTH), (LENGTH, LENGTH, d))


def _block(ops: Any, x: Any, *p: Any) -> Any:
    """The block over the functions of one library: `ops` has norm, attend and gelu."""
    qkv = ops.norm(x, p[0], p[1]) @ p[2] + p[3]
    qkv = ops.heads(qkv.reshape((LENGTH, 3, HEADS, WIDTH // HEADS)))
    x = x + ops.merge(ops.attend(qkv[0], qkv[1], qkv[2])).reshape((LENGTH, WIDTH)) @ p[4] + p[5]
    return x + ops.gelu(ops.norm(x, p[6], p[7]) @ p[8] + p[9]) @ p[10] + p[11]


class _Numpy:
    def norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(
            x.var(-1, keepdims=True) + 1e-5
        ) * scale + shift

    def heads(self, x: Any) -> Any:
        return x.transpose(1, 2, 0, 3)

    def merge(self, x: Any) -> Any:
        return x.transpose(1, 0, 2)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


class _Nova:
    def __init__(self) -> None:
        import nova

        self.nova = nova

    def norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return self.nova.layer_norm(x, scale, shift)

    def heads(self, x: Any) -> Any:
        return x.permute((1, 2, 0, 3))

    def merge(self, x: Any) -> Any:
        return x.permute((1, 0, 2))

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return self.nova.scaled_dot_product_attention(q, k, v, causal=True)

    def gelu(self, x: Any) -> Any:
        return self.nova.gelu(x, approximate="tanh")


class _Torch:
    def __init__(self) -> None:
        import torch

        self.F = torch.nn.functional

    def norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return self.F.layer_norm(x, (WIDTH,), scale, shift)

    def heads(self, x: Any) -> Any:
        return x.permute(1, 2, 0, 3)

    def merge(self, x: Any) -> Any:
        return x.permute(1, 0, 2)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return self.F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def gelu(self, x: Any) -> Any:
        return self.F.gelu(x, approximate="tanh")


class _Jax:
    def __init__(self) -> None:
        import jax

        self.jax, self.jnp = jax, jax.numpy

    def norm(self, x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * self.jax.lax.rsqrt(variance + 1e-5) * scale + shift

    def heads(self, x: Any) -> Any:
        return x.transpose(1, 2, 0, 3)

    def merge(self, x: Any) -> Any:
        return x.transpose(1, 0, 2)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        mask = np.tril(np.ones((LENGTH, LENGTH), bool))
        return self.jax.nn.softmax(self.jnp.where(mask, scores, -np.inf)) @ v

    def gelu(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=True)


def oracle(data: Arrays) -> Arrays:
    return [_block(_Numpy(), *(a.astype(np.float64) for a in data))]


def nova_call(data: Arrays) -> Case:
    import nova

    tensors = [nova.tensor(a, name=f"p{i}") for i, a in enumerate(data)]
    return Case(nova.compile(_block(_Nova(), *tensors), inputs=tensors), data)


def nova_constant(data: Arrays) -> Case:
    """The weights are part of the program, as they are for onnxruntime and OpenVINO."""
    import nova

    x, *params = (nova.tensor(a) for a in data)
    return Case(nova.compile(_block(_Nova(), x, *params), inputs=[x]), data[:1])


def numpy_call(data: Arrays) -> Case:
    ops = _Numpy()
    return Case(lambda *args: _block(ops, *args), data)


def torch_eager(data: Arrays) -> Case:
    ops = _Torch()
    return torch_case(lambda *args: _block(ops, *args), data)


def torch_compiled(data: Arrays) -> Case:
    ops = _Torch()
    return torch_case(lambda *args: _block(ops, *args), data, compiled=True)


def jax_jit(data: Arrays) -> Case:
    ops = _Jax()
    return jax_case(lambda *args: _block(ops, *args), data)


def iree(data: Arrays) -> Case:
    ops = _Jax()
    return iree_case(lambda *args: _block(ops, *args), data)


def _onnx(data: Arrays) -> tuple[bytes, dict[str, np.ndarray]]:
    """The block with its weights as constants."""
    x, *params = data
    per_head = (LENGTH, HEADS, WIDTH // HEADS)
    constants = {f"p{i}": a for i, a in enumerate(params)} | {
        "heads": np.array(per_head, np.int64),
        "flat": np.array((LENGTH, WIDTH), np.int64),
        "scale": np.array(per_head[-1] ** -0.5, np.float32),
        "past": np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1),
    }
    norm = {"axis": -1, "epsilon": 1e-5}
    nodes: list[Node] = [
        ("LayerNormalization", ["x", "p0", "p1"], "norm1", norm),
        *_linear("norm1", "p2", "p3", "qkv"),
        ("Split", ["qkv"], "q k v", {"axis": -1, "num_outputs": 3}),
        *(("Reshape", [name, "heads"], f"{name}h") for name in "qkv"),
        ("Transpose", ["qh"], "qt", {"perm": [1, 0, 2]}),
        ("Transpose", ["kh"], "kt", {"perm": [1, 2, 0]}),
        ("Transpose", ["vh"], "vt", {"perm": [1, 0, 2]}),
        ("Mul", ["qt", "scale"], "qs"),
        ("MatMul", ["qs", "kt"], "scores"),
        ("Add", ["scores", "past"], "masked"),
        ("Softmax", ["masked"], "weights", {"axis": -1}),
        ("MatMul", ["weights", "vt"], "mixed"),
        ("Transpose", ["mixed"], "merged", {"perm": [1, 0, 2]}),
        ("Reshape", ["merged", "flat"], "attended"),
        *_linear("attended", "p4", "p5", "projected"),
        ("Add", ["x", "projected"], "middle"),
        ("LayerNormalization", ["middle", "p6", "p7"], "norm2", norm),
        *_linear("norm2", "p8", "p9", "up"),
        ("Gelu", ["up"], "hidden", {"approximate": "tanh"}),
        *_linear("hidden", "p10", "p11", "down"),
        ("Add", ["middle", "down"], "y"),
    ]
    return model_of(nodes, {"x": x}, "y", constants), {"x": x}


def _linear(x: str, weight: str, bias: str, result: str) -> list[Node]:
    product = f"{result}_product"
    return [("MatMul", [x, weight], product), ("Add", [product, bias], result)]


def onnxruntime(data: Arrays) -> Case:
    return onnxruntime_case(*_onnx(data))


def openvino(data: Arrays) -> Case:
    return openvino_case(*_onnx(data))


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "Nova, weights constant": ("nova", nova_constant),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "OpenVINO": ("openvino", openvino),
}
