"""Waiting until a measured process is at rest.

The threads of OpenBLAS, OpenMP and onnxruntime spin for up to a tenth of a second after a call, and
would take a core from whoever is measured next. `harness.pool` waits with this between contenders.
"""

from __future__ import annotations

import time
from pathlib import Path

_LOOK_SECONDS = 0.002
_LONGEST = 0.5


def wait_at_rest(pid: int) -> float:
    """Return once no thread of the process runs; the seconds that it took.

    One that does not come to rest is given up on after half a second: it would never stop.
    """
    started = time.perf_counter()
    looks = 0
    while looks < 2 and time.perf_counter() - started < _LONGEST:
        time.sleep(_LOOK_SECONDS)
        looks = 0 if _is_running(pid) else looks + 1
    return time.perf_counter() - started


def _is_running(pid: int) -> bool:
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            # The state follows the name, which is in brackets and may hold anything.
            if stat.read_text().rpartition(")")[2].split()[0] == "R":
                return True
        except OSError:  # the thread has ended meanwhile
            continue
    return False
