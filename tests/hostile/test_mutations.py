"""Thousands of damaged files through the loader: no crash, no hang, no wrong answer.

Each batch runs in a process of its own. When that one dies, the number of the file that killed it
is in the message.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from batches import LARGE, campaign, run_batch

SIZE = 1000
BATCHES = [0, 1, *(pytest.param(batch, marks=pytest.mark.slow) for batch in range(2, 5))]


def check(outcomes: Counter[str], count: int) -> None:
    """Every file was tried, and enough of them went far enough to mean something."""
    assert outcomes.total() == count
    modes = {name.partition(": ")[2] for name in outcomes}
    assert len(modes) > 40, modes
    stopped = sum(n for name, n in outcomes.items() if name.startswith("sealed: seal-"))
    assert stopped < count / 10  # the hashes were right
    assert outcomes["open: another program"] == 0
    assert outcomes["sealed: the same program"] > count / 20
    accepted = ("sealed: another program", "sealed: other code")
    assert sum(n for name, n in outcomes.items() if name.startswith(accepted)) > count / 100
    # Kernels get operands of the right size, and everything is written before it is read: few
    # programs are left that compute something else without an error.
    assert outcomes["sealed: another program"] < count / 100


@pytest.mark.parametrize("batch", BATCHES)
def test_load(batch: int, sound: Path, tmp_path: Path) -> None:
    check(run_batch("load", sound, batch * SIZE, SIZE, tmp_path), SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("first", campaign("HOSTILE_FILES", 1_000_000))
def test_load_more(first: int, sound: Path, tmp_path: Path) -> None:
    check(run_batch("load", sound, first, LARGE, tmp_path), LARGE)


def test_a_file_that_only_its_run_refuses(sound: Path, tmp_path: Path) -> None:
    """File 1,093,401 passes the checks of the loader; its run ended with a bare ValueError once."""
    assert run_batch("load", sound, 1_093_401, 1, tmp_path).total() == 1


@pytest.mark.parametrize(("fault", "status"), [("crash", -11), ("hang", -14), ("wrong", 1)])
def test_faults_are_found(fault: str, status: int, sound: Path, tmp_path: Path) -> None:
    """A process that dies, hangs or sees a wrong answer fails the test, with the number."""
    with pytest.raises(AssertionError, match=f"^file 3 ended the process with {status}, after 3"):
        run_batch(f"load+{fault}", sound, 0, 10, tmp_path)
