"""torch's own op samples (OpInfo) through the backend's compiler, against eager."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.utils._pytree import tree_flatten, tree_unflatten

from nova.api.torch_backend.backend import compile_graph
from nova.api.torch_backend.options import Options
from nova.errors import FallbackWarning
from nova.frontends.torch.decompositions import decompositions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SAMPLES = 8
"""Samples of each op and dtype."""

# Results are random, or memory without values, or samples are views of larger storage.
INCOMPARABLE = {
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"),
    *("bernoulli", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn"),
    *("randn_like", "uniform", "cauchy", "exponential", "geometric", "log_normal"),
    *("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d"),
    *("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
    *("nn.functional.multi_head_attention_forward", "pca_lowrank", "svd_lowrank"),
    *("nn.functional.scaled_dot_product_attention", "as_strided"),
}
# torch's own `aot_eager` has other results than eager for complex matrices.
WRONG_IN_TORCH = {(name, torch.complex64) for name in ("pinverse", "linalg.pinv")}
# The position among equal elements is unspecified: only values are compared.
TIED = {"topk", "kthvalue", "median", "nanmedian", "mode", "sort", "msort"}
# Sizes of results that depend on values, which dynamo leaves to eager.
UNTRACEABLE = (DataDependentOutputException, DynamicOutputShapeException)
TOLERANCES = {
    torch.float32: (2e-4, 2e-5),
    torch.float64: (1e-6, 1e-8),
    torch.bfloat16: (3e-2, 2e-2),
    torch.complex64: (2e-4, 2e-5),
}
LEAST = {
    torch.float32: 1500,
    torch.float64: 1400,
    torch.int64: 500,
    torch.bool: 300,
    torch.complex64: 2000,
}
"""Samples that must be compared, by dtype."""


def op_samples(op: Any, dtype: torch.dtype) -> list[tuple[list[Any], Any, Any]]:
    """Leaves, tree and eager result of the samples of an op."""
    samples = []
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:SAMPLES]:
        leaves, tree = tree_flatten((sample.input, sample.args, sample.kwargs))
        try:
            expected = op.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        samples.append((leaves, tree, expected))
    return samples


def run_compiled(op: Any, samples: list[tuple[list[Any], Any, Any]]) -> list[Any]:
    """The results of several samples, computed by one compiled graph."""
    tensors = [x for leaves, _, _ in samples for x in leaves if isinstance(x, torch.Tensor)]

    def run(*args: torch.Tensor) -> list[Any]:
        feed, results = iter(args), []
        for leaves, tree, _ in samples:
            values = [next(feed) if isinstance(x, torch.Tensor) else x for x in leaves]
            first, positional, keywords = tree_unflatten(values, tree)
            results.append(op.op(first, *positional, **keywords))
        return results

    def compiler(graph: torch.fx.GraphModule, examples: Any) -> Any:
        return compile_graph(graph, Options(), "op")

    compiled = aot_function(
        run,
        compiler,
        compiler,
        inference_compiler=compiler,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )
    with torch.no_grad():
        return list(compiled(*[t.detach().clone() for t in tensors]))


def tolerances(dtype: torch.dtype, expected: Any) -> tuple[float, float]:
    """Those of the operands' dtype; of integers and bools, those of the results."""
    results = [t for t in tree_flatten(expected)[0] if isinstance(t, torch.Tensor)]
    exact = TOLERANCES.get(dtype, (0.0, 0.0))
    return max((TOLERANCES.get(t.dtype, exact) for t in results), default=exact)


def compare(op: Any, dtype: torch.dtype, counts: Counter[str]) -> list[str]:
    """Run the samples of an op; texts of wrong results."""
    samples = op_samples(op, dtype)
    try:
        pairs = list(zip(samples, run_compiled(op, samples), strict=True)) if samples else []
    except Exception:  # a sample that torch does not trace: one by one
        pairs = []
        for sample in samples:
            try:
                pairs.append((sample, run_compiled(op, [sample])[0]))
            except (*UNTRACEABLE, AssertionError, NotImplementedError):
                counts["untraceable"] += 1
    wrong = []
    for (_, _, expected), result in pairs:
        rtol, atol = tolerances(dtype, expected)
        if op.name in TIED and isinstance(expected, tuple):
            result, expected = result[0], expected[0]
        try:
            torch.testing.assert_close(
                result, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
            )
            counts["compared"] += 1
        except AssertionError as error:
            wrong.append(f"{op.name} {op.variant_test_name}: {error}")
    return wrong


@pytest.mark.parametrize("dtype", LEAST, ids=str)
def test_op_samples_agree_with_eager(dtype: torch.dtype) -> None:
    pytest.importorskip("expecttest", reason="torch's database of ops imports it")
    from torch.testing._internal.common_methods_invocations import op_db

    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for op in op_db:
        is_sparse = op.name.startswith("sparse.")
        # Without a tie, positions are compared.
        if op.name == "argsort" and not dtype.is_floating_point:
            continue
        if op.name in INCOMPARABLE or is_sparse or dtype not in op.supported_dtypes("cpu"):
            continue
        if (op.name, dtype) in WRONG_IN_TORCH or op.name.startswith("jiterator"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            wrong += compare(op, dtype, counts)
    assert not wrong, "\n\n".join(wrong[:20])
    assert counts["compared"] >= LEAST[dtype], counts
