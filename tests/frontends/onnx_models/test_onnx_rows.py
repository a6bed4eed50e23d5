"""Rows that ONNX's node tests do not have, against the reference evaluator of ONNX and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import nova
from nova import errors

RNG = np.random.default_rng(11)
ML = "ai.onnx.ml"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def model(
    nodes: list[Any], feed: dict[str, np.ndarray], outputs: list[str], opset: int = 21
) -> Any:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    graph = helper.make_graph(
        nodes, "graph", inputs, [helper.make_empty_tensor_value_info(n) for n in outputs]
    )
    versions = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=versions)


def check(nodes: list[Any], outputs: list[str], opset: int = 21, **feed: np.ndarray) -> None:
    proto = model(nodes, feed, outputs, opset)
    results = nova.from_onnx(proto).run(**feed)
    for result, expected in zip(results, ReferenceEvaluator(proto).run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def node(op: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def test_global_lp_pool() -> None:
    x = floats(2, 3, 4, 5)
    proto = model([node("GlobalLpPool", "x", p=3)], {"x": x}, ["y"])
    expected = (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(nova.from_onnx(proto)(x), expected, rtol=1e-4)


def test_sequences_inside_of_a_graph() -> None:
    nodes = [
        node("SequenceConstruct", "a", "b", outputs=("s",)),
        node("SequenceInsert", "s", "a", outputs=("t",)),
        node("Constant", outputs=("zero",), value_int=0),
        node("SequenceErase", "t", "zero", outputs=("u",)),
        node("SequenceAt", "u", "zero", outputs=("first",)),
        node("ConcatFromSequence", "u", outputs=("joined",), axis=1),
        node("ConcatFromSequence", "u", outputs=("stacked",), axis=0, new_axis=1),
        node("SequenceLength", "u", outputs=("count",)),
    ]
    check(nodes, ["first", "joined", "stacked", "count"], a=floats(2, 3), b=floats(2, 3))


def test_optionals_inside_of_a_graph() -> None:
    nodes = [
        node("Optional", "x", outputs=("o",)),
        node("OptionalHasElement", "o", outputs=("has",)),
        node("OptionalGetElement", "o", outputs=("y",)),
    ]
    x = floats(3)
    has, y = nova.from_onnx(model(nodes, {"x": x}, ["has", "y"]))(x)
    assert has.item() is True
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_random_numbers_have_the_moments_that_the_node_says(op: str) -> None:
    shape = (100, 100)
    attrs = {"mean": 3.0, "scale": 2.0} if op == "RandomNormal" else {"low": 1.0, "high": 5.0}
    x = np.zeros(shape, "f4")
    nodes = [
        node(op, outputs=("a",), shape=shape, seed=1.0, **attrs),
        node(f"{op}Like", "x", outputs=("b",), **attrs),
    ]
    a, b = nova.from_onnx(model(nodes, {"x": x}, ["a", "b"]))(x)
    deviation = 2.0 if op == "RandomNormal" else 4 / np.sqrt(12)
    for values in (a, b):
        assert values.shape == shape and values.dtype == np.float32
        assert abs(values.mean() - 3.0) < 0.1 and abs(values.std() - deviation) < 0.1
    assert not np.array_equal(a, b)


def test_multinomial_draws_by_weight() -> None:
    logits = np.log(np.array([[0.7, 0.2, 0.1]], "f4"))
    nodes = [node("Multinomial", "x", sample_size=4000, seed=2.0)]
    draws = nova.from_onnx(model(nodes, {"x": logits}, ["y"]))(logits)
    assert draws.shape == (1, 4000) and draws.dtype == np.int32
    shares = np.bincount(draws[0], minlength=3) / 4000
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.04)


def test_dropout_in_training_scales_what_stays() -> None:
    nodes = [
        node("Constant", outputs=("ratio",), value_float=0.25),
        node("Constant", outputs=("on",), value=numpy_helper.from_array(np.array(True))),
        node("Dropout", "x", "ratio", "on", outputs=("y", "mask"), seed=7),
    ]
    x = np.ones((50, 50), "f4")
    y, mask = nova.from_onnx(model(nodes, {"x": x}, ["y", "mask"]))(x)
    np.testing.assert_allclose(y, mask / 0.75, rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.05


ML_NODES = {
    "Scaler": {"offset": [0.5, -0.5, 1.0], "scale": [2.0, 3.0, 0.5]},
    "Normalizer": {"norm": "L2"},
    "Imputer": {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": 0.0},
    "LinearRegressor": {
        "coefficients": [1.0, 2.0, 3.0] * 2,
        "intercepts": [0.1, 0.2],
        "targets": 2,
    },
    "FeatureVectorizer": {"inputdimensions": [3]},
}


@pytest.mark.parametrize("op", ML_NODES)
def test_rows_of_classical_models(op: str) -> None:
    x = floats(4, 3)
    x[0, 1] = 0.0
    check([node(op, "x", domain=ML, **ML_NODES[op])], ["y"], x=x)


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifier(transform: str) -> None:
    attrs = {"coefficients": list(map(float, range(9))), "intercepts": [0.1, 0.2, -3.0]}
    attrs |= {"classlabels_ints": [3, 5, 9], "post_transform": transform}
    nodes = [node("LinearClassifier", "x", outputs=("label", "scores"), domain=ML, **attrs)]
    check(nodes, ["label", "scores"], x=floats(4, 3))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_svm_regressor(kernel: str) -> None:
    vectors = floats(5, 3)
    attrs = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0], "n_supports": 5}
    attrs |= {"coefficients": floats(5).tolist(), "rho": [0.4]}
    attrs |= {"support_vectors": vectors.reshape(-1).tolist()}
    check([node("SVMRegressor", "x", domain=ML, **attrs)], ["y"], x=floats(4, 3))


def test_encoders() -> None:
    x = np.array([2, 7, 4, 2])
    nodes = [
        node(
            "LabelEncoder",
            "x",
            outputs=("a",),
            domain=ML,
            keys_int64s=[2, 4],
            values_floats=[0.5, 1.5],
            default_float=-1.0,
        ),
        node("OneHotEncoder", "x", outputs=("b",), domain=ML, cats_int64s=[4, 2], zeros=1),
    ]
    check(nodes, ["a", "b"], x=x)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers(op: str, direction: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    count, gates = (2 if direction == "bidirectional" else 1), {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    feed = {
        "x": floats(5, 2, 3),
        "w": floats(count, gates * 4, 3),
        "r": floats(count, gates * 4, 4),
    }
    feed |= {"b": floats(count, 2 * gates * 4), "lengths": np.array([5, 3], "i4")}
    feed |= {"h": floats(count, 2, 4)}
    names = ("y", "last", "cell")[: 3 if op == "LSTM" else 2]
    extra = {"linear_before_reset": 1} if op == "GRU" else {}
    inputs = ["x", "w", "r", "b", "lengths", "h"]
    if op == "LSTM":
        feed["c"] = floats(count, 2, 4)
        inputs.append("c")
    layer = node(op, *inputs, outputs=names, hidden_size=4, direction=direction, **extra)
    proto = model([layer], feed, list(names))
    # onnxruntime wants typed outputs.
    for output in proto.graph.output:
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    proto.ir_version = 10
    del proto.opset_import[1:]
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = nova.from_onnx(proto).run(**feed)
    for result, expected in zip(results, session.run(None, feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "nodes, message",
    [
        ([node("Concat", "x", "x", axis=7)], "axis 7 of a tensor of rank 2"),
        ([node("Concat", "x", "x")], "Concat needs the attribute 'axis'"),
        ([node("Add", "x")], "Add needs input 1"),
        ([node("Softmax", "x", axis="a")], "attribute 'axis' of Softmax is 'a'"),
        ([node("Identity", "other")], "'other' is used before it is computed"),
        ([node("BitShift", "x", "x", direction="UP")], "direction is 'UP'"),
        ([node("Resize", "x", mode="odd")], "Resize"),
    ],
)
def test_malformed_nodes_name_themselves(nodes: list[Any], message: str) -> None:
    proto = model(nodes, {"x": floats(2, 3)}, ["y"])
    with pytest.raises(errors.OnnxError, match=message) as caught:
        nova.from_onnx(proto).graph.results()
    assert f"({nodes[0].op_type})" in str(caught.value)


@pytest.mark.parametrize("channels", [3, 40])
def test_integer_convolutions_are_exact(channels: int) -> None:
    """The extreme codes: sums of 360 products need more bits than f32 has."""
    x = np.where(RNG.random((1, channels, 5, 5)) < 0.5, 0, 255).astype("u1")
    w = np.where(RNG.random((2, channels, 3, 3)) < 0.9, 127, -128).astype("i1")
    proto = model([node("ConvInteger", "x", "w", pads=[1, 1, 1, 1])], {"x": x, "w": w}, ["y"])
    padded = np.pad(x.astype("i8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w.astype("i8")).astype("i4")
    np.testing.assert_array_equal(nova.from_onnx(proto)(x, w), expected)


def test_plain_attention_is_the_fused_op() -> None:
    q, k, v = floats(1, 2, 6, 8), floats(1, 2, 6, 8), floats(1, 2, 6, 8)
    proto = model(
        [node("Attention", "q", "k", "v", is_causal=1)], {"q": q, "k": k, "v": v}, ["y"], 24
    )
    program = nova.from_onnx(proto)
    [out] = program.graph.results()
    assert out.op is not None and out.op.name == "scaled_dot_product_attention"
    [expected] = ReferenceEvaluator(proto).run(None, {"q": q, "k": k, "v": v})
    np.testing.assert_allclose(program(q, k, v), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["QDQ", "QLinear"])
def test_a_quantized_layer_is_that_of_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = floats(4, 16)
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(120),
        "w": RNG.integers(-128, 127, (16, 8)).astype("i1"),
        "ws": np.float32(0.02),
        "wz": np.int8(0),
        "os": np.float32(0.1),
        "oz": np.uint8(100),
    }
    nodes = [node("QuantizeLinear", "x", "s", "z", outputs=("q",))]
    if name == "QDQ":
        nodes += [
            node("DequantizeLinear", "q", "s", "z", outputs=("a",)),
            node("DequantizeLinear", "w", "ws", "wz", outputs=("b",)),
            node("MatMul", "a", "b", outputs=("c",)),
            node("QuantizeLinear", "c", "os", "oz", outputs=("d",)),
        ]
    else:
        inputs = ("q", "s", "z", "w", "ws", "wz", "os", "oz")
        nodes += [node("QLinearMatMul", *inputs, outputs=("d",))]
    nodes += [node("DequantizeLinear", "d", "os", "oz")]
    proto = model(nodes, {"x": x}, ["y"])
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    proto.ir_version = 10
    del proto.opset_import[1:]
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    # One step of the output: sums are rounded at other places.
    np.testing.assert_allclose(
        nova.from_onnx(proto)(x), session.run(None, {"x": x})[0], atol=0.1001
    )
