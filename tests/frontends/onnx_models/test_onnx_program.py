"""`nova.from_onnx`: shapes, values, weights, files, the command line and the backend class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import nova
from nova import errors
from nova.frontends.onnx import package
from nova.graph.autodiff import gradients

RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((64, 32)).astype("f4")


def tensor(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = ()) -> Any:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def linear() -> Any:
    """relu(x @ W) with a dynamic batch."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    weights = [numpy_helper.from_array(WEIGHT, "W")]
    return model(nodes, [tensor("x", ["batch", 64])], [tensor("z", ["batch", 32])], weights)


def reshaper() -> Any:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs = [tensor("x", [2, 6]), tensor("shape", [2], TensorProto.INT64)]
    return model(nodes, inputs, [tensor("y", None)])


def test_a_dynamic_axis_takes_its_size_from_calls() -> None:
    program = nova.from_onnx(linear())
    for batch in (1, 5, 1):
        x = RNG.standard_normal((batch, 64)).astype("f4")
        np.testing.assert_allclose(program(x), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(program(x=x), program(x))
    assert program.input_names == ("x",)
    assert program.compiled(np.ones((7, 64), "f4")).shape == (7, 32)


def test_all_weights_are_params_in_the_order_of_the_file() -> None:
    """Also those that are reshaped or transposed before their op: such nodes are not folded."""
    shape = np.array([1, 3], "i8")
    values = {
        "bias": RNG.standard_normal(3).astype("f4"),
        "W": RNG.standard_normal((3, 4)).astype("f4"),
    }
    nodes = [
        helper.make_node("Transpose", ["W"], ["Wt"], perm=[1, 0]),
        helper.make_node("Reshape", ["bias", "shape"], ["row"]),
        helper.make_node("MatMul", ["x", "Wt"], ["y"]),
        helper.make_node("Add", ["y", "row"], ["z"]),
    ]
    weights = [numpy_helper.from_array(v, n) for n, v in (values | {"shape": shape}).items()]
    program = nova.from_onnx(
        model(nodes, [tensor("x", [2, 4])], [tensor("z", [2, 3])], weights), freeze=False
    )
    assert [spec.name for spec in program.compiled.signature.params] == ["bias", "W"]
    x = RNG.standard_normal((2, 4)).astype("f4")
    np.testing.assert_allclose(program(x), x @ values["W"].T + values["bias"], rtol=1e-5)
    others = [2 * value for value in values.values()]
    result = program.compiled.run([x], others)
    np.testing.assert_allclose(result, x @ others[1].T + others[0], rtol=1e-5)


@pytest.mark.parametrize("shapes", [{"batch": 3}, {"x": (3, 64)}])
@pytest.mark.parametrize("freeze", [True, False])
def test_a_model_becomes_a_file(shapes: Any, freeze: bool, tmp_path: Path) -> None:
    program = nova.from_onnx(linear(), shapes=shapes, freeze=freeze)
    program.save(tmp_path / "model.nova")
    x = RNG.standard_normal((3, 64)).astype("f4")
    loaded = nova.load(tmp_path / "model.nova")
    np.testing.assert_allclose(loaded(x), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    assert [spec.name for spec in loaded.signature.params] == ([] if freeze else ["W"])


def test_gradients_flow_through_an_imported_graph() -> None:
    graph = nova.from_onnx(linear(), shapes={"batch": 2}).graph
    [x], [z] = graph.placeholders(), graph.results()
    [slope] = gradients(nova.sum(z * z), [x])
    data = RNG.standard_normal((2, 64)).astype("f4")
    y = np.maximum(data @ WEIGHT, 0)
    result = nova.compile([slope], inputs=[x]).run([data])
    np.testing.assert_allclose(result, 2 * y @ WEIGHT.T, rtol=1e-4, atol=1e-4)


def test_values_that_decide_shapes() -> None:
    program = nova.from_onnx(reshaper())
    x = np.arange(12, dtype="f4").reshape(2, 6)
    for shape in ((3, 4), (12, 1), (3, 4)):
        assert program(x, np.array(shape)).shape == shape
    fixed = nova.from_onnx(reshaper(), values={"shape": np.array([4, 3])})
    assert fixed.input_names == ("x",) and fixed(x).shape == (4, 3)
    with pytest.raises(errors.OnnxValueError, match="Reshape: input 1 decides shapes") as caught:
        _ = program.graph
    assert caught.value.names == ("shape",)


def test_wrong_arguments_have_their_own_errors() -> None:
    program = nova.from_onnx(linear())
    with pytest.raises(errors.ArgumentShapeError, match=r"\(3, 5\), the model takes \['batch', 64"):
        program(np.zeros((3, 5), "f4"))
    with pytest.raises(errors.ArgumentDTypeError, match="float64, the model takes float32"):
        program(np.zeros((3, 64)))
    with pytest.raises(errors.ArgumentNameError, match="the inputs x are missing"):
        program()
    with pytest.raises(errors.ArgumentNameError, match="takes 1 inputs, and got 2"):
        program(np.zeros((1, 64), "f4"), 1)
    with pytest.raises(errors.ArgumentNameError, match="argument 'q'"):
        program(q=1)
    with pytest.raises(errors.ArgumentNameError, match="no input or axis 'rows'"):
        nova.from_onnx(linear(), shapes={"rows": 3})
    with pytest.raises(errors.ArgumentNameError, match="no input 'q'"):
        nova.from_onnx(linear(), values={"q": 3})
    with pytest.raises(errors.ArgumentShapeError, match="sizes are ints"):
        nova.from_onnx(linear(), shapes={"batch": 1.5})


def test_unsupported_models_are_refused_with_node_and_reason() -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["y"], domain="com.example")]
    program = nova.from_onnx(model(nodes, [tensor("x", [3])], [tensor("y", [3])]))
    with pytest.raises(errors.UnsupportedOpError, match=r"com.example.Mystery is not an ONNX op"):
        program(np.ones(3, "f4"))
    nodes = [helper.make_node("ImageDecoder", ["x"], ["y"], name="photo")]
    data = [tensor("x", [3], TensorProto.UINT8)]
    program = nova.from_onnx(model(nodes, data, [tensor("y", None, TensorProto.UINT8)]))
    with pytest.raises(errors.UnsupportedOpError, match="ImageDecoder: it decodes") as info:
        program(np.ones(3, "u1"))
    assert "node photo (ImageDecoder)" in str(info.value)


