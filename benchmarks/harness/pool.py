"""The processes of a run and the order in which contenders are measured.

`run.py` calls `run_loop` for workloads that time a call and `run_fresh` for those that time a
process. Contenders take turns, one block each a round and in another order every round, so that a
busy moment of the machine hits all of them alike.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.settle import wait_at_rest

ROOT = Path(__file__).resolve().parent.parent
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NOVA_THREADS",
    "BENCH_THREADS",
)


class Pool:
    """Worker processes by library and number of threads, started when first needed."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        self.workers: dict[tuple[str, int], subprocess.Popen[str]] = {}

    def ask(self, library: str, threads: int, **request: Any) -> dict[str, Any]:
        worker = self.workers.get((library, threads))
        if worker is None:
            worker = self._start(threads)
            self.workers[library, threads] = worker
        assert worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            del self.workers[library, threads]
            return {"failed": f"the process ended with status {worker.wait()}"}
        return json.loads(line)

    def _start(self, threads: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.worker"],
            cwd=ROOT,
            env=environment(self.scratch, threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.scratch / "stderr.log", "a"),
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores(threads)),
        )

    def settle(self, library: str, threads: int) -> None:
        """Wait until a worker's idle threads spin no more: they would slow down the next one."""
        worker = self.workers.get((library, threads))
        if worker is not None:
            wait_at_rest(worker.pid)

    def close(self) -> None:
        for worker in self.workers.values():
            assert worker.stdin is not None
            worker.stdin.close()
        for worker in self.workers.values():
            worker.wait()
        self.workers.clear()


def cores(threads: int) -> set[int]:
    """The cores for so many threads: every library sizes its pool by them."""
    return set(sorted(os.sched_getaffinity(0))[-threads:])


def environment(scratch: Path, threads: int) -> dict[str, str]:
    """The environment of a measured process: thread limits, separate caches, bytecode files kept.

    Without bytecode every import compiles the sources again, which is not what users have.
    """
    values = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    values |= dict.fromkeys(_THREAD_VARIABLES, str(threads))
    values |= {
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT.parent), *filter(None, [values.get("PYTHONPATH")])]
        ),
        "BENCH_SCRATCH": str(scratch),
        "NOVA_CACHE_DIR": str(scratch / "nova"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(scratch / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "torch"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "NUMBA_CACHE_DIR": str(scratch / "numba"),
    }
    return values


@dataclass(frozen=True)
class Plan:
    """How much to measure, and which contenders not: those whose name has one of `without` in it.

    Loops take `rounds`, fewer once `seconds` have passed but no less than `least`.
    """

    rounds: int = 15
    least: int = 5
    seconds: float = 6.0
    starts: int = 7
    without: tuple[str, ...] = ()

    def rows(self, module: ModuleType, numbers: str) -> list[dict[str, Any]]:
        """A row per contender with no numbers yet; why, for one that is not run."""
        rows = []
        for contender, (library, function) in module.CONTENDERS.items():
            row = {"contender": contender, "library": library, numbers: []}
            if isinstance(function, str):
                row["missing"] = function
            elif any(text in contender for text in self.without):
                row["missing"] = "left out of this run"
            rows.append(row)
        return rows


def run_loop(
    pool: Pool, name: str, module: ModuleType, size: str, threads: int, plan: Plan
) -> list[dict[str, Any]]:
    """A row per contender, with the seconds a call of every round, or why there are none."""
    rows = plan.rows(module, "seconds")

    def ask(row: dict[str, Any], do: str, **more: Any) -> dict[str, Any]:
        reply = pool.ask(row["library"], threads, do=do, contender=row["contender"], **more)
        for key in ("missing", "failed"):
            if key in reply:
                row[key] = reply[key]
        return reply

    where = {"workload": name, "size": size}
    for row in rows:
        if "missing" not in row:
            row |= ask(row, "build", **where)
            pool.settle(row["library"], threads)
    sound = [row for row in rows if "error" in row]
    started = time.perf_counter()
    for turn in range(plan.rounds):
        if turn >= plan.least and time.perf_counter() - started > plan.seconds:
            break
        offset = turn % len(sound) if sound else 0
        for row in sound[offset:] + sound[:offset]:
            if "failed" not in row:
                reply = ask(row, "measure")
                if "seconds" in reply:
                    row["seconds"].append(reply["seconds"])
                pool.settle(row["library"], threads)
    for row in sound:
        if "failed" not in row:
            ask(row, "finish", **where)
    return rows


def run_fresh(scratch: Path, name: str, module: ModuleType, plan: Plan) -> list[dict[str, Any]]:
    """A row per contender, with the phases of every round. Each round is a new process.

    A first, discarded round fills what may be filled: bytecode, and the caches where the workload
    says that they are kept. Slow contenders get one round.
    """
    rows = plan.rows(module, "phases")
    for turn in range(min(plan.starts, getattr(module, "STARTS", plan.starts)) + 1):
        filling = turn == 0
        for row in rows:
            slow = row["contender"] in module.SLOW
            if "missing" in row or "failed" in row or (slow and turn > 1):
                continue
            if slow and filling and not module.KEEP_CACHES:
                continue
            if module.KEEP_CACHES:
                # As the timed calls before, whose entries are found where the workload is the same.
                reply = _run_once(environment(scratch, 1), name, row["contender"], filling)
            else:
                with tempfile.TemporaryDirectory(dir=scratch) as empty:
                    variables = environment(Path(empty), len(os.sched_getaffinity(0)))
                    reply = _run_once(variables, name, row["contender"], filling)
            phases = reply.pop("phases", None)
            row |= reply
            if phases is not None and not filling:
                row["phases"].append(phases)
    return rows


def _run_once(
    variables: dict[str, str], workload: str, contender: str, filling: bool
) -> dict[str, Any]:
    if filling:
        variables["BENCH_FILLING"] = "1"
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(ROOT / "harness" / "fresh.py"), workload, contender],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
    )
    wall = time.perf_counter() - started
    try:
        reply = ast.literal_eval(process.stdout)
    except (SyntaxError, ValueError):
        return {"failed": f"status {process.returncode}: {process.stderr.strip()[-200:]}"}
    if "phases" in reply:
        reply["phases"]["whole process"] = wall
    return reply
