"""`make bench`: Nova and its peers in one run; every timed result is checked.

    python benchmarks/run.py                         all workloads; rewrites RESULTS.md
    python benchmarks/run.py call_overhead matmul    some of them; prints, writes nothing
    python benchmarks/run.py --only 'matmul/1024/2'  tables: workload/size/threads, or patterns
    python benchmarks/run.py --quick                 few rounds, and without torch.compile
    python benchmarks/run.py --avx2 matmul           as on a machine that has no more than AVX2
    python benchmarks/run.py --json -                the numbers, as JSON

Ends with status 1 if a contender computes something wrong or Nova fails; a figure that is missed or
a peer that is not installed is reported only. `README.md` in this folder says how to read the page.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import workloads
from bars import BARS
from harness.machine import describe
from harness.narrow import hold_to_avx2
from harness.plot import draw
from harness.pool import ROOT, Plan, Pool, environment, run_fresh, run_loop
from harness.report import markdown
from harness.verdicts import add_fresh_summaries, add_loop_summaries, judge


def main() -> int:
    options = _parse()
    started = time.perf_counter()
    machine = describe()
    if options.avx2:
        machine["vectors"] += ", all held to AVX2"
    tables: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        if options.avx2 and "AVX-512" in machine["vectors"]:
            os.environ.update(hold_to_avx2(Path(folder)))
        pool = Pool(Path(folder))
        try:
            peaks = _peaks(pool, options)
            for name in options.workloads:
                module = importlib.import_module(f"workloads.{name}")
                tables += _run(pool, Path(folder), name, module, options, peaks)
        finally:
            pool.close()
    results = {
        "command": " ".join(["python benchmarks/run.py", *sys.argv[1:]]),
        "machine": machine,
        "seconds": time.perf_counter() - started,
        "peaks": peaks,
        "bars": [v for v in judge(BARS, tables) if options.full_run or v["met"] is not None],
        "workloads": tables,
    }
    _write(options, results)
    bad = _unsound(tables)
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


def _peaks(pool: Pool, options: argparse.Namespace) -> dict[str, Any]:
    """The peak rates of the machine; None where contenders may not use all of it."""
    if options.avx2:
        return {}
    peaks = pool.ask("nova", len(os.sched_getaffinity(0)), do="peaks")
    if "core_flops" not in peaks:
        print(f"no peaks: {peaks}", file=sys.stderr)
        return {}
    return peaks


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Nova with its peers.")
    parser.add_argument(
        "workloads", nargs="*", help=f"of {', '.join(workloads.ORDER)}; all by default"
    )
    parser.add_argument(
        "--only",
        metavar="TABLE",
        action="append",
        help="workload, workload/size or workload/size/threads, with * and ?; may be repeated",
    )
    parser.add_argument(
        "--without",
        metavar="TEXT",
        action="append",
        default=[],
        help="leave out contenders with this in their name; may be repeated",
    )
    parser.add_argument(
        "--quick", action="store_true", help="3 to 5 rounds, one start, and no torch.compile"
    )
    parser.add_argument(
        "--avx2",
        action="store_true",
        help="hold all contenders to AVX2, on a machine with more",
    )
    parser.add_argument("--rounds", type=int, default=15, help="rounds of every timed call")
    parser.add_argument("--starts", type=int, default=7, help="new processes of each start-up")
    parser.add_argument("--threads", type=int, action="append", help="instead of the workload's")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers; - prints only them")
    parser.add_argument("--plot", metavar="FILE", help="also draw the picture, as PNG")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(workloads.ORDER):
        parser.error(f"no workload {', '.join(sorted(unknown))}: {', '.join(workloads.ORDER)}")
    options.full_run = not (
        options.workloads or options.only or options.without or options.quick or options.avx2
    )
    options.workloads = options.workloads or workloads.ORDER
    options.plan = Plan(options.rounds, min(5, options.rounds), 6.0, options.starts)
    if options.quick:
        options.plan = Plan(5, 3, 1.5, 1, ("torch.compile",))
    if options.without:
        without = (*options.plan.without, *options.without)
        options.plan = replace(options.plan, without=without)
    if options.only and not any(_tables(name, options) for name in options.workloads):
        parser.error(f"no table is called {' or '.join(options.only)}")
    return options


def _tables(name: str, options: argparse.Namespace) -> list[tuple[str, int]]:
    """The sizes and numbers of threads of a workload that are asked for; those of a start-up are
    empty and 0."""
    module = importlib.import_module(f"workloads.{name}")
    every = [("", 0)]
    if module.MODE == "loop":
        threads = options.threads or module.THREADS
        every = [(size, n) for size in module.SIZES for n in threads]
    if not options.only:
        return every
    return [
        (size, n)
        for size, n in every
        for path in [f"{name}/{size}/{n}"]
        if any(fnmatchcase(path, p) or fnmatchcase(path, f"{p}/*") for p in options.only)
    ]


def _run(
    pool: Pool,
    scratch: Path,
    name: str,
    module: Any,
    options: argparse.Namespace,
    peaks: dict[str, Any],
) -> list[dict[str, Any]]:
    """The tables of a workload."""
    head = {"workload": name, "title": module.TITLE, "kind": module.MODE, "unit": module.UNIT}
    tables = []
    for size, threads in _tables(name, options):
        started = time.perf_counter()
        table = {**head, "size": size}
        if module.MODE == "fresh":
            table["rows"] = run_fresh(scratch, name, module, options.plan)
            add_fresh_summaries(table["rows"])
            if hasattr(module, "breakdown"):
                table["breakdown"] = module.breakdown(environment(scratch, 1))
        else:
            table["threads"] = threads
            table["rows"] = run_loop(pool, name, module, size, threads, options.plan)
            add_loop_summaries(table["rows"])
            if hasattr(module, "work"):
                work = module.work(**module.SIZES[size])
                table["work"] = asdict(work)
                table["floor"] = work.floor_seconds(peaks, threads) if peaks else None
        elapsed = time.perf_counter() - started
        print(f"{name} {size} ({threads}): {elapsed:.0f} s", file=sys.stderr)
        tables.append(table)
    return tables


def _write(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """The page, the numbers and the picture: into this folder after a whole run, or as asked."""
    picture = ROOT / "results.png" if options.full_run else options.plot and Path(options.plot)
    results["plot"] = ""
    if picture:
        try:
            draw(results, picture)
            results["plot"] = picture.name if options.full_run else str(picture)
        except ImportError as error:
            print(f"no picture: {error}", file=sys.stderr)
    page, numbers = markdown(results), json.dumps(results, indent=1) + "\n"
    if options.full_run:
        (ROOT / "RESULTS.md").write_text(page)
        (ROOT / "results.json").write_text(numbers)
    if options.json and options.json != "-":
        Path(options.json).write_text(numbers)
    print(numbers if options.json == "-" else page, end="")


def _unsound(tables: list[dict[str, Any]]) -> list[str]:
    return [
        f"{table['workload']} {table['size']}: {row['contender']} {row['failed']}"
        for table in tables
        for row in table["rows"]
        if "failed" in row and (row["library"] == "nova" or "WrongResult" in row["failed"])
    ]


if __name__ == "__main__":
    sys.exit(main())
