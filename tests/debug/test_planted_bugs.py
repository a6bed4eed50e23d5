"""Planted compiler bugs: a checked run names the right step, and minimize gets to a few ops."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_bugs import BUGS, Bug

import nova
from nova.api.compile import clear_memory_cache
from nova.debug import minimize
from nova.errors import CheckError


@pytest.fixture(autouse=True)
def no_caches() -> Iterator[None]:
    clear_memory_cache()
    with nova.knobs.override(cache=False):
        yield
    clear_memory_cache()


def test_there_are_twenty() -> None:
    assert len({bug.name for bug in BUGS}) >= 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name.replace(" ", "-").replace(",", ""))
def test_planted_bug(bug: Bug, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    with nova.knobs.override(check="1", **dict(bug.knobs)):
        with bug.plant():
            program, arrays = bug.build()
            before = [a.copy() for a in arrays]
            with pytest.raises(CheckError) as caught:
                program(*arrays)
            finding = caught.value.finding
            assert (finding.op, finding.kind) == (bug.op, bug.kind)
            assert finding.operand == bug.operand
            assert Path(finding.location.file).name == "planted_bugs.py"
            assert finding.signature.startswith(f"{bug.op}(")
            for array, old in zip(arrays, before, strict=True):
                assert array.tobytes() == old.tobytes(), "a failed check changes nothing"
            reduction = minimize(program, path=script)
            assert 1 <= len(reduction.plan.steps) <= 5
            assert reduction.error.finding.op == bug.op
            clear_memory_cache()
            with pytest.raises(CheckError):
                runpy.run_path(str(script))
        clear_memory_cache()
        runpy.run_path(str(script))
