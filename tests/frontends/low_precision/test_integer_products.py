"""Integer matmuls and convolutions of jax, StableHLO, torch and ONNX, bit for bit against them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import nova

RANDOM = np.random.default_rng(3)


def integers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Random numbers of the whole range, with both extremes."""
    info = np.iinfo(dtype)
    values = RANDOM.integers(info.min, info.max, shape, endpoint=True, dtype=dtype)
    values.flat[0], values.flat[-1] = info.min, info.max
    return values


def dot(x: Any, y: Any, lhs: int = 1, rhs: int = 0) -> Any:
    numbers = (((lhs,), (rhs,)), ((), ()))
    return lax.dot_general(x, y, numbers, preferred_element_type=jnp.int32)


def batched(x: Any, y: Any) -> Any:
    return lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), preferred_element_type=jnp.int32)


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (2, 1), "SAME", preferred_element_type=jnp.int32)


S8, U8 = integers((48, 70), np.int8), integers((48, 70), np.uint8)
OTHER = integers((70, 40), np.int8)
JAX: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "i8": (dot, (S8, OTHER)),
    "u8": (dot, (U8, U8.T.copy())),
    "transposed": (functools.partial(dot, lhs=0, rhs=0), (S8, S8)),
    "casts": (lambda x, y: x.astype(jnp.int32) @ y.astype(jnp.int32), (U8, OTHER)),
    "casts_of_transposes": (lambda x: x.astype(jnp.int32) @ x.astype(jnp.int32).T, (U8,)),
    "shifted": (lambda x, y: (x.astype(jnp.int32) - 3) @ (y.astype(jnp.int32) + 5), (U8, OTHER)),
    "vector": (dot, (S8, OTHER[:, 0].copy())),
    "i32_wraps": (jnp.matmul, (integers((33, 50), np.int32), integers((50, 34), np.int32))),
    "i16": (dot, (integers((33, 50), np.int16), integers((50, 34), np.int16))),
    "batched": (batched, (integers((3, 32, 20), np.int8), integers((3, 20, 33), np.int8))),
    "convolution": (conv, (integers((2, 8, 9, 10), np.int8), integers((16, 8, 3, 3), np.int8))),
    "epilogue": (lambda x, y: dot(x, y).astype(jnp.float32) * 0.25 + 1, (S8, OTHER)),
}


