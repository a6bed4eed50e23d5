"""Nova, torch and jax on this machine's GPU; writes benchmarks/RESULTS-H200.md's table.

    python benchmarks/gpu/run.py [workload ...] [--rounds N] [--json FILE] [--markdown FILE]

Contenders take turns, round by round. A round puts so many runs into the device's queue that they
take some milliseconds, waits for the last one, and counts the time of one; the table has medians,
with the 10th and 90th percentile. Then a round has some single calls, each waited for before the
next: the median of those is what a user waits who needs the result at once ("waited for"). Results
are compared with torch's before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from gpu.contenders import Contender, Workload
from gpu.workloads import WORKLOADS

_ROUND_SECONDS = 0.02
_SINGLE_SECONDS = 0.005


@dataclass(frozen=True)
class Measured:
    """Microseconds of a run: median, 10th and 90th percentile; and of one that is waited for."""

    name: str
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    waited: float = 0.0
    error: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without", action="append", default=[], help="leave out contenders")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(arguments)
    names = options.workloads or list(WORKLOADS)
    rows: dict[str, list[Measured]] = {}
    lines = [_machine(), "", *_head()]
    print("\n".join(lines), flush=True)
    for name in names:
        measured = measure(WORKLOADS[name], options.rounds, options.without)
        rows[name] = measured
        lines += (new := _lines(WORKLOADS[name], measured))
        print("\n".join(new), flush=True)
        if options.markdown:
            options.markdown.write_text("\n".join(lines) + "\n")
        if options.json:
            data = {n: [vars(m) for m in ms] for n, ms in rows.items()}
            options.json.write_text(json.dumps(data, indent=1))
    return 0


def measure(workload: Workload, rounds: int, without: Sequence[str]) -> list[Measured]:
    """All contenders of a workload, in turn."""
    read: list[tuple[Contender, list[np.ndarray]]] = []
    failed: list[Measured] = []
    reference: list[np.ndarray] | None = None
    for make in workload.make():
        try:
            contender = make()
            contender.call()
            if any(text in contender.name for text in without):
                continue
            result = contender.read()
        except Exception as error:  # a contender that fails is a row that says so
            failed.append(Measured("?", error=f"{type(error).__name__}: {error}"[:300]))
            continue
        if contender.name == "torch":
            reference = result
        read.append((contender, result))
    good = []
    for contender, result in read:
        worst = _difference(result, reference)
        if worst > workload.tolerance:
            error = f"differs from torch by {worst:.1e}"
            failed.append(Measured(contender.name, error=error))
        else:
            good.append(contender)
    counts = {c.name: _calibrate(c) for c in good}
    times: dict[str, list[float]] = {c.name: [] for c in good}
    single: dict[str, list[float]] = {c.name: [] for c in good}
    for _ in range(rounds):
        for contender in good:
            times[contender.name].append(_time(contender, counts[contender.name]))
            single[contender.name].append(_time_single(contender, counts[contender.name]))
    rows = [
        Measured(
            name,
            statistics.median(samples),
            *(float(q) for q in np.percentile(samples, [10, 90])),
            statistics.median(single[name]),
        )
        for name, samples in times.items()
    ]
    return [*rows, *failed]


def _difference(result: list[np.ndarray], reference: list[np.ndarray] | None) -> float:
    """The largest difference, relative to the largest value."""
    if reference is None:
        return float("inf")
    return max(
        float(np.abs(a - b).max() / (np.abs(b).max() + 1e-30))
        for a, b in zip(result, reference, strict=True)
    )


def _time(contender: Contender, count: int) -> float:
    _synchronize()
    started = time.perf_counter()
    for _ in range(count):
        contender.call()
    contender.wait()
    _synchronize()
    return (time.perf_counter() - started) / count * 1e6


def _time_single(contender: Contender, queued: int) -> float:
    """The median of a few runs that are waited for one by one; `queued` take a round."""
    samples = []
    for _ in range(max(3, int(queued * _SINGLE_SECONDS / _ROUND_SECONDS))):
        _synchronize()
        started = time.perf_counter()
        contender.call()
        contender.wait()
        _synchronize()
        samples.append((time.perf_counter() - started) * 1e6)
    return statistics.median(samples)


def _calibrate(contender: Contender) -> int:
    _time(contender, 3)
    return max(3, int(_ROUND_SECONDS * 1e6 / max(1.0, _time(contender, 5))))


def _synchronize() -> None:
    import torch

    torch.cuda.synchronize()


# --- the table ------------------------------------------------------------------------------------


def _machine() -> str:
    import jax
    import torch

    driver = Path("/proc/driver/nvidia/version")
    version = driver.read_text().split("  ")[1] if driver.exists() else "?"
    return (
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, driver {version}, "
        f"torch {torch.__version__}, jax {jax.__version__}, Python {platform.python_version()}"
    )


def _head() -> list[str]:
    return [
        "| workload | contender | us | spread | waited for | | bar |",
        "|---|---|---|---|---|---|---|",
    ]


def _lines(workload: Workload, measured: list[Measured]) -> list[str]:
    peers = [m for m in measured if m.name != "Nova" and not m.error]
    best = min(peers, key=lambda m: m.median, default=None)
    lines = []
    for m in measured:
        if m.error:
            lines.append(f"| {workload.title} | {m.name} | failed: {m.error} | | | | |")
            continue
        bar = _verdict(workload, m, best) if m.name == "Nova" else ""
        rate = _rate(workload, m)
        spread = f"{m.low:.1f} - {m.high:.1f}"
        lines.append(
            f"| {workload.title} | {m.name} | {m.median:.1f} | {spread} | {m.waited:.1f} "
            f"| {rate} | {bar} |"
        )
    return lines


def _rate(workload: Workload, m: Measured) -> str:
    if workload.flops:
        return f"{workload.flops / m.median / 1e6:.0f} TFLOP/s"
    return f"{workload.moved / m.median / 1e6:.2f} TB/s" if workload.moved else ""


def _verdict(workload: Workload, m: Measured, best: Measured | None) -> str:
    checks: list[tuple[str, bool]] = []
    if workload.most_us is not None:
        checks.append((f"at most {workload.most_us:g} us", m.median <= workload.most_us))
    if workload.most_ratio is not None and best is not None:
        ratio = m.median / best.median
        text = f"{ratio:.2f} of {best.name}, at most {workload.most_ratio}"
        checks.append((text, ratio <= workload.most_ratio))
    if workload.least_tflops is not None:
        reached = workload.flops / m.median / 1e6
        text = f"at least {workload.least_tflops:g} TFLOP/s"
        checks.append((text, reached >= workload.least_tflops))
    if not checks and best is not None:
        return f"{m.median / best.median:.2f} of {best.name}"
    return "; ".join(f"{text}: {'met' if ok else '**missed**'}" for text, ok in checks)


if __name__ == "__main__":
    sys.exit(main())
