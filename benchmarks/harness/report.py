"""Numbers of a run as summaries and as a Markdown page.

`run.py` gives the rows of `harness.pool`; the page says what was measured, on what machine, which
figures are met, and the median, the spread and the ratio to Nova for every contender.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0, "times": 1.0}
_SYMBOL = {"us": "µs", "ms": "ms", "s": "s", "times": "times"}
_PHASES = ("import", "compiler", "compile", "load + compile", "CPU", "whole process")


def summarise(values: Sequence[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return {"median": at(0.5), "p10": at(0.1), "p90": at(0.9), "count": len(ordered)}


def add_loop_summaries(rows: list[dict[str, Any]]) -> None:
    """Summaries, and the median over the rounds of the ratio to the first contender."""
    base = rows[0]["seconds"]
    for row in rows:
        if not row["seconds"] or "failed" in row:
            continue
        row["summary"] = summarise(row["seconds"])
        if len(base) == len(row["seconds"]):
            pairs = zip(row["seconds"], base, strict=True)
            row["ratio"] = summarise([mine / nova for mine, nova in pairs])["median"]


def add_fresh_summaries(rows: list[dict[str, Any]]) -> None:
    """Summaries by phase."""
    for row in rows:
        for phases in row["phases"]:
            if "compiler" in phases:
                phases["load + compile"] = phases["compiler"] + phases["compile"]
        if row["phases"]:
            names = row["phases"][0]
            row["summary"] = {n: summarise([p[n] for p in row["phases"]]) for n in names}


def judge(bars: Sequence[Any], workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every figure with what was measured; `met` is None where nothing was."""
    verdicts = []
    for bar in bars:
        summary = None
        for entry in workloads:
            if entry["workload"] == bar.workload and bar.size in ("", entry["size"]):
                rows = {row["contender"]: row.get("summary") for row in entry["rows"]}
                summary = rows.get(bar.contender)
                if bar.beside and summary is not None:
                    summary = _beside(bar, summary, rows.get(bar.beside))
        if summary is not None and bar.phase:
            summary = summary[bar.phase]
        verdicts.append(
            {
                "text": bar.text,
                "limit": bar.limit,
                "ratio": bar.ratio,
                "summary": summary,
                "met": None if summary is None else summary["median"] <= bar.limit,
            }
        )
    return verdicts


def _beside(
    bar: Any, summary: dict[str, float], other: dict[str, float] | None
) -> dict[str, float] | None:
    """A summary as the difference to another contender's median, or as a share of it."""
    if other is None:
        return None
    base = other["median"]
    return {
        name: value if name == "count" else value / base if bar.ratio else value - base
        for name, value in summary.items()
    }


def markdown(results: dict[str, Any]) -> str:
    """The whole page."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {text}" for name, text in machine["packages"].items())
    lines = [
        "# Benchmarks",
        "",
        f"Made by `{results['command']}` in {results['seconds']:.0f} s; do not edit. `make bench` "
        "runs it without arguments; the numbers behind it are in `results.json`.",
        "",
        f"- {machine['date']}, {machine['cpu']} (family/model {machine['cpu_family']}, "
        f"{machine['vectors']}), {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load_at_start']} at the start",
        f"- Python {machine['python']}, {versions}; {machine['compiler']}",
        "- Medians of interleaved rounds, 10th to 90th percentile in brackets. Ratios are medians "
        "of the ratios within a round. Each library has a process of its own, and as many cores "
        "as threads. Every result was checked against a f64 oracle before and after it was timed.",
        "- Peers get and give their own arrays, except where a row says numpy; Nova always gets "
        "and gives numpy arrays.",
        "- IREE compiles jax's StableHLO with llvm-cpu for this CPU at O2, untuned. A start-up "
        "without a spread was run once.",
        "",
        *_bars(results["bars"]),
    ]
    for entry in results["workloads"]:
        title = entry["title"] + (f", {entry['size']}" if entry["size"] else "")
        if "threads" in entry:
            title += f" ({entry['threads']} thread{'s' * (entry['threads'] > 1)})"
        lines += ["", f"## {title}", ""]
        lines += _fresh(entry) if entry["kind"] == "fresh" else _loop(entry)
    return "\n".join(lines) + "\n"


def _bars(verdicts: list[dict[str, Any]]) -> list[str]:
    lines = ["| figure | at most | measured | |", "|---|---|---|---|"]
    words = {True: "met", False: "**missed**", None: "not run"}
    for verdict in verdicts:
        unit = "times" if verdict["ratio"] else "us" if verdict["limit"] < 1e-3 else "ms"
        measured = _spread(verdict["summary"], unit) if verdict["summary"] else ""
        limit = f"{verdict['limit'] * _SCALE[unit]:g} {_SYMBOL[unit]}"
        lines.append(f"| {verdict['text']} | {limit} | {measured} | {words[verdict['met']]} |")
    return lines


def _loop(entry: dict[str, Any]) -> list[str]:
    rate = entry.get("gflop")
    lines = [
        f"| contender | {_SYMBOL[entry['unit']]} a call | {'GFLOP/s | ' if rate else ''}to Nova |",
        f"|---|---|---|{'---|' if rate else ''}",
    ]
    for row in entry["rows"]:
        if "summary" not in row:
            lines.append(f"| {row['contender']} | {_why(row)} |  |{'  |' if rate else ''}")
            continue
        gflops = f"{rate / row['summary']['median']:.0f} | " if rate else ""
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        lines.append(
            f"| {row['contender']} | {_spread(row['summary'], entry['unit'], False)} | "
            f"{gflops}{ratio} |"
        )
    return lines


def _fresh(entry: dict[str, Any]) -> list[str]:
    found = list(dict.fromkeys(name for row in entry["rows"] for name in row.get("summary", {})))
    # Phases in their order, then those that only one workload knows.
    names = [name for name in _PHASES if name in found]
    names += [name for name in found if name not in _PHASES]
    head = " | ".join(f"{name}, {_SYMBOL[entry['unit']]}" for name in names)
    lines = [f"| contender | {head} |", "|---|" + "---|" * len(names)]
    for row in entry["rows"]:
        if "summary" not in row:
            lines.append(f"| {row['contender']} | {_why(row)} |" + "  |" * (len(names) - 1))
            continue
        cells = [
            _spread(row["summary"][name], entry["unit"], False) if name in row["summary"] else ""
            for name in names
        ]
        lines.append(f"| {row['contender']} | {' | '.join(cells)} |")
    if "breakdown" in entry:
        parts = ", ".join(f"{name} {ms:.1f}" for name, ms in entry["breakdown"].items())
        lines += ["", f"Where `import nova` goes, ms (least of several runs a module): {parts}."]
    return lines


def _why(row: dict[str, Any]) -> str:
    return row.get("missing") or f"failed: {row.get('failed', 'no rounds')}".replace("|", "/")


def _spread(summary: dict[str, float], unit: str, with_unit: bool = True) -> str:
    scale = _SCALE[unit]
    text = _number(summary["median"] * scale)
    if with_unit:
        text += f" {_SYMBOL[unit]}"
    if summary["count"] > 1:
        text += f" ({_number(summary['p10'] * scale)} – {_number(summary['p90'] * scale)})"
    return text


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
