"""ONNX files that are damaged, cut off, hostile, or that reach for other files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx_cases import cases

import nova
from nova import errors

WEIGHT = np.arange(512 * 4, dtype="f4").reshape(512, 4)


def external(tmp_path: Path, **fields: Any) -> Path:
    """A model whose weight is in `weights.bin`, with some fields of its entry replaced."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(WEIGHT, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin")
    saved = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    [weight] = saved.graph.initializer
    assert external_data_helper.uses_external_data(weight)
    for entry in weight.external_data:
        entry.value = fields.pop(entry.key, entry.value)
    for key, value in fields.items():
        weight.external_data.add(key=key, value=value)
    (tmp_path / "model.onnx").write_bytes(saved.SerializeToString())
    return tmp_path / "model.onnx"


def test_external_data_are_read(tmp_path: Path) -> None:
    x = np.ones((2, 512), "f4")
    np.testing.assert_allclose(nova.from_onnx(external(tmp_path))(x), x @ WEIGHT, rtol=1e-5)


@pytest.mark.parametrize(
    "location",
    ["../weights.bin", "/etc/passwd", "a/../../weights.bin", "", "..\\weights.bin", "a\0b"],
)
def test_external_data_stay_in_the_folder_of_the_model(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = external(folder, location=location)
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(errors.OnnxError, match="tensor 'W' has its data"):
        _ = nova.from_onnx(path).graph


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = external(folder)
    (folder / "weights.bin").rename(tmp_path / "weights.bin")
    (folder / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(errors.OnnxError, match="outside of the model's folder"):
        _ = nova.from_onnx(path).graph


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"length": "17"}, "has 17 bytes at 0"),
        ({"offset": "100000"}, "8192 bytes at 100000"),
        ({"offset": "-8"}, "at -8"),
        ({"offset": "many"}, "not a number"),
        ({"location": "missing.bin"}, "which is missing"),
        ({"location": "."}, "which is missing"),
    ],
)
def test_wrong_entries_of_external_data(tmp_path: Path, fields: Any, message: str) -> None:
    with pytest.raises(errors.OnnxError, match=message):
        _ = nova.from_onnx(external(tmp_path, **fields)).graph


def test_external_data_need_a_folder(tmp_path: Path) -> None:
    data = external(tmp_path).read_bytes()
    with pytest.raises(errors.OnnxError, match="pass the path of the model file"):
        _ = nova.from_onnx(data).graph


@pytest.mark.parametrize(
    "source, message",
    [
        (b"", "no graph"),
        (b"not a protobuf", "not an ONNX protobuf"),
        (17, "a int is not an ONNX model"),
        ("missing.onnx", "cannot read the model: No such file"),
        ("a\0b.onnx", "NUL"),
    ],
)
def test_what_is_not_a_model(source: Any, message: str) -> None:
    with pytest.raises(errors.OnnxError, match=message):
        nova.from_onnx(source)


def sources() -> list[bytes]:
    """Models of every family, small."""
    names = ("abs", "conv_with_strides_padding", "loop11", "lstm_defaults", "if", "scan9_sum")
    names += ("reshape_zero_dim", "quantizelinear", "resize_upsample_sizes_nearest", "slice")
    names += ("ai_onnx_ml_tree_ensemble_single_tree", "sequence_insert_at_back", "gridsample")
    names += (
        "constant_pad",
        "top_k",
        "attention_4d",
        "affine_grid_2d",
        "einsum_sum",
        "convtranspose",
    )
    names += (
        "transpose_default",
        "gemm_all_attributes",
        "averagepool_2d_ceil",
        "roialign_mode_max",
    )
    return [
        (case.folder / "model.onnx").read_bytes()
        for case in cases("node")
        if case.name.removeprefix("test_") in names
    ]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few of them changed, removed, doubled or cut off."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(result)) if result else 0
        action = rng.randrange(5)
        if action == 0 and result:
            result[at] = rng.randrange(256)
        elif action == 1:
            del result[at : at + rng.choice((1, 4, 30))]
        elif action == 2:
            result[at:at] = result[at : at + rng.choice((1, 8, 40))]
        elif action == 3 and result:
            result[at] ^= 1 << rng.randrange(8)
        else:
            del result[at:]
    return bytes(result)


