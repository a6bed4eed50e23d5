"""ONNX's own tests through the importer: by the numpy interpreter, and compiled."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import islice

import pytest

pytest.importorskip("onnx")

from onnx_cases import Case, cases, outcome

from nova.frontends.onnx.rows import load_rows
from nova.frontends.onnx.table import ROWS

KINDS = ("simple", "pytorch-operator", "pytorch-converted")
# Rows that no node test has; tests in `test_onnx_rows.py` and `test_onnx_export.py` cover them.
UNTESTED = {
    *("ConcatFromSequence", "GlobalLpPool", "Multinomial", "Optional", "RandomNormal"),
    *("RandomNormalLike", "RandomUniform", "SequenceAt", "SequenceConstruct", "SequenceErase"),
    *("FeatureVectorizer", "Imputer", "LinearClassifier", "LinearRegressor", "Normalizer"),
    *("OneHotEncoder", "SVMRegressor", "Scaler", "TreeEnsembleClassifier"),
    *("TreeEnsembleRegressor", "Gradient"),
}
PARTS = 16


@cache
def one_case_per_op() -> dict[tuple[str, str], Case]:
    """For every op its first case; expanded ones test other ops, so they come last."""
    chosen: dict[tuple[str, str], Case] = {}
    for case in sorted(cases("node"), key=lambda case: case.name.endswith("_expanded")):
        for op in case.ops():
            chosen.setdefault(op, case)
    return chosen


def test_every_row_passes_a_node_test() -> None:
    load_rows()
    chosen = one_case_per_op()
    missing = {name for (domain, name), row in ROWS.items() if row.build} - {n for _, n in chosen}
    assert missing <= UNTESTED
    outcomes = {op: outcome(case, compiled=False) for op, case in chosen.items()}
    wrong = {op: text for op, text in outcomes.items() if text.startswith("wrong")}
    assert not wrong
    rowless = {op for op, text in outcomes.items() if text.startswith("refused")}
    assert len(outcomes) - len(rowless) >= 175


def test_small_models_pass() -> None:
    for kind in KINDS:
        texts = [(case.name, outcome(case, compiled=False)) for case in cases(kind)]
        failed = [text for text in texts if text[1] != "pass"]
        assert not failed


SAMPLE = (
    *("test_add_int16", "test_add_uint64", "test_cast_FLOAT_to_FLOAT8E4M3FN", "test_if"),
    *("test_conv_with_strides_padding", "test_loop11", "test_lstm_with_peepholes", "test_top_k"),
    *("test_quantizelinear_axis", "test_resize_upsample_scales_cubic", "test_scan9_sum"),
    *("test_maxpool_with_argmax_2d_precomputed_pads", "test_einsum_batch_matmul"),
)


@pytest.mark.parametrize("name", SAMPLE)
def test_compiled_nodes_pass(name: str) -> None:
    [case] = [case for case in cases("node") if case.name == name]
    assert outcome(case, compiled=True) == "pass"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_compiled_nodes_pass_or_are_refused(part: int) -> None:
    texts = {
        case.name: outcome(case, compiled=True) for case in islice(cases("node"), part, None, PARTS)
    }
    assert not {n: t for n, t in texts.items() if t.startswith("wrong")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_models_pass(kind: str) -> None:
    texts = [(case.name, outcome(case, compiled=True)) for case in cases(kind)]
    assert not [text for text in texts if text[1] != "pass"]


@pytest.mark.slow
def test_counts_of_node_tests() -> None:
    """By the interpreter: the compiled sweep above has the same graphs."""
    counts = Counter(outcome(case, compiled=False).partition(":")[0] for case in cases("node"))
    assert counts["wrong"] == 0
    assert counts["pass"] >= 1743
