"""`--part K/N`: all parts together run every test once."""

from __future__ import annotations

import nightly
import pytest


def test_parts_of_a_run_have_every_test_once() -> None:
    items = list(range(103))
    parts = [nightly.take_part(items, f"{part}/8") for part in range(1, 9)]
    assert sorted(item for part in parts for item in part) == items
    assert {len(part) for part in parts} == {12, 13}


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "a/b", "1/2/3", ""])
def test_what_is_not_a_part(text: str) -> None:
    with pytest.raises(ValueError):
        nightly.part_of(text)
