"""Import reports: every op has its outcome, and one refused op does not hide the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from onnx import helper as make

import nova
from nova.errors import ArgumentTypeError, ImportedProgramError, OnnxError, OptionTypeError
from nova.frontends.report.table import ImportReport, OpRow
from nova.tools.nova import main

X = np.ones((8, 8), np.float32)


def row(report: ImportReport, op: str, outcome: str) -> OpRow:
    [match] = [r for r in report.rows if (r.op, r.outcome) == (op, outcome)]
    return match


# --- MLIR -----------------------------------------------------------------------------------------


def test_a_function_of_jax_with_two_refused_ops():
    def function(x):
        noise = jax.lax.rng_uniform(0.0, 1.0, (4,))
        start = (0, x)
        looped = jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2 + noise.sum()), start
        )[1]
        return jnp.sort(looped @ looped.T), jnp.linalg.eig(looped)[0].real, jax.nn.softmax(looped)

    report = nova.import_report(function, X)
    assert report.format == "stablehlo" and not report.is_supported and report.error is not None
    assert "without a seed" in row(report, "stablehlo.rng", "unsupported").reason
    assert "lapack" in row(report, "stablehlo.custom_call", "unsupported").reason
    # The loop captures a value of a refused op, and is itself supported.
    assert row(report, "stablehlo.while", "supported").count == 1
    assert "linalg.generic" in row(report, "stablehlo.dot_general", "supported").replaced_by


def test_counts_are_those_of_the_text():
    text = jax.jit(lambda x: jnp.tanh(jnp.tanh(x) @ x) + x).lower(X).as_text()
    report = nova.import_report(text)
    assert report.is_supported and report.error is None
    for name in ("tanh", "add", "dot_general"):
        assert row(report, f"stablehlo.{name}", "supported").count == text.count(
            f"stablehlo.{name} "
        )
    assert "4 supported" in str(report)


def test_a_constant_operand_stays_a_constant():
    """`stablehlo.reduce` of an argument as its start is another form than that of a constant."""
    report = nova.import_report(jax.jit(lambda x: x.max(0)).lower(X).as_text())
    assert row(report, "stablehlo.reduce", "supported").count == 1


def test_an_op_that_names_a_function():
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "my.twice" %x {decomposition = @twice} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
    report = nova.import_report(text)
    assert report.is_supported
    assert "arith.addf" in row(report, "stablehlo.composite", "supported").replaced_by


def test_a_loop_whose_body_calls_a_function():
    def function(x):
        return jax.lax.fori_loop(0, 3, lambda i, a: jax.jit(lambda q: q * 2 + 1)(a), x)

    report = nova.import_report(function, X)
    assert report.is_supported and row(report, "stablehlo.while", "supported").count == 1


def test_sizes_of_arguments_replace_question_marks():
    text = """
