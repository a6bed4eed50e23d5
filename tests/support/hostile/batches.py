"""Starts `child.py` or `text_child.py` for a batch of damaged files or texts, and says how it went.

Called by the tests. The size of the nightly campaigns is that of the environment variables
HOSTILE_FILES and HOSTILE_TEXTS, and HOSTILE_SEED gives other damage; each batch is a test of its
own, so that `pytest -n` spreads them over the cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
LARGE = 1000
CAMPAIGN = 100_000


def campaign(variable: str, separate: int) -> list[int]:
    """The first numbers of the batches of a nightly campaign, `apart` from those of other tests."""
    count = int(os.environ.get(variable, CAMPAIGN))
    start = separate + 10_000_000 * int(os.environ.get("HOSTILE_SEED", "0"))
    return list(range(start, start + count, LARGE))


def run_batch(mode: str, sound: Path, first: int, count: int, scratch: Path) -> Counter[str]:
    """How often each outcome of damaged files was seen."""
    return _run("child.py", [mode, sound, first, first + count, scratch], first, "file")


def run_texts(seeds: Path, first: int, count: int) -> Counter[str]:
    """The same of damaged texts."""
    return _run("text_child.py", [seeds, first, first + count], first, "text")


def _run(script: str, words: list[object], first: int, label: str) -> Counter[str]:
    """The summary of a process; AssertionError when it did not end well."""
    completed = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=3600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
    )
    lines = completed.stdout.splitlines()
    if completed.returncode != 0:
        begun = [int(line) for line in lines if line.isdigit()] or [first]
        raise AssertionError(
            f"{label} {begun[-1]} ended the process with {completed.returncode}, "
            f"after {len(begun) - 1} others\n{completed.stderr}"
        )
    return Counter(json.loads(lines[-1]))
