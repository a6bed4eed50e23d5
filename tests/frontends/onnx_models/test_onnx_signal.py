"""Fourier transforms, complex tensors and n-grams of ONNX, against numpy and other evaluators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper
from onnx.reference import ReferenceEvaluator

import nova
from nova.graph.autodiff import gradients

RNG = np.random.default_rng(5)


def model(nodes: list[Any], feed: dict[str, np.ndarray], outputs: list[str]) -> Any:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph(nodes, "graph", inputs, results)
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def as_complex(parts: np.ndarray) -> np.ndarray:
    return parts[..., 0] + 1j * parts[..., 1]


@pytest.mark.parametrize("length", [24, 101, 10000])
def test_transforms_of_any_length(length: int) -> None:
    x = RNG.standard_normal((2, length, 2)).astype("f4")
    nodes = [
        helper.make_node("DFT", ["x"], ["full"]),
        helper.make_node("DFT", ["full"], ["back"], inverse=1),
        helper.make_node("DFT", ["signal"], ["half"], onesided=1),
    ]
    feed = {"x": x, "signal": x[..., :1].copy()}
    full, back, half = nova.from_onnx(model(nodes, feed, ["full", "back", "half"])).run(**feed)
    tolerance = 1e-5 * np.sqrt(length)
    np.testing.assert_allclose(as_complex(full), np.fft.fft(as_complex(x)), atol=5 * tolerance)
    np.testing.assert_allclose(back, x, atol=tolerance)
    np.testing.assert_allclose(as_complex(half), np.fft.rfft(x[..., 0]), atol=5 * tolerance)


def test_gradients_of_a_transform_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 18, 1)).astype("f4")
    proto = model([helper.make_node("DFT", ["x"], ["y"], onesided=1)], {"x": x}, ["y"])
    graph = nova.from_onnx(proto).graph
    [leaf], [result] = graph.placeholders(), graph.results()
    weights = RNG.standard_normal(result.shape).astype("f4")
    [gradient] = gradients(nova.sum(result * weights), [leaf])
    ours = nova.compile(gradient, inputs=[leaf])(x)

    t = torch.from_numpy(x).requires_grad_()
    parts = torch.view_as_real(torch.fft.rfft(t[..., 0]))
    (parts * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_allclose(ours, t.grad, atol=1e-4)


def test_complex_tensors_are_moved_and_returned() -> None:
    z = (RNG.standard_normal((2, 3)) + 1j * RNG.standard_normal((2, 3))).astype("c8")
    nodes = [
        helper.make_node("Transpose", ["z"], ["t"]),
        helper.make_node("Concat", ["t", "t"], ["y"], axis=1),
    ]
    proto = model(nodes, {"z": z}, ["y"])
    result = nova.from_onnx(proto)(z)
    [expected] = ReferenceEvaluator(proto).run(None, {"z": z})
    assert result.dtype == np.complex64
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
def test_counts_of_ngrams_have_weights(mode: str, skips: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x = RNG.integers(1, 5, (3, 12)).astype("i8")
    options = {
        "mode": mode,
        "min_gram_length": 1,
        "max_gram_length": 3,
        "max_skip_count": skips,
        "pool_int64s": [2, 3, 4, 1, 2, 3, 3, 1, 2, 3],
        "ngram_counts": [0, 3, 7],
        "ngram_indexes": [3, 0, 1, 2, 4, 5],
        "weights": [0.5, 2.0, 3.0, 0.25, 1.5, 4.0],
    }
    proto = model([helper.make_node("TfIdfVectorizer", ["x"], ["y"], **options)], {"x": x}, ["y"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [3, 6]))
    session = runtime.InferenceSession(proto.SerializeToString())
    [expected] = session.run(None, {"x": x})
    np.testing.assert_allclose(nova.from_onnx(proto)(x), expected)
