"""Rows of ai.onnx.ml without trees: linear models, SVMs, scalers and encoders."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from nova.core.dtypes import f32, i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import ML, row
from nova.ops import F


def _floats(node: Node, name: str, default: Any = None) -> Any:
    values = node.attr(name, None) or default
    return None if values is None else constant(np.asarray(values, np.float32))


def transformed(scores: Any, mode: str) -> Any:
    """Scores after the attribute `post_transform`."""
    if mode == "NONE":
        return scores
    if mode == "LOGISTIC":
        return F.sigmoid(scores)
    if mode == "SOFTMAX":
        return F.softmax(scores, axis=-1)
    if mode == "SOFTMAX_ZERO":
        zero = F.eq(scores, 0)
        exponents = F.where(zero, 0.0, F.exp(scores - F.max(scores, axis=-1, keepdims=True)))
        return exponents / F.sum(exponents, axis=-1, keepdims=True)
    if mode == "PROBIT":
        return _probit(scores)
    raise OnnxError(f"post_transform is {mode!r}")


def _probit(x: Any) -> Any:
    """sqrt(2) erfinv(x) by Winitzki's approximation, as the ONNX reference has it."""
    log = F.log((1 - x) * (1 + x))
    half = 2 / (pi * 0.147) + log * 0.5
    root = F.sqrt(F.sqrt(half * half - log / 0.147) - half)
    return F.sign(x) * root * float(np.sqrt(2))


def labels_of(node: Node) -> Any:
    """The class labels of a classifier, as a constant."""
    if node.attr("classlabels_strings", None):
        raise node.refused("string labels", "use integer labels")
    # Trees and linear models spell the attribute differently.
    labels = node.attr("classlabels_int64s", None) or node.attr("classlabels_ints", None)
    if not labels:
        raise OnnxError(f"{node.op} has no class labels")
    return constant(np.asarray(labels, np.int64))


def classify(node: Node, scores: Any, labels: Any, threshold: float = 0.5) -> tuple[Any, Any]:
    """The label and the transformed scores of each row; one column means two classes."""
    mode = node.attr("post_transform", "NONE")
    if scores.shape[1] == 1 and labels.size == 2:
        if mode == "NONE":
            scores = F.concat([1 - scores, scores], axis=1)
            return F.take(labels, cast(F.gt(scores[:, 1], threshold), i64), axis=0), scores
        if mode == "LOGISTIC":
            shares = F.sigmoid(scores)
            both = F.concat([1 - shares, shares], axis=1)
            return F.take(labels, cast(F.gt(scores[:, 0], 0), i64), axis=0), both
        scores = F.concat([F.neg(scores), scores], axis=1)
    return F.take(labels, F.argmax(scores, axis=1), axis=0), transformed(scores, mode)


@row("LinearClassifier", domain=ML)
def _linear_classifier(node: Node) -> Any:
    x = cast(node.tensor(0), f32)
    labels = labels_of(node)
    weight = _floats(node, "coefficients")
    count = weight.size // x.shape[1]
    scores = F.matmul(x, F.transpose(F.reshape(weight, (count, x.shape[1]))))
    bias = _floats(node, "intercepts")
    scores = scores if bias is None else scores + bias
    mode = node.attr("post_transform", "NONE")
    if count == 1 and labels.size == 2 and mode == "NONE":
        both = F.concat([F.neg(scores), scores], axis=1)
        return F.take(labels, cast(F.gt(scores[:, 0], 0), i64), axis=0), both
    return classify(node, scores, labels)


@row("LinearRegressor", domain=ML)
def _linear_regressor(node: Node) -> Any:
    x = cast(node.tensor(0), f32)
    weight, targets = _floats(node, "coefficients"), node.attr("targets", 1)
    scores = F.matmul(x, F.transpose(F.reshape(weight, (targets, x.shape[1]))))
    bias = _floats(node, "intercepts")
    scores = scores if bias is None else scores + bias
    return transformed(scores, node.attr("post_transform", "NONE"))


def _kernel(node: Node, x: Any, vectors: Any) -> Any:
    """The kernel of all rows of x with all support vectors."""
    name = node.attr("kernel_type", "LINEAR")
    gamma, offset, degree = (node.attr("kernel_params", None) or [0.0, 0.0, 0.0])[:3]
    product = F.matmul(x, F.transpose(vectors))
    if name == "LINEAR":
        return product
    if name == "POLY":
        return F.pow(product * gamma + offset, degree)
    if name == "SIGMOID":
        return F.tanh(product * gamma + offset)
    if name == "RBF":
        difference = F.unsqueeze(x, 1) - F.unsqueeze(vectors, 0)
        return F.exp(F.sum(F.square(difference), axis=2) * -gamma)
    raise OnnxError(f"{node.op}: kernel_type {name!r}")


