"""Ops that compute or move strings.

An op that only moves elements (Reshape, Gather, Concat, ...) is evaluated by the importer's row on
the positions of the elements, which then select the strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.element_types import DTYPES, constant
from nova.frontends.onnx.host.table import (
    host_row,
    is_string_array,
    object_array,
    string_array,
)
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.package import onnx_package

MOVES = (
    *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
    *("Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
)
GIVE_STRINGS = (
    *MOVES,
    *("ArrayFeatureExtractor", "Compress", "StringConcat", "StringNormalizer", "StringSplit"),
    "Unique",
)
"""Ops whose results, or the first of them, are strings if an input is."""
SIZES = ("Shape", "Size")


def evaluate_row(node: Node, domain: str, inputs: list[Any], attrs: dict[str, Any]) -> list[Any]:
    """The results of the importer's row for arrays, as arrays."""
    values = [None if value is None else constant(value) for value in inputs]
    results = node.importer.build_row(node, domain, values, attrs)
    return [node.importer.evaluate(value) for value in results]


@host_row(*MOVES)
def _move(node: Node) -> Any:
    pool: list[str] = []
    codes: list[Any] = []
    for value in node.inputs:
        if is_string_array(value):
            codes.append(np.arange(len(pool), len(pool) + value.size).reshape(value.shape))
            pool += value.reshape(-1).tolist()
        else:
            codes.append(value)
    results = evaluate_row(node, "", codes, node.attrs)
    strings = object_array(pool, (len(pool),))
    return tuple(
        strings[positions.astype(np.int64)].reshape(positions.shape) for positions in results
    )


@host_row(*SIZES)
def _sizes(node: Node) -> Any:
    codes = np.zeros(node.value(0).shape, np.int64)
    return tuple(evaluate_row(node, "", [codes], node.attrs))


@host_row("Constant")
def _constant(node: Node) -> Any:
    if "value_string" in node.attrs:
        return string_array(node.attrs["value_string"], "value_string")
    value = node.attrs.get("value_strings", node.attrs.get("value"))
    return string_array(value, node.op)


@host_row("Cast")
def _cast(node: Node) -> Any:
    dtype = DTYPES.get(node.attr("to"))
    if not is_string_array(node.value(0)) or dtype is None or dtype.is_complex:
        raise node.refused("only strings are converted to numbers, and not numbers to strings")
    convert: Callable[[str], Any] = float if dtype.is_float else int
    flat = [convert(text) for text in node.value(0).reshape(-1)]
    return np.array(flat).astype(dtype.numpy).reshape(node.value(0).shape)


@host_row("Equal")
def _equal(node: Node) -> Any:
    return np.asarray(node.value(0) == node.value(1), bool)


@host_row("StringConcat")
def _concat(node: Node) -> Any:
    return np.asarray(node.value(0) + node.value(1), object)


@host_row("StringSplit")
def _split(node: Node) -> Any:
    texts = node.value(0)
    most = node.attr("maxsplit", None)
    parts = [
        text.split(node.attr("delimiter", "") or None, -1 if most is None else most)
        for text in texts.reshape(-1)
    ]
    width = max(map(len, parts), default=0)
    padded = [word for words in parts for word in (*words, *[""] * (width - len(words)))]
    counts = np.array([len(words) for words in parts], np.int64)
    return object_array(padded, (*texts.shape, width)), counts.reshape(texts.shape)


@host_row("StringNormalizer")
def _normalize(node: Node) -> Any:
    texts = node.value(0)
    if texts.ndim not in (1, 2) or (texts.ndim == 2 and texts.shape[0] != 1):
        raise OnnxError(f"StringNormalizer takes the shapes [C] and [1, C], not {texts.shape}")
    action = node.attr("case_change_action", "NONE")
    actions: Mapping[str, Callable[[str], str]] = {
        "NONE": str,
        "LOWER": str.lower,
        "UPPER": str.upper,
    }
    convert = actions.get(action)
    if convert is None:
        raise OnnxError(f"StringNormalizer: case_change_action is {action!r}")
    # Without case both sides are compared in lower case.
    key: Callable[[str], str] = str if node.attr("is_case_sensitive", 0) else str.lower
    stop = {key(word) for word in node.attr("stopwords", ())}
    words = [convert(text) for text in texts.reshape(-1) if key(text) not in stop] or [""]
    return object_array(words, (*texts.shape[:-1], len(words)))


@host_row("TfIdfVectorizer")
def _tfidf(node: Node) -> Any:
    """By the row for integers: a word is its position in the vocabulary."""
    pool = node.attr("pool_strings")
    numbers: dict[str, int] = {}
    for word in pool:
        numbers.setdefault(word, len(numbers))
    texts = node.value(0)
    codes = np.array([numbers.get(t, -1) for t in texts.reshape(-1)], np.int64)
    attrs = {**node.attrs, "pool_int64s": [numbers[word] for word in pool]}
    return tuple(evaluate_row(node, "", [codes.reshape(texts.shape)], attrs))


def string_outputs(node: Any, has_string_input: bool) -> list[str]:
    """The results of a NodeProto that are strings."""
    STRING = onnx_package().TensorProto.STRING
    attrs = {attribute.name: attribute for attribute in node.attribute}
    is_string = False
    if node.op_type == "Constant":
        is_string = bool({"value_string", "value_strings"} & attrs.keys())
        is_string |= "value" in attrs and attrs["value"].t.data_type == STRING
    elif node.op_type == "Cast":
        is_string = "to" in attrs and attrs["to"].i == STRING
    elif node.op_type in ("LabelEncoder", "CategoryMapper"):
        is_string = _gives_labels(node, attrs, has_string_input)
    elif node.op_type in GIVE_STRINGS:
        is_string = has_string_input
    outputs = list(node.output)
    if node.op_type in ("StringSplit", "Unique"):
        outputs = outputs[:1]
    return outputs if is_string else []


def _gives_labels(node: Any, attrs: Any, has_string_input: bool) -> bool:
    if node.op_type == "CategoryMapper" or "classes_strings" in attrs:
        return not has_string_input
    STRING = onnx_package().TensorProto.STRING
    values = attrs.get("values_tensor")
    return "values_strings" in attrs or (values is not None and values.t.data_type == STRING)