def test_an_opset_of_the_future_is_refused() -> None:
    late = linear()
    late.opset_import[0].version = 999
    with pytest.raises(errors.OnnxError, match="the model uses opset 999"):
        nova.from_onnx(late)


def test_functions_of_the_model_are_expanded() -> None:
    function = helper.make_function(
        "com.example",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Mul", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    nodes = [helper.make_node("Twice", ["x"], ["y"], domain="com.example")]
    proto = model(nodes, [tensor("x", [3])], [tensor("y", [3])])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    x = np.arange(3, dtype="f4")
    np.testing.assert_array_equal(nova.from_onnx(proto)(x), x * x)


def test_shape_computations_leave_no_op() -> None:
    """The chain that exporters write for a flatten with a dynamic batch."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Gather", ["shape", "zero"], ["first"]),
        helper.make_node("Constant", [], ["minus"], value_ints=[-1]),
        helper.make_node("Concat", ["first", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    proto = model(nodes, [tensor("x", ["n", 2, 3])], [tensor("y", None)])
    graph = nova.from_onnx(proto, shapes={"n": 4}).graph
    [y] = graph.results()
    assert y.op is not None and y.op.name == "reshape" and y.inputs == tuple(graph.placeholders())


def test_a_branch_that_depends_on_data_is_selected() -> None:
    def branch(name: str, op: str) -> Any:
        node = helper.make_node(op, ["x", "x"], [name])
        return helper.make_graph([node], name, [], [tensor(name, [3])])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul")
        ),
    ]
    proto = model(nodes, [tensor("x", [3])], [tensor("y", [3])])
    program = nova.from_onnx(proto)
    for x in (np.array([1, 2, 3], "f4"), np.array([-1, -2, 1], "f4")):
        [expected] = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(program(x), expected)


@pytest.mark.slow
def test_nova_translate_takes_a_model(tmp_path: Path) -> None:
    onnx.save(linear(), tmp_path / "model.onnx")
    command = [sys.executable, "-m", "nova.tools.nova_translate", str(tmp_path / "model.onnx")]
    command += ["--shape", "batch=2", "-o", str(tmp_path / "model.nova")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    x = RNG.standard_normal((2, 64)).astype("f4")
    loaded = nova.load(tmp_path / "model.nova")
    np.testing.assert_allclose(loaded(x), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)


def test_nova_translate_keeps_axes_without_a_size(tmp_path: Path) -> None:
    from nova.tools.nova_translate import main

    onnx.save(linear(), tmp_path / "model.onnx")
    assert main([str(tmp_path / "model.onnx"), "-o", str(tmp_path / "model.nova")]) == 0
    loaded = nova.load(tmp_path / "model.nova")
    for batch in (1, 5, 33):
        x = RNG.standard_normal((batch, 64)).astype("f4")
        np.testing.assert_allclose(loaded(x), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)


def test_nova_translate_explains_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nova.tools.nova_translate import main

    onnx.save(linear(), tmp_path / "model.onnx")
    for options, message in (
        (["--shape", "8x64"], "--shape of an ONNX model has a name"),
        (["--start-from", "linalg"], "--start-from is not for ONNX models"),
    ):
        assert main([str(tmp_path / "model.onnx"), *options, "-o", str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err


def test_the_backend_class_runs_onnx_tests() -> None:
    from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

    from nova.api.onnx_backend import NovaBackend

    x = RNG.standard_normal((2, 64)).astype("f4")
    [y] = NovaBackend.run_model(linear(), [x])
    np.testing.assert_allclose(y, np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    nodes = [helper.make_node("ImageDecoder", ["x"], ["y"])]
    refused = model(
        nodes, [tensor("x", [3], TensorProto.UINT8)], [tensor("y", None, TensorProto.UINT8)]
    )
    with pytest.raises(BackendIsNotSupposedToImplementIt, match="ImageDecoder"):
        NovaBackend.run_model(refused, [np.ones(3, "u1")])
    assert NovaBackend.supports_device("CPU") and not NovaBackend.supports_device("TPU")


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package.onnx_package.cache_clear()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(errors.MissingPackageError, match="need the package onnx") as caught:
        nova.from_onnx("model.onnx")
    assert "pip install -e '.[onnx]'" in str(caught.value)
    package.onnx_package.cache_clear()