@pytest.mark.parametrize("name", JAX)
def test_programs_of_jax(name: str) -> None:
    function, arrays = JAX[name]
    actual = np.asarray(nova.from_jax(function, *arrays)(*arrays))
    expected = np.asarray(jax.jit(function)(*arrays))
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("left", "right"), [("ui8", "i8"), ("i8", "ui8"), ("ui8", "ui8"), ("ui16", "i8")]
)
def test_stablehlo_extends_each_operand_by_its_sign(left: str, right: str) -> None:
    text = f"""
    func.func @main(%x: tensor<33x40x{left}>, %y: tensor<35x40x{right}>) -> tensor<33x35xi32> {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [1]
          : (tensor<33x40x{left}>, tensor<35x40x{right}>) -> tensor<33x35xi32>
      return %0 : tensor<33x35xi32>
    }}
    """
    names = {"i8": np.int8, "ui8": np.uint8, "ui16": np.uint16}
    x, y = integers((33, 40), names[left]), integers((35, 40), names[right])
    expected = (x.astype(np.int64) @ y.astype(np.int64).T).astype(np.int32)
    np.testing.assert_array_equal(nova.translate(text).load()(x, y), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_unsigned_products_in_floats(dtype: type) -> None:
    x, y = integers((5, 7), dtype), integers((7, 9), dtype)
    function = jax.jit(lambda x, y: lax.dot(x, y, preferred_element_type="f4"))
    np.testing.assert_allclose(nova.from_jax(function, x, y)(x, y), function(x, y), rtol=1e-6)


# --- torch --------------------------------------------------------------------------------------


class IntegerLinear(torch.nn.Module):
    """A linear layer of bytes: weights by rows, a scale for each output."""

    def forward(self, x: Any, weight: Any, scales: Any) -> Any:
        return torch._int_mm(x, weight.t()).float() * scales + 1.0


def test_a_quantized_linear_layer_of_torch() -> None:
    x, weight = (torch.from_numpy(integers(s, np.int8)) for s in ((33, 64), (48, 64)))
    operands = (x, weight, torch.rand(48))
    layer = IntegerLinear()
    actual = np.asarray(nova.from_torch(layer, *operands)(*operands))
    np.testing.assert_allclose(actual, layer(*operands).numpy(), rtol=1e-6)


# --- ONNX ---------------------------------------------------------------------------------------


def onnx_node(op: str, feed: dict[str, np.ndarray], constant: bool, **attrs: Any) -> np.ndarray:
    """The result of a node, by Nova and by ONNX's own evaluator, which agree in every bit.

    All inputs but the first are constants of the model if `constant`. onnxruntime is no reference:
    on CPUs without VNNI it saturates sums of two products to 16 bits.
    """
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    first = next(iter(feed))
    inputs = {n: a for n, a in feed.items() if n == first or not constant}
    element = onnx.helper.np_dtype_to_tensor_dtype
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, list(feed), ["out"], **attrs)],
        "graph",
        [
            onnx.helper.make_tensor_value_info(n, element(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [onnx.helper.make_empty_tensor_value_info("out")],
        [onnx.numpy_helper.from_array(a, n) for n, a in feed.items() if n not in inputs],
    )
    is_quantized = op.startswith("QLinear")
    graph.output[0].type.tensor_type.elem_type = element(
        feed["op"].dtype if is_quantized else np.dtype("i4")
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model.ir_version = 10
    (expected,) = reference.ReferenceEvaluator(model).run(None, inputs)
    (actual,) = nova.from_onnx(model).run(**inputs)
    assert actual.dtype == expected.dtype
    if is_quantized:
        # The reference scales in f32 by another order: a tie may fall to the other side.
        assert np.abs(actual.astype(int) - expected).max() <= 1
    else:
        np.testing.assert_array_equal(actual, expected)
    return np.asarray(actual)


POINT_CASES = {
    "none": {},
    "both": {"xp": np.uint8(7), "yp": np.int8(-3)},
    "zeros": {"xp": np.uint8(0), "yp": np.int8(0)},
    "columns": {"xp": np.uint8(255), "yp": integers((40,), np.int8)},
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("points", POINT_CASES)
def test_matmul_integer_of_onnx(points: str, constant: bool) -> None:
    extra = {n: np.asarray(p) for n, p in POINT_CASES[points].items()}
    onnx_node("MatMulInteger", {"x": U8, "y": OTHER, **extra}, constant)


def test_matmul_integer_of_batches() -> None:
    x, y = integers((2, 3, 9, 20), np.uint8), integers((3, 20, 11), np.uint8)
    onnx_node("MatMulInteger", {"x": x, "y": y, "xp": np.asarray(np.uint8(9))}, False)


def test_qlinear_matmul_of_onnx() -> None:
    feed = {
        "x": U8,
        "xs": np.float32(0.01),
        "xp": np.uint8(120),
        "y": OTHER,
        "ys": np.float32(0.02),
        "yp": np.int8(3),
        "os": np.float32(1.5),
        "op": np.uint8(100),
    }
    onnx_node("QLinearMatMul", {n: np.asarray(a) for n, a in feed.items()}, True)


@pytest.mark.parametrize("point", [0, 13])
@pytest.mark.parametrize(
    "attrs",
    [
        {"pads": [1, 1, 1, 1]},
        {"strides": [2, 1], "dilations": [1, 2], "pads": [0, 2, 1, 1]},
        {"group": 2, "pads": [1, 0, 1, 0]},
        {"group": 8},
    ],
)
def test_conv_integer_of_onnx(attrs: dict[str, Any], point: int) -> None:
    x = integers((2, 8, 9, 10), np.uint8)
    w = integers((16, 8 // attrs.get("group", 1), 3, 3), np.uint8)
    feed = {"x": x, "w": w, "xp": np.asarray(np.uint8(point)), "wp": np.asarray(np.uint8(128))}
    onnx_node("ConvInteger", feed, True, **attrs)


def test_qlinear_conv_of_onnx() -> None:
    feed = {
        "x": integers((1, 8, 9, 10), np.uint8),
        "xs": np.float32(0.01),
        "xp": np.uint8(120),
        "w": integers((16, 8, 3, 3), np.int8),
        "ws": RANDOM.random(16).astype(np.float32) * 0.01,
        "wp": np.zeros(16, np.int8),
        "os": np.float32(0.3),
        "op": np.uint8(100),
        "bias": integers((16,), np.int16).astype(np.int32),
    }
    onnx_node("QLinearConv", {n: np.asarray(a) for n, a in feed.items()}, True, pads=[1, 1, 1, 1])
