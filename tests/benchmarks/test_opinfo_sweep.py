"""torch's own op samples (OpInfo) through Nova's functions, forward and gradient, against torch.

`make test` runs a few samples of one op of each family; `make nightly` compiles all of them, in
parts, and compares docs/opinfo.md with the outcomes of today.
"""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("expecttest", reason="torch's database of ops imports it")

import opinfo_sweep
from opinfo_samples import ops

pytestmark = pytest.mark.filterwarnings("ignore")

FEW = (
    *("__rand__", "where", "var", "sort", "gather", "einsum", "roll", "transpose"),
    *("nn.functional.conv2d", "nn.functional.cross_entropy", "linalg.cholesky"),
)
PARTS = 16
LEAST = 9900
"""Samples that must pass, of all parts."""


def bad(results: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in results.items() if text.startswith(("wrong", "unclean"))}


def test_a_few_samples_agree_with_torch() -> None:
    counts: Counter[str] = Counter()
    for op in ops(FEW):
        results = opinfo_sweep.run_op(op, 1, compiled=True)
        assert not bad(results)
        counts[op.name] += sum(text == "pass" for text in results.values())
    assert counts.keys() == set(FEW)
    assert min(counts.values()) > 0 and counts.total() > 25, counts


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_samples_agree_with_torch(part: int) -> None:
    counts: Counter[str] = Counter()
    for op in list(ops())[part::PARTS]:
        results = opinfo_sweep.run_op(op, compiled=True)
        assert not bad(results)
        counts.update(text.partition(":")[0] for text in results.values())
    assert counts["pass"] > 0.6 * LEAST / PARTS, counts


@pytest.mark.slow
def test_the_page_is_current() -> None:
    """By the numpy interpreter, which is fast."""
    results = {op.formatted_name: opinfo_sweep.run_op(op, compiled=False) for op in ops()}
    assert opinfo_sweep.PAGE.read_text() == opinfo_sweep.render_page(results)
    assert sum(t == "pass" for r in results.values() for t in r.values()) >= LEAST
