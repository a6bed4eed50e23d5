"""Starts `child.py` for a batch of damaged files and says how it went. Called by the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_batch(mode: str, sound: Path, first: int, count: int, scratch: Path) -> Counter[str]:
    """How often each outcome was seen; AssertionError when the process did not end well."""
    words = [mode, sound, first, first + count, scratch]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("child.py")), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=1200,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        begun = [int(line) for line in lines if line.isdigit()] or [first]
        raise AssertionError(
            f"file {begun[-1]} ended the process with {done.returncode}, "
            f"after {len(begun) - 1} others\n{done.stderr}"
        )
    return Counter(json.loads(lines[-1]))
