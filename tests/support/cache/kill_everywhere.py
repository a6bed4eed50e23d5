"""A process killed at every line of Nova's file code in turn. Run as a script of its own.

`kill_everywhere.py FOLDER` runs two jobs, replacing a file and storing a cache entry, once for
each line of `nova/artifact` that they execute, in a forked child that kills itself before that
line. After each kill it checks what is on the disk. Prints how often the old and the new state
were found, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import nova
from nova.artifact import files
from nova.artifact.cache.disk import DiskCache, cache_key
from nova.artifact.cache.locks import is_any_locked
from nova.artifact.files import is_temporary, write_atomically
from nova.artifact.format import read_artifact

SOURCES = str(Path(files.__file__).parent)
OLD, NEW = b"old" * 5000, b"new" * 6000


def kill_before_line(number: int) -> None:
    """Let this process kill itself before it executes its line of that number in `SOURCES`."""
    left = number

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def run_killed(job: Callable[[], None], number: int) -> bool:
    """Run a job in a child that is killed at a line; whether it came that far."""
    pid = os.fork()
    if pid == 0:
        try:
            kill_before_line(number)
            job()
            sys.settrace(None)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def replace_a_file(folder: Path) -> dict[str, int]:
    path = folder / "model"
    states: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        path.write_bytes(OLD)
        killed = run_killed(lambda: write_atomically(path, NEW), number)
        found = path.read_bytes()
        assert found in (OLD, NEW), f"half a file after a kill at line {number}"
        others = set(os.listdir(folder)) - {"model"}
        assert len(others) <= 1 and all(is_temporary(name) for name in others), others
        write_atomically(folder / "other", b"")
        (folder / "other").unlink()
        assert os.listdir(folder) == ["model"], "the next writer removes what was left"
        if not killed:
            assert found == NEW
            return states
        states["old" if found == OLD else "new"] += 1
        states["left behind"] += bool(others)


def store_an_entry(folder: Path) -> dict[str, int]:
    x = nova.tensor(np.ones(3, "f4"), name="x")
    program = nova.compile(x + 1, inputs=[x])
    data = bytes(program._executable.artifact.data)
    key = cache_key(read_artifact(data).manifest.key)

    def job() -> None:
        cache = DiskCache(folder, 1 << 30)
        with cache.building(key) as found:
            if found is None:
                cache.put(key, data)

    states: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        shutil.rmtree(folder, ignore_errors=True)
        killed = run_killed(job, number)
        assert not is_any_locked(folder), f"a lock after a kill at line {number}"
        cache = DiskCache(folder, 1 << 30, wait=0)
        found = cache.get(key)
        assert cache.stats.damaged == 0 and (found is None or bytes(found.data) == data)
        cache.put(key, data)
        assert not any(is_temporary(name) for name in os.listdir(folder))
        if not killed:
            assert found is not None
            return states
        states["old" if found is None else "new"] += 1


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / "files").mkdir()
    found = {"file": replace_a_file(root / "files"), "entry": store_an_entry(root / "cache")}
    print(json.dumps(found))
