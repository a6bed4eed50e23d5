"""Models with dynamic axes: one program with symbolic sizes, against torch and onnx's reference."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import nova
from nova.errors import ArgumentShapeError, OnnxError

RNG = np.random.default_rng(5)
SIZES = [(2, 5), (3, 7), (1, 4), (8, 33)]


class Decoder(nn.Module):
    """Shapes from Shape, Gather, Concat, Range, ConstantOfShape, as exporters write them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.places = nn.Embedding(512, 16)
        self.norm = nn.LayerNorm(16)
        self.heads = nn.Linear(16, 48)
        self.out = nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        b, t = ids.shape
        x = self.embed(ids) + self.places(torch.arange(t))
        q, k, v = self.heads(self.norm(x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = torch.full((t, t), float("-inf")).triu(1)
        weights = ((q @ k.transpose(-1, -2)) / 8**0.5 + mask).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(b, t, 16)
        return self.out(x), torch.cat([x, x[:, 1:]], 1).mean(1)


@pytest.fixture(scope="module")
def exported() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    module, file = Decoder().eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.randint(0, 50, (2, 5)),),
            file,
            dynamo=False,
            input_names=["ids"],
            dynamic_axes={"ids": {0: "batch", 1: "time"}},
        )
    return module, onnx.load_from_string(file.getvalue())


def test_an_exported_decoder_is_one_program(exported: Any, tmp_path: Path) -> None:
    module, model = exported
    program = nova.from_onnx(model)
    assert "one program for all sizes" in program.explain()
    assert str(program.compiled.signature).count("i64[batch,time]") == 1
    program.save(tmp_path / "decoder.nova")
    loaded = nova.load(tmp_path / "decoder.nova")
    for shape in SIZES:
        ids = torch.randint(0, 50, shape)
        with torch.no_grad():
            expected = [t.numpy() for t in module(ids)]
        for results in (program(ids.numpy()), loaded(ids.numpy())):
            for actual, right in zip(results, expected, strict=True):
                np.testing.assert_allclose(actual, right, rtol=2e-4, atol=2e-5)
    assert not program._programs
    fixed = nova.from_onnx(model, shapes={"batch": 3})
    assert "i64[3,time]" in str(fixed.compiled.signature)


def model_of(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights: Any
) -> Any:
    def info(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, element, shape)

    graph = helper.make_graph(
        nodes,
        "shapes",
        [info(n, s) for n, s in inputs.items()],
        [info(n, s) for n, s in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(w, np.int64), n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def node(op: str, inputs: str, output: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attrs)


MODELS = {
    "arithmetic": model_of(
        [
            node("Shape", "x", "shape"),
            node("Gather", "shape zero", "n", axis=0),
            node("Gather", "shape one", "m", axis=0),
            node("Mul", "n m", "nm"),
            node("Add", "nm zero", "total"),
            node("Div", "total n", "again"),
            node("Concat", "n again", "both", axis=0),
            node("Reshape", "x both", "y"),
            node("Size", "x", "size"),
            node("Cast", "size", "count", to=TensorProto.FLOAT),
            node("Div", "y count", "z"),
        ],
        {"x": ["rows", "columns"]},
        {"z": ["rows", "columns"]},
        zero=[0],
        one=[1],
    ),
    "expand": model_of(
        [
            node("Shape", "x", "shape"),
            node("Slice", "shape zero one", "rows"),
            node("Concat", "rows three", "target", axis=0),
            node("ConstantOfShape", "target", "ones"),
            node("Equal", "target minus", "mask"),
            node("Where", "mask three target", "chosen"),
            node("Expand", "y chosen", "wide"),
            node("Add", "wide ones", "z"),
        ],
        {"x": ["rows", 2], "y": [1, 3]},
        {"z": ["rows", 3]},
        zero=[0],
        one=[1],
        three=[3],
        minus=[-1],
    ),
    "flatten": model_of(
        [
            node("Unsqueeze", "x one", "u"),
            node("Squeeze", "u one", "s"),
            node("Flatten", "s", "f", axis=1),
            node("Reshape", "f shape", "r"),
            node("ReduceMean", "r", "z", axes=[0], keepdims=0),
        ],
        {"x": [None, 4, 2]},
        {"z": [2]},
        one=[1],
        shape=[-1, 2],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_shape_computations(name: str) -> None:
    model = MODELS[name]
    program, reference = nova.from_onnx(model), ReferenceEvaluator(model)
    assert "one program for all sizes" in program.explain(), program.explain()
    for rows, columns in [(2, 3), (1, 1), (17, 5)]:
        sizes = {"rows": rows, "columns": columns, "": rows}
        feed = {
            i.name: RNG.normal(
                size=[d.dim_value or sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]
            ).astype("f4")
            for i in model.graph.input
        }
        [expected] = reference.run(None, feed)
        np.testing.assert_allclose(program(**feed), expected, rtol=1e-5)
    assert not program._programs


def test_ops_that_need_numbers_are_compiled_for_each_shape() -> None:
    model = model_of(
        [node("Split", "x", "a")], {"x": ["rows", 2]}, {"a": [None, 2], "b": [None, 2]}
    )
    model.graph.node[0].output.append("b")
    program = nova.from_onnx(model)
    x = np.arange(8, dtype="f4").reshape(4, 2)
    for actual, expected in zip(program(x), np.split(x, 2), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert "a program for each shape, since symbolic sizes fail: " in program.explain()
    assert "the size rows is known at run time" in program.explain()
    assert len(program._programs) == 1
    with pytest.raises(OnnxError, match="has axes without a size") as caught:
        _ = program.compiled
    assert "rows" in str(caught.value)


def test_sizes_that_disagree() -> None:
    model = model_of(
        [node("Add", "x y", "z")], {"x": ["rows", 2], "y": ["rows", 2]}, {"z": ["rows", 2]}
    )
    program = nova.from_onnx(model)
    assert program(np.ones((3, 2), "f4"), np.ones((3, 2), "f4")).shape == (3, 2)
    with pytest.raises(ArgumentShapeError, match=r"axis 0 of 'y' is 4, and rows is 3"):
        program.compiled(np.ones((3, 2), "f4"), np.ones((4, 2), "f4"))
