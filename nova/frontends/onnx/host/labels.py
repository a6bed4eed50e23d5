"""Ops between strings and numbers of ai.onnx.ml, and the map that ZipMap makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.frontends.onnx.host.strings import evaluate_row
from nova.frontends.onnx.host.table import host_row, is_string_array, object_array, string_array
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.table import ML

_NAN = object()


def _key(value: Any) -> Any:
    """A key of a dict: every NaN is the same one."""
    return _NAN if value != value else value


def _mapped(x: np.ndarray, keys: Any, values: np.ndarray, default: Any) -> np.ndarray:
    keys = [_key(key) for key in np.asarray(keys).reshape(-1).tolist()]
    table = dict(reversed(list(zip(keys, values.reshape(-1).tolist(), strict=True))))
    items = [table.get(_key(item), default) for item in x.reshape(-1).tolist()]
    if is_string_array(values):
        return object_array(items, x.shape)
    return np.array(items, values.dtype).reshape(x.shape)


_ARRAYS = {"int64s": np.int64, "floats": np.float32, "strings": object}


def _table(node: Node, side: str) -> np.ndarray:
    """The keys or values of a LabelEncoder."""
    tensor = node.attrs.get(f"{side}_tensor")
    if tensor is not None:
        return string_array(tensor, side) if is_string_array(tensor) else tensor
    for name, dtype in _ARRAYS.items():
        entries = node.attr(f"{side}_{name}", None)
        if entries is not None:
            return np.asarray(entries, dtype)
    raise OnnxError(f"LabelEncoder has no {side}")


@host_row("LabelEncoder", domain=ML)
def _label_encoder(node: Node) -> Any:
    x = node.value(0)
    classes = node.attr("classes_strings", None)
    if classes is not None:  # version 1: strings and their positions
        numbers = np.arange(len(classes))
        if is_string_array(x):
            return _mapped(
                x, string_array(classes, "classes"), numbers, node.attr("default_int64", -1)
            )
        names = string_array(classes, "classes")
        return _mapped(x, numbers, names, node.attr("default_string", "_Unused"))
    keys, values = _table(node, "keys"), _table(node, "values")
    default = node.attrs.get("default_tensor")
    if default is not None:
        flat = string_array(default, "default") if is_string_array(default) else default
        default = flat.reshape(-1)[0]
    elif is_string_array(values):
        default = node.attr("default_string", "_Unused")
    elif values.dtype.kind == "f":
        default = node.attr("default_float", -0.0)
    else:
        default = node.attr("default_int64", -1)
    return _mapped(x, keys, values, default)


@host_row("CategoryMapper", domain=ML)
def _category_mapper(node: Node) -> Any:
    x = node.value(0)
    texts = string_array(node.attr("cats_strings"), "cats_strings")
    numbers = np.asarray(node.attr("cats_int64s"), np.int64)
    if is_string_array(x):
        return _mapped(x, texts, numbers, node.attr("default_int64", -1))
    return _mapped(x, numbers, texts, node.attr("default_string", "_Unused"))


@host_row("OneHotEncoder", domain=ML)
def _one_hot_encoder(node: Node) -> Any:
    categories = string_array(node.attr("cats_strings"), "cats_strings")
    hot = node.value(0)[..., None] == categories
    if not node.attr("zeros", 1) and not hot.any(-1).all():
        raise OnnxError("OneHotEncoder: a string is not among the categories, and zeros is 0")
    return hot.astype(np.float32)


@host_row("ArrayFeatureExtractor", domain=ML)
def _array_feature(node: Node) -> Any:
    x = node.value(0)
    codes = np.arange(x.size).reshape(x.shape)
    [positions] = evaluate_row(node, ML, [codes, node.value(1)], node.attrs)
    return x.reshape(-1)[positions.astype(np.int64)]


@host_row("ZipMap", domain=ML)
def _zip_map(node: Node) -> Any:
    """A list with a dict per row, as the op's sequence of maps."""
    labels = node.attr("classlabels_strings", None) or node.attr("classlabels_int64s", None)
    scores = node.value(0)
    rows = scores.reshape(1, -1) if scores.ndim == 1 else scores
    if not labels or rows.ndim != 2 or rows.shape[1] != len(labels):
        raise OnnxError(f"ZipMap: {len(labels or ())} labels for scores of {scores.shape}")
    return ([dict(zip(labels, row.tolist(), strict=True)) for row in rows],)