_INTS = (0, 1, -1, 2, 7, 1 << 31, -(1 << 63), (1 << 63) - 1)


def confused(data: bytes, rng: random.Random) -> bytes:
    """A valid protobuf whose fields contradict each other: numbers, names, ops and inputs."""
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    for _ in range(rng.choice((1, 1, 2, 4))):
        node = rng.choice(graph.node)
        action = rng.randrange(9)
        if action == 0 and node.attribute:
            _confuse_attribute(rng.choice(node.attribute), rng)
        elif action == 1 and node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        elif action == 2 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", "nothing", *node.output])
        elif action == 3 and node.input:
            del node.input[rng.randrange(len(node.input))]
        elif action == 4:
            node.op_type = rng.choice(graph.node).op_type if rng.random() < 0.3 else rng.choice(OPS)
        elif action == 5 and graph.input:
            tensor = rng.choice(graph.input).type.tensor_type
            tensor.elem_type = rng.randrange(30)
        elif action == 6 and graph.input:
            dims = rng.choice(graph.input).type.tensor_type.shape.dim
            if dims:
                rng.choice(dims).dim_value = rng.choice((*_INTS, 3, 5))
        elif action == 7 and graph.initializer:
            tensor = rng.choice(graph.initializer)
            tensor.dims.append(rng.choice(_INTS))
        else:
            model.opset_import[0].version = rng.choice((*range(1, 28), 0, 99, -1))
    return model.SerializeToString()


OPS = ("Reshape", "Concat", "Conv", "Loop", "Gather", "Resize", "Slice", "Pad", "TopK", "LSTM")
OPS += ("Expand", "Tile", "Range", "OneHot", "Split", "Squeeze", "MaxPool", "Attention", "Cast")


def _confuse_attribute(attribute: Any, rng: random.Random) -> None:
    if attribute.type == attribute.INT:
        attribute.i = rng.choice(_INTS)
    elif attribute.type == attribute.INTS and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_INTS)
    elif attribute.type == attribute.FLOAT:
        attribute.f = rng.choice((0.0, float("nan"), float("inf"), -1e30))
    elif attribute.type == attribute.STRING:
        attribute.s = rng.choice((b"", b"constant", bytes([255, 0])))
    else:
        attribute.type = rng.randrange(15)


def check_damaged(count: int, seed: int) -> None:
    rng, originals = random.Random(seed), sources()
    assert len(originals) >= 15
    imported = 0
    for i in range(count):
        damage = damaged if i % 2 else confused
        data = damage(rng.choice(originals), rng)
        try:
            imported += bool(nova.from_onnx(data).graph.outputs)
        except errors.NovaError:
            continue
    assert imported > count / 20


def test_damaged_models_give_errors_of_nova() -> None:
    check_damaged(400, 1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_damaged_models_give_errors_of_nova(part: int) -> None:
    check_damaged(2500, 100 + part)


def test_bombs_are_refused_before_they_take_memory() -> None:
    """Small models that ask for huge tensors or endless loops."""
    node = helper.make_node
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20], "i8"), "s")
    output = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node("ConstantOfShape", ["s"], ["y"])], "g", [], output, [shape])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert nova.from_onnx(proto).graph.results()[0].size == 1 << 40  # an op, and no array
    values = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("c", "d")]
    trip = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    body = helper.make_graph([node("Identity", ["c"], ["d"])], "b", [trip, values[0]], [values[1]])
    count = numpy_helper.from_array(np.array(1 << 40), "n")
    loop = helper.make_graph([node("Loop", ["n", ""], [], body=body)], "g", [], output, [count])
    proto = helper.make_model(loop, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(errors.UnsupportedOpError, match="more than 10000 iterations"):
        _ = nova.from_onnx(proto).graph
