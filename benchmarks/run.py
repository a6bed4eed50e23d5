"""`make bench`: Nova beside its peers, in one run, every number with its result checked.

    python benchmarks/run.py                         all workloads; rewrites RESULTS.md
    python benchmarks/run.py call_overhead matmul    some of them; prints, writes nothing
    python benchmarks/run.py --json -                the numbers, as JSON

Ends with status 1 if a contender computes something wrong or Nova fails; a figure that is missed or
a peer that is not installed is reported only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import workloads
from bars import BARS
from harness.machine import describe
from harness.pool import ROOT, Pool, environment, run_fresh, run_loop
from harness.report import add_fresh_summaries, add_loop_summaries, judge, markdown


def main() -> int:
    options = _parse()
    started = time.perf_counter()
    machine = describe()
    entries: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        pool = Pool(Path(folder))
        try:
            for name in options.workloads:
                module = importlib.import_module(f"workloads.{name}")
                entries += _run(pool, Path(folder), name, module, options)
        finally:
            pool.close()
    command = " ".join(["python benchmarks/run.py", *sys.argv[1:]])
    results = {
        "command": command,
        "machine": machine,
        "seconds": time.perf_counter() - started,
        "bars": judge(BARS, entries),
        "workloads": entries,
    }
    page, numbers = markdown(results), json.dumps(results, indent=1) + "\n"
    if options.whole:
        (ROOT / "RESULTS.md").write_text(page)
        (ROOT / "results.json").write_text(numbers)
    if options.json == "-":
        print(numbers, end="")
    else:
        if options.json:
            Path(options.json).write_text(numbers)
        print(page, end="")
    bad = _unsound(entries)
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Nova beside its peers.")
    parser.add_argument(
        "workloads", nargs="*", help=f"of {', '.join(workloads.ORDER)}; all by default"
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds of every timed call")
    parser.add_argument("--starts", type=int, default=7, help="new processes of each start-up")
    parser.add_argument("--threads", type=int, action="append", help="instead of the workload's")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers; - prints only them")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(workloads.ORDER):
        parser.error(f"no workload {', '.join(sorted(unknown))}: {', '.join(workloads.ORDER)}")
    options.whole = not options.workloads
    options.workloads = options.workloads or workloads.ORDER
    return options


def _run(
    pool: Pool, scratch: Path, name: str, module: Any, options: argparse.Namespace
) -> list[dict[str, Any]]:
    entry = {"workload": name, "title": module.TITLE, "kind": module.KIND, "unit": module.UNIT}
    if module.KIND == "fresh":
        print(name, file=sys.stderr)
        starts = min(options.starts, getattr(module, "STARTS", options.starts))
        rows = run_fresh(scratch, name, module, starts)
        add_fresh_summaries(rows)
        entry |= {"size": "", "rows": rows}
        if hasattr(module, "breakdown"):
            entry["breakdown"] = module.breakdown(environment(scratch, 1))
        return [entry]
    entries = []
    for size in module.SIZES:
        for threads in options.threads or module.THREADS:
            print(f"{name} {size} ({threads})", file=sys.stderr)
            rows = run_loop(pool, name, module, size, threads, options.rounds, 6.0)
            add_loop_summaries(rows)
            entries.append({**entry, "size": size, "threads": threads, "rows": rows})
            if hasattr(module, "work"):
                entries[-1]["gflop"] = module.work(**module.SIZES[size])
    return entries


def _unsound(entries: list[dict[str, Any]]) -> list[str]:
    return [
        f"{entry['workload']} {entry['size']}: {row['contender']} {row['failed']}"
        for entry in entries
        for row in entry["rows"]
        if "failed" in row and (row["library"] == "nova" or "WrongResult" in row["failed"])
    ]


if __name__ == "__main__":
    sys.exit(main())