@row("SVMRegressor", domain=ML)
def _svm_regressor(node: Node) -> Any:
    x = cast(node.tensor(0), f32)
    coefficients, rho = _floats(node, "coefficients"), _floats(node, "rho", [0.0])
    count = node.attr("n_supports", 0)
    if count:
        vectors = F.reshape(_floats(node, "support_vectors"), (count, x.shape[1]))
        scores = F.matmul(_kernel(node, x, vectors), F.reshape(coefficients, (count, 1))) + rho
    else:
        scores = F.matmul(x, F.reshape(coefficients, (-1, 1))) + rho
    if node.attr("one_class", 0):
        scores = F.where(F.gt(scores, 0), 1.0, -1.0)
    return transformed(scores, node.attr("post_transform", "NONE"))


@row("Scaler", domain=ML)
def _scaler(node: Node) -> Any:
    x = cast(node.tensor(0), f32)
    offset, scale = _floats(node, "offset", [0.0]), _floats(node, "scale", [1.0])
    return (x - offset) * scale


@row("Normalizer", domain=ML)
def _normalizer(node: Node) -> Any:
    x = cast(node.tensor(0), f32)
    norm = node.attr("norm", "MAX")
    if norm == "MAX":
        size = F.max(x, axis=-1, keepdims=True)
    elif norm == "L1":
        size = F.sum(F.abs(x), axis=-1, keepdims=True)
    else:
        size = F.sqrt(F.sum(F.square(x), axis=-1, keepdims=True))
    return F.where(F.eq(size, 0), x, x / F.where(F.eq(size, 0), 1.0, size))


@row("Binarizer", domain=ML)
def _binarizer(node: Node) -> Any:
    x = node.tensor(0)
    return cast(F.gt(x, node.attr("threshold", 0.0)), x.dtype)


@row("Imputer", domain=ML)
def _imputer(node: Node) -> Any:
    x = node.tensor(0)
    if x.dtype.is_float:
        values = constant(np.asarray(node.attr("imputed_value_floats"), x.dtype.numpy))
        missing = node.attr("replaced_value_float", 0.0)
        matches = F.isnan(x) if np.isnan(missing) else F.eq(x, missing)
    else:
        values = constant(np.asarray(node.attr("imputed_value_int64s"), np.int64))
        matches = F.eq(x, node.attr("replaced_value_int64", 0))
    return F.where(matches, values, x)


@row("ArrayFeatureExtractor", domain=ML)
def _array_feature(node: Node) -> Any:
    x, index = node.tensor(0), node.tensor(1)
    gathered = F.take(x, F.reshape(index, (index.size,)), axis=x.ndim - 1)
    return F.reshape(gathered, (1, -1)) if x.ndim == 1 else gathered


@row("FeatureVectorizer", domain=ML)
def _feature_vectorizer(node: Node) -> Any:
    columns = [F.reshape(cast(x, f32), (x.shape[0], -1)) for x in node.tensors()]
    return F.concat(columns, axis=1) if len(columns) > 1 else columns[0]


@row("OneHotEncoder", domain=ML)
def _one_hot_encoder(node: Node) -> Any:
    x = node.tensor(0)
    if node.attr("cats_strings", None):
        raise node.refused("strings")
    categories = constant(np.asarray(node.attr("cats_int64s"), np.int64))
    return cast(F.eq(F.unsqueeze(cast(x, i64), x.ndim), categories), f32)


@row("LabelEncoder", domain=ML)
def _label_encoder(node: Node) -> Any:
    x = node.tensor(0)
    tensors = {k: v for k, v in node.attrs.items() if k in ("keys_tensor", "values_tensor")}
    keys = tensors.get("keys_tensor")
    values = tensors.get("values_tensor")
    for name, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if node.attr(f"keys_{name}", None) is not None:
            keys = np.asarray(node.attr(f"keys_{name}"), dtype)
        if node.attr(f"values_{name}", None) is not None:
            values = np.asarray(node.attr(f"values_{name}"), dtype)
    if keys is None or values is None or keys.dtype.kind in "OUS" or values.dtype.kind in "OUS":
        raise node.refused("strings")
    default = node.attrs.get("default_tensor")
    if default is None:
        default = node.attr("default_int64", -1)
        if values.dtype.kind == "f":
            default = node.attr("default_float", 0.0)
    out: Any = constant(np.asarray(default, values.dtype).reshape(()))
    for key, value in zip(keys.reshape(-1), values.reshape(-1), strict=True):
        matches = F.isnan(x) if key != key else F.eq(x, constant(np.asarray(key, x.dtype.numpy)))
        out = F.where(matches, constant(np.asarray(value)), out)
    return out
