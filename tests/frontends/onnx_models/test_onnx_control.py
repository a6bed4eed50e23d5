"""If, Loop and Scan of ONNX as `nova.cond`, `while_loop` and `scan`, or unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import nova
from nova import errors
from nova.graph.order import topological

RNG = np.random.default_rng(13)


def info(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def number(value: Any, name: str) -> Any:
    return numpy_helper.from_array(np.asarray(value), name)


def ops_of(program: Any) -> set[str]:
    return {t.op.name for t in topological(program.graph.results()) if t.op is not None}


def check(proto: Any, *arrays: np.ndarray) -> None:
    names = [i.name for i in proto.graph.input]
    feed = dict(zip(names, arrays, strict=True))
    expected = ReferenceEvaluator(proto).run(None, feed)
    for result, reference in zip(nova.from_onnx(proto).run(*arrays), expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-5, atol=1e-6)


def loop_model(trips: int, *, stacked: bool) -> Any:
    """v = v * 0.5 + i, with or without all values of v stacked."""
    inner = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["v", "half"], ["h"]),
        helper.make_node("Add", ["h", "f"], ["w"]),
        helper.make_node("Identity", ["c"], ["d"]),
        *([helper.make_node("Identity", ["w"], ["out"])] if stacked else []),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [3])],
        [info("d", [], TensorProto.BOOL), info("w", [3]), *([info("out", [3])] if stacked else [])],
    )
    outputs = ["y", *(["all"] if stacked else [])]
    nodes = [helper.make_node("Loop", ["n", "start", "x"], outputs, body=body)]
    weights = [number(np.int64(trips), "n"), number(np.float32(0.5), "half")]
    weights.append(number(True, "start"))
    results = [info("y", [3]), *([info("all", [trips, 3])] if stacked else [])]
    return model(nodes, [info("x", [3])], results, weights)


@pytest.mark.parametrize("trips, op", [(3, "add"), (20, "scan")])
def test_loops_of_known_length(trips: int, op: str) -> None:
    x = RNG.standard_normal(3).astype("f4")
    for stacked in (True, False):
        proto = loop_model(trips, stacked=stacked)
        check(proto, x)
        assert op in ops_of(nova.from_onnx(proto))


def test_a_loop_that_ends_by_its_data_is_a_while_loop() -> None:
    inner = [
        helper.make_node("Add", ["v", "v"], ["w"]),
        helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
        helper.make_node("Less", ["s", "limit"], ["d"]),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [3])],
        [info("d", [], TensorProto.BOOL), info("w", [3])],
    )
    nodes = [helper.make_node("Loop", ["", "start", "x"], ["y"], body=body)]
    weights = [number(True, "start"), number(np.float32(100), "limit")]
    proto = model(nodes, [info("x", [3])], [info("y", [3])], weights)
    for x in (np.ones(3, "f4"), np.full(3, 90, "f4")):
        expected = x * 2
        while expected.sum() < 100:
            expected = expected * 2
        np.testing.assert_array_equal(nova.from_onnx(proto)(x), expected)
    assert "while" in ops_of(nova.from_onnx(proto))


def test_a_trip_count_at_run_time() -> None:
    proto = loop_model(4, stacked=False)
    graph = proto.graph
    del graph.initializer[0]
    graph.input.append(info("n", [], TensorProto.INT64))
    program = nova.from_onnx(proto)
    x = RNG.standard_normal(3).astype("f4")
    for trips in (0, 2, 30):
        expected = x
        for i in range(trips):
            expected = expected * np.float32(0.5) + np.float32(i)
        np.testing.assert_allclose(program(x, np.int64(trips)), expected, rtol=1e-5)
    assert len(program._programs) == 1, "one program serves every count"


@pytest.mark.parametrize("length", [4, 12])
def test_scans_over_axes_and_directions(length: int) -> None:
    inner = [
        helper.make_node("Add", ["s", "a"], ["t"]),
        helper.make_node("Mul", ["t", "b"], ["out"]),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [info("s", [2]), info("a", [2]), info("b", [2])],
        [info("t", [2]), info("out", [2])],
    )
    attrs = {"scan_input_axes": [1, 0], "scan_input_directions": [0, 1]}
    attrs |= {"scan_output_axes": [1], "scan_output_directions": [1]}
    nodes = [
        helper.make_node("Scan", ["x", "p", "q"], ["y", "z"], body=body, num_scan_inputs=2, **attrs)
    ]
    inputs = [info("x", [2]), info("p", [2, length]), info("q", [length, 2])]
    proto = model(nodes, inputs, [info("y", [2]), info("z", [2, length])])
    p, q = (RNG.standard_normal(s).astype("f4") for s in ((2, length), (length, 2)))
    x = RNG.standard_normal(2).astype("f4")
    state, rows = x, []
    for i in range(length):
        state = state + p[:, i]
        rows.append(state * q[length - 1 - i])
    y, z = nova.from_onnx(proto)(x, p, q)
    np.testing.assert_allclose(y, state, rtol=1e-5)
    np.testing.assert_allclose(z, np.stack(rows[::-1], axis=1), rtol=1e-5, atol=1e-6)
    assert ("scan" in ops_of(nova.from_onnx(proto))) == (length == 12)


def test_a_state_that_changes_its_shape_is_unrolled() -> None:
    inner = [
        helper.make_node("Concat", ["v", "one"], ["w"], axis=0),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    body = helper.make_graph(
        inner,
        "body",
        [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", None)],
        [info("d", [], TensorProto.BOOL), info("w", None)],
    )
    nodes = [helper.make_node("Loop", ["n", "start", "x"], ["y"], body=body)]
    weights = [number(np.int64(12), "n"), number(np.ones(1, "f4"), "one"), number(True, "start")]
    proto = model(nodes, [info("x", [2])], [info("y", [14])], weights)
    check(proto, np.zeros(2, "f4"))


def test_branches_of_different_shapes_need_the_condition() -> None:
    def branch(name: str, shape: list[int]) -> Any:
        node = helper.make_node("Constant", [], [name], value=number(np.ones(shape, "f4"), name))
        return helper.make_graph([node], name, [], [info(name, shape)])

    attrs = {"then_branch": branch("t", [2]), "else_branch": branch("e", [3])}
    nodes = [helper.make_node("If", ["c"], ["y"], **attrs)]
    proto = model(nodes, [info("c", [], TensorProto.BOOL)], [info("y", None)])
    program = nova.from_onnx(proto)
    assert program(np.True_).shape == (2,) and program(np.False_).shape == (3,)
    with pytest.raises(errors.OnnxValueError, match="If: input 0 decides shapes"):
        _ = program.graph


@pytest.mark.slow
@pytest.mark.parametrize("op, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_long_recurrent_layers_are_scans(op: str, gates: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    feed = {
        "x": RNG.standard_normal((24, 2, 3)).astype("f4"),
        "w": RNG.standard_normal((2, gates * 4, 3)).astype("f4"),
        "r": RNG.standard_normal((2, gates * 4, 4)).astype("f4"),
    }
    attrs = {"hidden_size": 4, "direction": "bidirectional"}
    nodes = [helper.make_node(op, list(feed), ["y"], **attrs)]
    inputs = [info(name, array.shape) for name, array in feed.items()]
    proto = model(nodes, inputs, [info("y", [24, 2, 2, 4])])
    proto.ir_version = 10
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    program = nova.from_onnx(proto)
    np.testing.assert_allclose(
        program(*feed.values()), session.run(None, feed)[0], rtol=1e-4, atol=1e-5
    )
    assert "scan" in ops_of(program)
