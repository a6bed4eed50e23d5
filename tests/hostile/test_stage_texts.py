"""Thousands of damaged texts of every stage, imported programs, plans and PTX: no crash, no hang.

Each batch runs in a process of its own. When that one dies, or gets another error than one of
Nova's, the number of the text is in the message.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from batches import LARGE, campaign, run_texts

SIZE = 60


def check(outcomes: Counter[str], count: int) -> None:
    """Every text was tried, and enough of them came further than the parser."""
    full = {name: n for name, n in outcomes.items() if ": " not in name}
    assert sum(full.values()) == count
    accepted = sum(n for name, n in full.items() if name.startswith("accepted"))
    assert accepted > count / 20
    assert full["MLIRSyntaxError"] < count * 9 / 10
    assert outcomes["crashed"] + outcomes["stopped"] < count / 20


@pytest.mark.parametrize("batch", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_texts(batch: int, texts: Path) -> None:
    check(run_texts(texts, batch * SIZE, SIZE), SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("first", campaign("HOSTILE_TEXTS", 1_000_000))
def test_more_texts(first: int, texts: Path) -> None:
    check(run_texts(texts, first, LARGE), LARGE)
