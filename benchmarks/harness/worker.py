"""A process that builds, checks and times the contenders of one library.

Started by `harness.pool` with one JSON request a line on stdin, one JSON reply a line on stdout.
A library has one process a number of threads, so that thread pools do not get in each other's way.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from typing import Any

from harness.case import worst_error
from harness.inputs import shared

_BLOCK_SECONDS = 0.02
_SLOW_SECONDS = 0.1


class Worker:
    def __init__(self) -> None:
        self.cases: dict[str, Any] = {}
        self.timers: dict[str, tuple[Any, int]] = {}
        self.inputs: dict[str, Any] = {}

    def build(self, workload: str, size: str, contender: str) -> dict[str, Any]:
        """Build a contender and compare its result with the oracle's."""
        module = importlib.import_module(f"workloads.{workload}")
        arrays, oracle = self._inputs(module, workload, size)
        started = time.perf_counter()
        case = module.CONTENDERS[contender][1](arrays)
        error = worst_error(case.result(), oracle, module.TOLERANCE)
        built = time.perf_counter() - started
        timer = case.timer()
        self.cases[contender] = case
        self.timers[contender] = (timer, _repeats(timer))
        return {"error": error, "built": built, "repeats": self.timers[contender][1]}

    def measure(self, contender: str) -> dict[str, Any]:
        """Seconds a call, over one block of calls.

        One call before does not count: it wakes threads, and fills the caches that the contender
        before has used.
        """
        timer, repeats = self.timers[contender]
        timer.timeit(1)
        return {"seconds": timer.timeit(repeats) / repeats}

    def finish(self, workload: str, size: str, contender: str) -> dict[str, Any]:
        """Check once more, after the timed calls, and let go of the contender."""
        module = importlib.import_module(f"workloads.{workload}")
        _, oracle = self._inputs(module, workload, size)
        case, _ = self.cases.pop(contender), self.timers.pop(contender)
        error = worst_error(case.result(), oracle, module.TOLERANCE)
        del case
        if not self.cases:
            # Workers of other libraries and numbers of threads need the memory.
            self.inputs.clear()
            gc.collect()
        return {"error": error}

    def peaks(self) -> dict[str, Any]:
        """The peak rates of the cores of this process."""
        from harness.rates import read_peaks

        return read_peaks()

    def _inputs(self, module: Any, workload: str, size: str) -> Any:
        key = f"{workload} {size}"
        if key not in self.inputs:
            self.inputs = {key: shared(key, lambda: _make_inputs(module, size))}
        return self.inputs[key]


def _make_inputs(module: Any, size: str) -> Any:
    arrays = module.arrays(**module.SIZES[size])
    return arrays, module.oracle(arrays)


def _repeats(timer: Any) -> int:
    """How many calls fill a block."""
    count = 1
    while True:
        elapsed = timer.timeit(count)
        if elapsed < _SLOW_SECONDS:
            # Threads that start and caches that fill make one try too long.
            elapsed = min(elapsed, *timer.repeat(2, count))
        if elapsed >= _BLOCK_SECONDS / 2:
            return max(1, round(count * _BLOCK_SECONDS / elapsed))
        count *= 2


def main() -> None:
    # Libraries print to stdout: replies go through a copy, and stdout becomes stderr.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, request.pop("do"))(**request)
        except ImportError as error:
            reply = {"missing": f"not installed: {error}"}
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            # Tools that run others put their error after a heading.
            message = next((line for line in lines if "error:" in line), lines[0])
            reply = {"failed": f"{type(error).__name__}: {message[:160]}"}
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
