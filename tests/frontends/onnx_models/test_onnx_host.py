"""Nodes that the host computes between compiled parts: strings, maps, data-dependent shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import cases, outcome

import nova
from nova import errors

RNG = np.random.default_rng(5)
ML = "ai.onnx.ml"
STRING = TensorProto.STRING
FLOAT = TensorProto.FLOAT


def info(name: str, shape: Any = None, element: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[str], weights: Any = ()) -> Any:
    empty = helper.make_empty_tensor_value_info
    arrays = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "graph", inputs, [empty(n) for n in outputs], arrays)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=versions)


def node(op: str, *inputs: str, outputs: Any = ("y",), **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def detector() -> Any:
    """A head, suppression of its boxes, and a gather of those that remain."""
    nodes = [
        node("MatMul", "x", "W", outputs=["raw"]),
        node("Sigmoid", "raw", outputs=["scores_last"]),
        node("Transpose", "scores_last", outputs=["scores"], perm=[0, 2, 1]),
        node("Mul", "boxes", "two", outputs=["scaled"]),
        node(
            "NonMaxSuppression", "scaled", "scores", "most", "overlap", "least", outputs=["picks"]
        ),
        node("Gather", "picks", "last", outputs=["index"], axis=1),
        node("Gather", "scaled", "index", outputs=["kept"], axis=1),
        node("ReduceSum", "kept", outputs=["total"], keepdims=0),
        node("Tanh", "raw", outputs=["side"]),
    ]
    weights = {
        "W": floats(5, 3),
        "two": np.array(2, "f4"),
        "most": np.array([4]),
        "overlap": np.array([0.5], "f4"),
        "least": np.array([0.4], "f4"),
        "last": np.array(2),
    }
    inputs = [info("x", [1, "n", 5]), info("boxes", [1, "n", 4])]
    return model(nodes, inputs, ["kept", "total", "side", "picks"], weights)


def test_a_detector_runs_around_its_suppression() -> None:
    proto = detector()
    program = nova.from_onnx(proto)
    for count in (6, 20, 6):
        corner = RNG.random((1, count, 2), "f4")
        boxes = np.concatenate([corner, corner + 0.3], axis=-1)
        feed = {"x": floats(1, count, 5), "boxes": boxes}
        for a, b in zip(
            program.run(**feed), ReferenceEvaluator(proto).run(None, feed), strict=True
        ):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert program.explain().splitlines() == [
        "parts on the host, between programs:",
        "program: (boxes, x) -> (scaled, scores, side)",
        "host: NonMaxSuppression(scaled, scores, most, overlap, least)",
        "program: (picks, scaled) -> (kept, total)",
    ]


def test_suppression_may_leave_nothing() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], "f4")
    results = nova.from_onnx(detector()).run(np.full((1, 2, 5), 0, "f4"), boxes)
    assert results[0].shape[1] > 0  # sigmoid(0) is above the least score
    proto = detector()
    proto.graph.initializer[4].CopyFrom(numpy_helper.from_array(np.array([0.9], "f4"), "least"))
    kept, total, _, picks = nova.from_onnx(proto).run(np.zeros((1, 2, 5), "f4"), boxes)
    assert kept.shape == (1, 0, 4) and total == 0 and picks.shape == (0, 3)


def test_data_dependent_nodes_in_a_row() -> None:
    """Each part divides itself again: two stages of the host and three programs."""
    nodes = [
        node("Relu", "x", outputs=["positive"]),
        node("NonZero", "positive", outputs=["at"]),
        node("Transpose", "at", outputs=["rows"]),
        node("GatherND", "x", "rows", outputs=["values"]),
        node("Mul", "values", "values", outputs=["squares"]),
        node("Round", "squares", outputs=["rounded"]),
        node("Unique", "rounded", outputs=["unique", "first", "inverse", "counts"], sorted=0),
        node("Greater", "unique", "one", outputs=["large"]),
        node("Compress", "unique", "large", outputs=["chosen"]),
        node("Add", "chosen", "one", outputs=["y"]),
    ]
    proto = model(
        nodes, [info("x", ["a", "b"])], ["y", "counts", "inverse"], {"one": np.array(1, "f4")}
    )
    program = nova.from_onnx(proto)
    for shape in ((3, 4), (7, 2)):
        feed = {"x": 2 * floats(*shape)}
        for a, b in zip(
            program.run(**feed), ReferenceEvaluator(proto).run(None, feed), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_nonzero_of_any_rank(shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape)), dtype="f4").reshape(shape) + (not shape)
    result = nova.from_onnx(model([node("NonZero", "x")], [info("x", shape)], ["y"]))(x)
    expected = np.array(np.nonzero(np.atleast_1d(x)), np.int64)
    np.testing.assert_array_equal(result, expected if shape else np.zeros((0, 1)))


def test_shapes_are_known_after_the_host() -> None:
    """Constants and their chains are in every part: the target of a Reshape decides no program."""
    nodes = [
        node("Concat", "two", "minus", outputs=["target"], axis=0),
        node("NonZero", "x", outputs=["at"]),
        node("Reshape", "at", "target"),
        node("Reshape", "x", "target", outputs=["z"]),
    ]
    weights = {"two": np.array([2]), "minus": np.array([-1])}
    program = nova.from_onnx(model(nodes, [info("x", [4])], ["y", "z"], weights))
    y, z = program.run(np.array([1, 0, 0, 3], "f4"))
    assert y.tolist() == [[0], [3]] and z.tolist() == [[1, 0], [0, 3]]


def test_a_file_of_such_a_model_is_refused(tmp_path: Any) -> None:
    program = nova.from_onnx(model([node("NonZero", "x", name="where")], [info("x", [3])], ["y"]))
    with pytest.raises(
        errors.DataDependentShapeError, match="depends on values of a run"
    ) as raised:
        program.save(tmp_path / "model.nova")
    assert "node where (NonZero)" in str(raised.value)
    assert "a call of the program computes it on the host" in str(raised.value)
    assert issubclass(errors.DataDependentShapeError, errors.UnsupportedOpError)


def test_in_a_body_it_is_refused() -> None:
    body = helper.make_graph([node("NonZero", "x", outputs=["t"])], "b", [], [info("t")])
    nodes = [node("If", "c", then_branch=body, else_branch=body)]
    program = nova.from_onnx(model(nodes, [info("c", [], TensorProto.BOOL), info("x", [3])], ["y"]))
    with pytest.raises(errors.DataDependentShapeError, match="depends on values of a run"):
        program(np.array(True), np.ones(3, "f4"))


# --- strings --------------------------------------------------------------------------------------


STRING_CASES = [
    case
    for kind, words in (("simple", ("strnorm",)), ("node", ("string", "strnormalizer", "encoder")))
    for case in cases(kind)
    if any(word in case.name for word in words)
]


@pytest.mark.parametrize("case", STRING_CASES, ids=lambda case: case.name)
def test_string_cases_of_onnx(case: Any) -> None:
    assert outcome(case, compiled=True) == "pass"


def test_words_become_numbers_of_a_program() -> None:
    """A table of words before an embedding: one program for all texts of a shape."""
    words = ["cat", "dog", "Ä"]
    table = floats(4, 3)
    nodes = [
        node("StringSplit", "text", outputs=["parts", "counts"], delimiter=" "),
        node(
            *("LabelEncoder", "parts"),
            outputs=["ids"],
            domain=ML,
            keys_strings=words,
            values_int64s=[1, 2, 3],
            default_int64=0,
        ),
        node("Gather", "table", "ids", outputs=["rows"]),
        node("ReduceMean", "rows", outputs=["y"], keepdims=0),
    ]
    proto = model(nodes, [info("text", [2], STRING)], ["y", "ids", "parts"], {"table": table})
    program = nova.from_onnx(proto)
    for texts in (["cat dog", "Ä bird"], ["dog dog", "cat cat"]):
        y, ids, parts = program.run(texts)
        index = [
            [{w: i + 1 for i, w in enumerate(words)}.get(w, 0) for w in t.split()] for t in texts
        ]
        assert parts.tolist() == [text.split() for text in texts]
        np.testing.assert_array_equal(ids, index)
        np.testing.assert_allclose(y, table[index].mean(), rtol=1e-5)


def test_ops_that_move_strings() -> None:
    nodes = [
        node("Constant", outputs=["more"], value_strings=["x", "y"]),
        node("Concat", "words", "more", outputs=["all"], axis=0),
        node("Reshape", "all", "shape", outputs=["table"]),
        node("Transpose", "table", outputs=["turned"]),
        node("Gather", "turned", "one", outputs=["row"], axis=0),
        node("Slice", "row", "one1", "three1", outputs=["part"]),
        node("Equal", "row", "row", outputs=["same"]),
        node("Shape", "turned", outputs=["sizes"]),
        node("Where", "same", "row", "row", outputs=["again"]),
        node("Cast", "digits", outputs=["numbers"], to=FLOAT),
    ]
    weights = {"shape": np.array([3, 2]), "one": np.array(1)}
    weights |= {"one1": np.array([1]), "three1": np.array([3])}
    proto = model(
        nodes,
        [info("words", ["n"], STRING), info("digits", [3], STRING)],
        ["row", "part", "same", "sizes", "again", "numbers", "words"],
        weights,
    )
    row, part, same, sizes, again, numbers, words = nova.from_onnx(proto).run(
        [b"a", "b", "ß", "d"], np.array(["1", "-2.5e1", "nan"])
    )
    assert row.tolist() == again.tolist() == ["b", "d", "y"] and part.tolist() == ["d", "y"]
    assert same.all() and same.dtype == bool and sizes.tolist() == [2, 3]
    np.testing.assert_array_equal(numbers, np.array([1, -25, np.nan], "f4"))
    assert words.tolist() == ["a", "b", "ß", "d"]


def test_counts_of_n_grams_of_words() -> None:
    nodes = [
        node(
            *("TfIdfVectorizer", "words"),
            mode="TF",
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            ngram_counts=[0, 2],
            ngram_indexes=[0, 1, 2],
            pool_strings=["a", "b", "a", "b"],
        )
    ]
    program = nova.from_onnx(model(nodes, [info("words", [5], STRING)], ["y"]))
    np.testing.assert_array_equal(program(["a", "b", "c", "a", "b"]), np.array([2, 2, 2], "f4"))


def test_stop_words_without_case() -> None:
    attrs = {"stopwords": ["Monday"], "case_change_action": "UPPER"}
    for is_case_sensitive, expected in ((0, ["TUESDAY"]), (1, ["MONDAY", "TUESDAY"])):
        nodes = [node("StringNormalizer", "x", is_case_sensitive=is_case_sensitive, **attrs)]
        program = nova.from_onnx(model(nodes, [info("x", [3], STRING)], ["y"]))
        assert program(["Monday", "mONDAY", "Tuesday"]).tolist() == expected


REFUSED_STRINGS = [
    (node("RegexFullMatch", "x", pattern="(a+)+$"), "patterns of RE2"),
    (node("Pad", "x", "pads"), "Pad: Nova does not compute it for strings"),
    (node("Cast", "x", to=FLOAT), "could not convert string to float"),
    (node("StringNormalizer", "x", case_change_action="TITLE"), "case_change_action is 'TITLE'"),
    (node("StringConcat", "x", "other"), "StringConcat is malformed"),
]


@pytest.mark.parametrize(("proto", "message"), REFUSED_STRINGS, ids=lambda value: str(value)[:12])
def test_other_ops_of_strings_are_refused(proto: Any, message: str) -> None:
    inputs = [info("x", [2], STRING), info("other", [3], STRING)]
    program = nova.from_onnx(model([proto], inputs, ["y"], {"pads": np.array([1, 1])}))
    with pytest.raises(errors.NovaError, match=message) as raised:
        program(["a", "b"], ["a", "b", "c"])
    assert proto.op_type in str(raised.value)


def test_wrong_arguments_for_strings() -> None:
    program = nova.from_onnx(model([node("Identity", "x")], [info("x", [2], STRING)], ["y"]))
    with pytest.raises(errors.DTypeError, match="input 'x' takes strings, and has a int"):
        program([1, 2])
    with pytest.raises(errors.ArgumentShapeError, match=r"shape \(3,\), the model takes \[2\]"):
        program(["a", "b", "c"])
    with pytest.raises(errors.DTypeError, match="strings: Nova has no tensors of this type"):
        _ = program.graph
    with pytest.raises(errors.OnnxError, match="the value 'missing' is used before"):
        nova.from_onnx(
            model([node("StringConcat", "x", "missing")], [info("x", [1], STRING)], ["y"])
        )(["a"])


# --- the import report ----------------------------------------------------------------------------


def test_the_report_names_nodes_of_the_host() -> None:
    rows = {row.op: row for row in nova.import_report(detector(), shapes={"n": 6}).rows}
    assert rows["NonMaxSuppression"].outcome == "falls back"
    assert "depends on values of a run" in rows["NonMaxSuppression"].reason
    nodes = [
        node("StringSplit", "text", outputs=["parts", "counts"]),
        node("Mul", "counts", "counts", outputs=["squares"]),
        node("RegexFullMatch", "text", outputs=["match"], pattern="a"),
        node("Neg", "x"),
    ]
    inputs = [info("text", [2], STRING), info("x", [2])]
    report = nova.import_report(model(nodes, inputs, ["parts", "squares", "match", "y"]))
    outcomes = {row.op: row.outcome for row in report.rows}
    assert outcomes == {
        "StringSplit": "falls back",
        "Mul": "supported",
        "RegexFullMatch": "unsupported",
        "Neg": "supported",
    }
    assert not report.is_supported and report.error is None


# --- programs of parts, and files that are damaged ------------------------------------------------


def test_an_axis_that_changes_has_one_program() -> None:
    nodes = [
        node("NonZero", "x", outputs=["at"]),
        node("Mul", "at", "at"),
    ]
    program = nova.from_onnx(model(nodes, [info("x", [8])], ["y"]))
    made = []
    for count in (3, 4, 5, 6, 7):
        x = np.arange(8, dtype="f4") >= 8 - count
        np.testing.assert_array_equal(program(x.astype("f4")), np.flatnonzero(x)[None] ** 2)
        [(_, part)] = program._divided._programs.values()
        made.append(part)
    assert made[0] is not made[1] and all(part is made[1] for part in made[2:])


def worded() -> Any:
    nodes = [
        node("StringSplit", "text", outputs=["parts", "counts"], delimiter=" "),
        node("LabelEncoder", "parts", domain=ML, keys_strings=["a", "b"], values_int64s=[1, 2]),
        node("StringNormalizer", "text", outputs=["upper"], case_change_action="UPPER"),
    ]
    return model(nodes, [info("text", [2], STRING)], ["y", "upper", "counts"])


def test_names_that_are_not_utf8_are_refused() -> None:
    data = worded().SerializeToString().replace(b"upper", b"upp\xffr")
    with pytest.raises(errors.OnnxError, match="a name in the model is not UTF-8"):
        nova.from_onnx(data)


def test_a_tensor_with_too_few_strings_is_refused() -> None:
    proto = model([node("Concat", "x", "w", axis=0)], [info("x", [1], STRING)], ["y"])
    proto.graph.initializer.append(helper.make_tensor("w", STRING, [2], ["a", "b"]))
    del proto.graph.initializer[0].string_data[1]
    with pytest.raises(errors.OnnxError, match=r"'w' has 1 strings and the shape \(2,\)"):
        nova.from_onnx(proto)(["c"])


def test_words_for_numbers_are_refused() -> None:
    program = nova.from_onnx(model([node("Neg", "x")], [info("x", [2])], ["y"]))
    with pytest.raises(errors.ArgumentDTypeError, match=r"takes float32, and .* has other values"):
        program(["a", "b"])


def test_damaged_models_raise_errors_of_nova() -> None:
    random = np.random.default_rng(0)
    box = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], "f4")
    for proto, feed in ((worded(), [["a b", "b"]]), (detector(), [floats(1, 2, 5), box])):
        original = proto.SerializeToString()
        refused = 0
        for _ in range(200):
            data = np.frombuffer(original, np.uint8).copy()
            data[random.integers(data.size, size=2)] = random.integers(256, size=2)
            try:
                nova.from_onnx(data.tobytes()).run(*feed)
            except errors.NovaError:
                refused += 1
        assert refused > 50
