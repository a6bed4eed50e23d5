"""Affine quantization against torch and onnxruntime's rules, 4-bit packing, integer products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova.errors import AttributeValueError, DTypeError, ShapeError

# torch means to replace its tensors of quantized numbers.
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
RANDOM = np.random.default_rng(5)
X = (RANDOM.standard_normal((6, 8)) * 3).astype(np.float32)
SCALES = (RANDOM.random(8) * 0.1 + 0.01).astype(np.float32)
POINTS = RANDOM.integers(-20, 20, 8).astype(np.int32)


def compiled(function, *arrays, target="cpu"):
    leaves = [nova.tensor(array) for array in arrays]
    options = {"run_mode": "sim"} if target.startswith("cuda") else {}
    program = nova.compile(function(*leaves), inputs=leaves, target=target, **options)
    return np.asarray(program.run(list(arrays)))


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize(
    ("name", "torch_type", "low", "high"),
    [
        ("i8", torch.qint8, -128, 127),
        ("u8", torch.quint8, 0, 255),
        ("i32", torch.qint32, None, None),
    ],
)
def test_per_tensor_as_torch(name, torch_type, low, high, target):
    scale, point = 0.05, 3
    theirs = torch.quantize_per_tensor(torch.from_numpy(X), scale, point, torch_type)
    ours = compiled(lambda x: nova.quantize(x, scale, point, dtype=name), X, target=target)
    # torch multiplies by the reciprocal of the scale: a tie may fall to the other side.
    assert np.abs(ours.astype(np.int64) - theirs.int_repr().numpy()).max() <= 1
    expected = np.rint(X / np.float32(scale)) + point
    if low is not None:
        expected = np.clip(expected, low, high)
    np.testing.assert_array_equal(ours, expected)
    back = compiled(lambda q: nova.dequantize_linear(q, scale, point), ours, target=target)
    np.testing.assert_array_equal(back, (ours.astype(np.float32) - point) * np.float32(scale))


def test_per_axis_as_torch():
    theirs = torch.quantize_per_channel(
        torch.from_numpy(X), torch.from_numpy(SCALES), torch.from_numpy(POINTS), 1, torch.qint8
    )
    ours = compiled(lambda x, s, z: nova.quantize(x, s, z, dtype="i8", axis=1), X, SCALES, POINTS)
    assert np.abs(ours.astype(int) - theirs.int_repr().numpy()).max() <= 1
    back = compiled(lambda q, s, z: nova.dequantize_linear(q, s, z, axis=-1), ours, SCALES, POINTS)
    np.testing.assert_array_equal(
        back, (ours.astype(np.float32) - POINTS.astype(np.float32)) * SCALES
    )


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2"])
def test_8_bit_floats_saturate(name):
    values = np.array([1e9, -1e9, 3.3, np.inf, np.nan], np.float32)
    actual = compiled(lambda x: nova.quantize(x, 2.0, dtype=name), values).astype(np.float32)
    type_ = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}[name]
    largest = float(ml_dtypes.finfo(type_).max)
    middle = float(np.float32(1.65).astype(type_))
    np.testing.assert_array_equal(actual, [largest, -largest, middle, largest, np.nan])
    back = nova.dequantize_linear(nova.tensor(actual.astype(type_)), 2.0, dtype="bf16")
    assert back.dtype is nova.bf16 and float(back.numpy()[2]) == 2 * middle


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("signed", [True, False])
def test_4_bit_integers_pack_two_in_a_byte(signed, target):
    low, high, name = (-8, 7, "i4") if signed else (0, 15, "u4")
    point = 0 if signed else 8
    codes = compiled(lambda x: nova.quantize(x, 0.5, point, dtype=name), X, target=target)
    np.testing.assert_array_equal(codes, np.clip(np.rint(X / 0.5) + point, low, high))
    packed = compiled(nova.pack_int4, codes, target=target)
    expected = (codes[:, ::2].astype(np.uint8) & 15) | (codes[:, 1::2].astype(np.uint8) << 4)
    np.testing.assert_array_equal(packed, expected)
    back = compiled(lambda x: nova.unpack_int4(x, signed=signed), packed, target=target)
    np.testing.assert_array_equal(back, codes)
    assert back.dtype == codes.dtype


def test_a_layer_with_packed_weights_reads_bytes():
    """x @ dequantize(unpack(w)).T with scales of rows: only the bytes are an argument."""
    weight = RANDOM.integers(-8, 8, (16, 32)).astype(np.int8)
    packed = nova.pack_int4(nova.tensor(weight)).numpy()
    scales = (RANDOM.random(16) + 0.5).astype(np.float32)
    x = RANDOM.standard_normal((4, 32)).astype(np.float32)

    def layer(x, packed, scales):
        return x @ nova.dequantize_linear(nova.unpack_int4(packed), scales, axis=0).T

    np.testing.assert_allclose(
        compiled(layer, x, packed, scales), x @ (weight * scales[:, None]).T, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("types", [("i1", "i1"), ("u1", "i1"), ("u1", "u1")])
def test_integer_products_sum_in_i32(types, target):
    a, b = (
        RANDOM.integers(*((-128, 128) if type_ == "i1" else (0, 256)), shape).astype(type_)
        for type_, shape in zip(types, ((9, 70), (70, 11)), strict=True)
    )
    actual = compiled(nova.wide_matmul, a, b, target=target)
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, a.astype(np.int32) @ b.astype(np.int32))
    if types == ("i1", "i1"):
        theirs = torch._int_mm(
            torch.from_numpy(np.pad(a, ((0, 23), (0, 2)))),
            torch.from_numpy(np.pad(b, ((0, 2), (0, 5)))),
        )
        np.testing.assert_array_equal(actual, theirs.numpy()[:9, :11])


@pytest.mark.parametrize("types", [("i1", "i1"), ("u1", "i1"), ("u1", "u1")])
@pytest.mark.parametrize("k", [1024, 4096, 1031])
def test_the_largest_integer_sums_are_exact(types, k):
    """k in parts, or without a divisor in integers; all products have the largest magnitude."""
    a, b = (
        np.full(shape, -128 if type_ == "i1" else 255).astype(type_)
        for type_, shape in zip(types, ((3, 2, k), (k, 4)), strict=True)
    )
    a[0, 0, ::2] += 1
    expected = a.astype(np.int32) @ b.astype(np.int32)
    np.testing.assert_array_equal(compiled(nova.wide_matmul, a, b), expected)
    np.testing.assert_array_equal(
        compiled(nova.wide_matmul, a[0, 0], b[:, 0].copy()), expected[0, 0, 0]
    )


def test_scaled_products_as_torch():
    a = torch.from_numpy(RANDOM.standard_normal((32, 64)).astype("f4")).to(torch.float8_e4m3fn)
    b = torch.from_numpy(RANDOM.standard_normal((48, 64)).astype("f4")).to(torch.float8_e4m3fn)
    scales = torch.tensor(0.3), torch.tensor(0.7)
    theirs = torch._scaled_mm(a, b.T, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.float32)
    arrays = [nova.tensor(x).numpy() for x in (a, b, *scales)]
    actual = compiled(lambda a, b, s, t: nova.scaled_matmul(a, b.T, s, t), *arrays)
    np.testing.assert_allclose(actual, theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_scales_of_rows_and_columns():
    a = RANDOM.standard_normal((3, 8)).astype(ml_dtypes.float8_e4m3fn)
    b = RANDOM.standard_normal((8, 5)).astype(ml_dtypes.float8_e5m2)
    rows, columns = np.arange(1, 4, dtype=np.float32), np.arange(1, 6, dtype=np.float32)
    bias = np.ones(5, np.float32)
    expected = (a.astype("f4") @ b.astype("f4")) * rows[:, None] * columns + 1
    for shapes in (((3,), (5,)), ((3, 1), (1, 5))):
        actual = compiled(
            lambda a, b, s, t, bias: nova.scaled_matmul(a, b, s, t, bias, out_dtype="bf16"),
            *(a, b, rows.reshape(shapes[0]), columns.reshape(shapes[1]), bias),
        )
        assert actual.dtype == ml_dtypes.bfloat16
        np.testing.assert_allclose(actual.astype("f4"), expected, rtol=1e-2, atol=1e-2)


def test_gradients_of_wide_products():
    a, b = (RANDOM.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 3)))
    gradient = nova.grad(
        lambda x: nova.wide_matmul(x.cast("bf16"), nova.tensor(b).cast("bf16")).sum()
    )
    short = torch.from_numpy(b).bfloat16().float()
    expected = short.sum(1).bfloat16().float().expand(4, 6)
    np.testing.assert_allclose(gradient(nova.tensor(a)).numpy(), expected.numpy(), rtol=1e-2)


def test_errors_name_the_operand():
    x, codes = nova.tensor(X), nova.tensor(np.zeros((2, 3), np.int8))
    with pytest.raises(DTypeError, match="dtype f32 is not one to quantize to"):
        nova.quantize(x, 1.0, dtype="f32")
    with pytest.raises(ShapeError, match=r"scale has shape \(3,\)"):
        nova.quantize(x, np.ones(3, np.float32))
    with pytest.raises(ShapeError, match="scale has 3 elements, axis 1 of x 8"):
        nova.quantize(x, np.ones(3, np.float32), axis=1)
    with pytest.raises(AttributeValueError, match="f8e4m3 has no zero point"):
        nova.quantize(x, 1.0, 3, dtype="f8e4m3")
    with pytest.raises(DTypeError, match="x is f32, not integers or 8-bit floats"):
        nova.dequantize_linear(x, 1.0)
    with pytest.raises(ShapeError, match="is odd"):
        nova.pack_int4(codes)
    with pytest.raises(DTypeError, match="unpack_int4: x is i8, not u8"):
        nova.unpack_int4(codes)
    with pytest.raises(DTypeError, match="one holds floats, the other integers"):
        nova.wide_matmul(x, nova.tensor(np.zeros((8, 2), np.int8)))
    with pytest.raises(DTypeError, match="does not hold sums of products of i8 and i8"):
        nova.wide_matmul(codes, codes.T, dtype="i8")
    with pytest.raises(ShapeError, match=r"scale_b has shape \(3,\)"):
        nova.scaled_matmul(x, x.T, 1.0, np.ones(3, np.float32))
    with pytest.raises(DTypeError, match="out_dtype must be a float"):
        nova.scaled_matmul(x, x.T, 1.0, 1.0, out_dtype="i32")


def test_i32_saturates():
    values = np.array([1e20, -1e20, 2.0**31, 5.0], np.float32)
    actual = compiled(lambda x: nova.quantize(x, 1.0, dtype="i32"), values)
    np.testing.assert_array_equal(actual, [2**31 - 1, -(2**31), 2**31 - 1, 5])


def test_differences_of_i32_do_not_wrap():
    """ONNX subtracts in floats, and its result is rounded once here."""
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    x = np.array([-(2**31), -(2**31) + 5, 0, 7, 2**31 - 1], np.int32)
    points = np.array([7, 2**31 - 1, -(2**31), 0, -(2**31)], np.int32)
    scales = np.full(5, 0.25, np.float32)
    node = onnx.helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=0)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            "graph",
            [
                onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT32, [5]),
                onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [5]),
                onnx.helper.make_tensor_value_info("z", onnx.TensorProto.INT32, [5]),
            ],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [5])],
        )
    )
    feed = {"x": x, "s": scales, "z": points}
    (theirs,) = ReferenceEvaluator(proto).run(None, feed)
    exact = ((x.astype(np.int64) - points) * 0.25).astype(np.float32)
    for target in ("cpu", "cuda:sm_90a"):
        ours = compiled(
            lambda x, s, z: nova.dequantize_linear(x, s, z, axis=0),
            *(x, scales, points),
            target=target,
        )
        np.testing.assert_array_equal(ours, exact)
    np.testing.assert_allclose(ours, theirs, rtol=2**-23)


def test_zero_points_of_i32_are_exact():
    x = np.array([0.0, 3.0, -1e20, 1e20, 2.0**31], np.float32)
    actual = compiled(lambda x: nova.quantize(x, 1.0, 2**31 - 8, dtype="i32"), x)
    low, high = -(2**31), 2**31 - 1
    np.testing.assert_array_equal(actual, [2**31 - 8, 2**31 - 5, low, high, high])


@pytest.mark.parametrize(
    ("dtype", "point", "bounds"),
    [
        ("i8", 128, "-128 to 127"),
        ("u8", -1, "0 to 255"),
        ("i4", 8, "-8 to 7"),
        ("i8", 0.5, "-128 to 127"),
        ("u8", np.array([0, 256, 3, 0, 0, 0, 0, 0]), "0 to 255"),
    ],
)
def test_zero_points_are_numbers_of_the_dtype(dtype, point, bounds):
    """torch clamps none of these and onnxruntime cannot be given them."""
    with pytest.raises(AttributeValueError, match=f"is not a number of {dtype}") as quantizing:
        nova.quantize(X, 0.1, point, dtype=dtype, axis=1)
    assert f"integers from {bounds}" in str(quantizing.value)
    assert "test_quantization.py" in str(quantizing.value)
    if dtype != "i4":
        codes = np.zeros(X.shape, "i1" if dtype == "i8" else "u1")
        with pytest.raises(AttributeValueError, match="dequantize_linear: zero_point"):
            nova.dequantize_linear(codes, 0.1, point, axis=1)
