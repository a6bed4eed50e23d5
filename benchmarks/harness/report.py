"""The results of a run as a Markdown page.

`run.py` gives the tables with the summaries of `harness.verdicts`; the page says what was measured,
on what machine, which figures are met, how far Nova is from the best peer and from the machine's
peaks, and the median, the spread and the ratio to Nova for every contender.
"""

from __future__ import annotations

from typing import Any

from harness.rates import Work
from harness.verdicts import best_peer, relative_times

_SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0, "times": 1.0}
_SYMBOL = {"us": " µs", "ms": " ms", "s": " s", "times": "x"}
_PHASES = ("import", "compiler", "compile", "load + compile", "CPU", "whole process")


def markdown(results: dict[str, Any]) -> str:
    """The whole page."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {text}" for name, text in machine["packages"].items())
    lines = [
        "# Benchmarks",
        "",
        f"Made by `{results['command']}` in {results['seconds']:.0f} s; do not edit. `make bench` "
        "runs it without arguments; `results.json` has the numbers.",
        "",
        f"- {machine['date']}, {machine['cpu']} (family/model {machine['cpu_family']}, "
        f"{machine['vectors']}), {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load_at_start']} at the start",
        f"- Python {machine['python']}, {versions}; {machine['compiler']}",
        "- Medians of interleaved rounds, 10th to 90th percentile in brackets. Ratios are medians "
        "of the ratios within a round. Each library has its own process, with as many cores "
        "as threads. Every result was checked against a f64 oracle before and after it was timed.",
        _peaks_line(results["peaks"]),
        "- Peers get and give their own arrays, except where a row says numpy; Nova, onnxruntime "
        "and OpenVINO always get and give numpy arrays. onnxruntime and OpenVINO run ONNX models "
        "made by hand, in f32, with weights as constants where a workload has such.",
        "- IREE compiles jax's StableHLO with llvm-cpu for this CPU at O2, untuned. A start-up "
        "without a spread was run once.",
        "",
        *_bars(results["bars"]),
        "",
        "## Nova and the best peer",
        "",
        "The best peer is the fastest contender of the table that is not Nova; `speed` is its time "
        "over Nova's. `of peak` is the least time that the work takes at the measured peak which "
        "bounds it, over Nova's time.",
        "",
        *(
            [f"![Nova's speed relative to the best peer]({results['plot']})", ""]
            * bool(results["plot"])
        ),
        *_overview(results["workloads"]),
    ]
    for entry in results["workloads"]:
        lines += ["", f"## {title_of(entry)}", ""]
        lines += _fresh(entry) if entry["kind"] == "fresh" else _loop(entry)
    return "\n".join(lines) + "\n"


def title_of(entry: dict[str, Any]) -> str:
    title = entry["title"] + (f", {entry['size']}" if entry["size"] else "")
    if "threads" in entry:
        title += f" ({entry['threads']} thread{'s' * (entry['threads'] > 1)})"
    return title


def _peaks_line(peaks: dict[str, float]) -> str:
    if not peaks:
        return "- The machine's peaks were not measured."
    cores, giga = peaks["cores"], 1e-9
    return (
        f"- Measured peaks, f32: multiply-adds {peaks['core_flops'] * giga:.0f} GFLOP/s on one "
        f"core, {peaks['flops'] * giga:.0f} on {cores}; copies {peaks['core_bytes'] * giga:.1f} "
        f"GB/s read and written on one, {peaks['bytes'] * giga:.1f} on {cores}."
    )


def _bars(verdicts: list[dict[str, Any]]) -> list[str]:
    lines = ["| figure | bar | measured | compared with | |", "|---|---|---|---|---|"]
    words = {True: "met", False: "**missed**", None: "not run"}
    for verdict in verdicts:
        unit = _unit(verdict)
        measured = _spread(verdict["summary"], unit) if verdict["summary"] else ""
        least = "at least" if verdict["kind"] == "speed" else "at most"
        limit = f"{least} {verdict['limit'] * _SCALE[unit]:g}{_SYMBOL[unit]}"
        lines.append(
            f"| {verdict['text']} | {limit} | {measured} | {verdict['beside']} | "
            f"{words[verdict['met']]} |"
        )
    return lines


def _unit(verdict: dict[str, Any]) -> str:
    if verdict["kind"] in ("share", "speed"):
        return "times"
    return "us" if verdict["limit"] < 1e-3 else "ms"


def _overview(entries: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| workload | Nova | best peer | speed | rate | of peak |",
        "|---|---|---|---|---|---|",
    ]
    for entry in entries:
        if entry["kind"] == "fresh":
            continue
        nova, best = entry["rows"][0], best_peer(entry["rows"])
        if "summary" not in nova or best is None:
            continue
        seconds = nova["summary"]["median"]
        rate = Work(**entry["work"]).describe(seconds) if "work" in entry else ""
        lines.append(
            f"| {title_of(entry)} | {_time(seconds, entry['unit'])} | "
            f"{best['contender']} {_time(best['summary']['median'], entry['unit'])} | "
            f"{relative_times(best, nova)['median']:.2f} | {rate} | {_of_peak(entry, seconds)} |"
        )
    return lines


def _of_peak(entry: dict[str, Any], seconds: float) -> str:
    return f"{entry['floor'] / seconds:.0%}" if entry.get("floor") else ""


def _time(seconds: float, unit: str) -> str:
    return f"{_number(seconds * _SCALE[unit])}{_SYMBOL[unit]}"


def _loop(entry: dict[str, Any]) -> list[str]:
    work = Work(**entry["work"]) if "work" in entry else None
    heads = ["contender", f"{_SYMBOL[entry['unit']].strip()} a call"]
    heads += (["rate", "of peak"] if work else []) + ["to Nova"]
    lines = [_line(heads), "|" + "---|" * len(heads)]
    for row in entry["rows"]:
        if "summary" not in row:
            lines.append(_line([row["contender"], _why(row)] + [""] * (len(heads) - 2)))
            continue
        seconds = row["summary"]["median"]
        cells = [row["contender"], _spread(row["summary"], entry["unit"], False)]
        cells += [work.describe(seconds), _of_peak(entry, seconds)] if work else []
        lines.append(_line([*cells, f"{row['ratio']:.2f}" if "ratio" in row else ""]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _fresh(entry: dict[str, Any]) -> list[str]:
    phases = list(dict.fromkeys(name for row in entry["rows"] for name in row.get("summary", {})))
    # Phases in their order, then those that only one workload knows.
    names = [name for name in _PHASES if name in phases]
    names += [name for name in phases if name not in _PHASES]
    head = " | ".join(f"{name},{_SYMBOL[entry['unit']]}" for name in names)
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
        text += _SYMBOL[unit]
    if summary["count"] > 1:
        text += f" ({_number(summary['p10'] * scale)} – {_number(summary['p90'] * scale)})"
    return text


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