func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.tanh %x : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}
"""
    assert nova.import_report(text, np.ones((3, 4), np.float32)).is_supported


def test_text_that_is_not_mlir():
    report = nova.import_report("func.func @main() {\n  stablehlo.tanh\n}\n")
    assert report.rows == () and report.error is not None
    assert "the import fails" in str(report)


# --- torch ----------------------------------------------------------------------------------------


class Airy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(torch.relu(self.linear(x)))


def test_a_torch_module(tmp_path: Path):
    report = nova.import_report(Airy(), torch.ones(2, 4))
    airy = row(report, "aten.special_airy_ai.default", "falls back")
    assert Path(airy.locations[0].rpartition(":")[0]) == Path(__file__)
    assert row(report, "aten.linear.default", "supported").replaced_by == ("linear",)
    assert not report.is_supported
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Airy(), (torch.ones(2, 4),)), path)
    assert nova.import_report(path).counts() == report.counts()
    path.write_bytes(b"PK no zip")
    with pytest.raises(ImportedProgramError, match=r"not a file of torch.export.save"):
        nova.import_report(path)


# --- ONNX -----------------------------------------------------------------------------------------


def onnx_model() -> onnx.ModelProto:
    nodes = [
        make.make_node("Shape", ["x"], ["shape"]),
        make.make_node("Relu", ["x"], ["a"]),
        make.make_node("Unknown", ["a"], ["b"], name="mine", domain="my"),
        make.make_node("Add", ["a", "b"], ["c"]),
        make.make_node("Gelu", ["a"], ["d"]),
        make.make_node("Reshape", ["d", "shape"], ["y"]),
        make.make_node("Unknown", ["a"], ["e"], domain="my"),
        make.make_node("Relu", ["e"], ["z"]),
    ]
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 4])],
        [
            make.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("y", None), ("c", [2, 4]), ("e", [2, 4]), ("z", None))
        ],
    )
    opsets = [make.make_opsetid("", 20), make.make_opsetid("my", 1)]
    return make.make_model(graph, opset_imports=opsets)


def test_a_model_that_ends_the_process_of_shape_inference() -> None:
    """onnx's own library crashes for a LabelEncoder whose input has no type."""
    nodes = [
        make.make_node("Mystery", ["x"], ["words"], domain="com.example"),
        make.make_node(
            *("LabelEncoder", ["words"], ["y"]),
            domain="ai.onnx.ml",
            keys_int64s=[1],
            values_int64s=[2],
        ),
    ]
    inputs = [make.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    graph = make.make_graph(nodes, "g", inputs, [make.make_empty_tensor_value_info("y")])
    domains = (("", 21), ("ai.onnx.ml", 4), ("com.example", 1))
    model = make.make_model(graph, opset_imports=[make.make_opsetid(*d) for d in domains])
    rows = {row.op: row.outcome for row in nova.import_report(model).rows}
    assert rows == {"com.example.Mystery": "unsupported", "ai.onnx.ml.LabelEncoder": "not checked"}


def test_an_onnx_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = nova.import_report(onnx_model(), shapes={"B": 2})
    refused = row(report, "my.Unknown", "unsupported")
    assert (refused.count, refused.locations) == (2, ["mine", "node 7"])
    # The type of `b` is not known; that of `e` is declared, so the node after it is checked.
    assert "Unknown mine" in row(report, "Add", "not checked").reason
    assert row(report, "Relu", "supported").count == 2
    assert row(report, "Shape", "constant").count == 1
    assert row(report, "Gelu", "supported").replaced_by == ("gelu",)
    assert report.notes == ()
    assert "B = 1" in nova.import_report(onnx_model()).notes[0]
    path = tmp_path / "model.onnx"
    onnx.save(onnx_model(), path)
    assert main(["import-report", str(path), "--shape", "B=2", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"][0]["op"] == "my.Unknown" and not answer["is_supported"]
    assert main(["import-report", str(path)]) == 1
    assert "not imported" in capsys.readouterr().out
    assert main(["import-report", str(path), "--shape", "2x4"]) == 1
    assert "has a name" in capsys.readouterr().err


def test_every_node_test_of_a_supported_op_is_supported():
    """ONNX's own models: the report agrees with the importer."""
    from onnx.backend.test.loader import load_model_tests

    names = {"test_layer_normalization_2d_axis0", "test_mish", "test_if", "test_string_split_basic"}
    cases = [c for c in load_model_tests(kind="node") if c.name in names]
    assert {c.name for c in cases} == names
    for case in cases:
        report = nova.import_report(str(Path(case.model_dir) / "model.onnx"))
        assert report.is_supported == (case.name != "test_string_split_basic"), str(report)


def test_other_objects():
    with pytest.raises(ArgumentTypeError, match="a int is not a model"):
        nova.import_report(3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"entry": None}, "entry is None, of type NoneType"),
        ({"entry": 5}, "entry is 5, of type int"),
        ({"shapes": 5}, "shapes is 5, of type int"),
        ({"values": "x"}, "values is 'x', of type str"),
    ],
)
@pytest.mark.parametrize("model", ["mlir", "onnx"])
def test_options_of_other_types(model: str, options: dict[str, Any], says: str):
    source = "func.func @main() { return }" if model == "mlir" else onnx_model()
    with pytest.raises(OptionTypeError, match=says) as raised:
        nova.import_report(source, **options)
    assert __file__ in str(raised.value.where) and raised.value.hint is not None
    if model == "onnx" and "entry" not in options:
        with pytest.raises(OptionTypeError, match=says):
            nova.from_onnx(source, **options)


@pytest.mark.parametrize("read", [nova.import_report, nova.translate])
def test_a_source_that_is_not_a_file(read: Any, tmp_path: Path):
    with pytest.raises(ImportedProgramError, match="the program is an empty string") as raised:
        read("")
    assert __file__ in str(raised.value.where)
    with pytest.raises(ImportedProgramError, match="Is a directory") as raised:
        read(tmp_path)
    assert "the path of a file" in str(raised.value)
    with pytest.raises(OnnxError, match="the path of the model is empty"):
        nova.from_onnx("")
