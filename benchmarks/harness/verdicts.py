"""Which figures a run meets: rows of `harness.pool` in, summaries and verdicts out.

`run.py` calls these in order: summaries of each table, then `judge` with the bars of `bars.py`.
`harness.report` and `harness.plot` show the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.bar import BEST_PEER, Bar

Row = dict[str, Any]
Summary = dict[str, float]


def summarise(values: Sequence[float]) -> Summary:
    """Median, 10th and 90th percentile."""
    ordered = sorted(values)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    return {"median": at(0.5), "p10": at(0.1), "p90": at(0.9), "count": len(ordered)}


def add_loop_summaries(rows: list[Row]) -> None:
    """Summaries, and the median over the rounds of the ratio to the first contender."""
    for row in rows:
        if not row["seconds"] or "failed" in row:
            continue
        row["summary"] = summarise(row["seconds"])
        if "failed" not in rows[0] and len(rows[0]["seconds"]) == len(row["seconds"]):
            row["ratio"] = _within_rounds(row["seconds"], rows[0]["seconds"])["median"]


def add_fresh_summaries(rows: list[Row]) -> None:
    """Summaries by phase."""
    for row in rows:
        for phases in row["phases"]:
            if "compiler" in phases:
                phases["load + compile"] = phases["compiler"] + phases["compile"]
        if row["phases"] and "failed" not in row:
            names = row["phases"][0]
            row["summary"] = {n: summarise([p[n] for p in row["phases"]]) for n in names}


def best_peer(rows: list[Row], phase: str = "") -> Row | None:
    """The contender with the lowest median that is not Nova."""
    peers = [row for row in rows if row["library"] != "nova" and _summary(row, phase)]
    return min(peers, key=lambda row: _summary(row, phase)["median"], default=None)


def share_of(row: Row, other: Row, phase: str = "") -> Summary:
    """The time of a row as a share of another's: within each round where both have all rounds."""
    mine, others = row.get("seconds", []), other.get("seconds", [])
    if mine and len(mine) == len(others):
        return _within_rounds(mine, others)
    base = _summary(other, phase)["median"]
    return _each(_summary(row, phase), lambda value: value / base)


def judge(bars: Sequence[Bar], tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every bar with what was measured and beside whom; `met` is None where nothing was."""
    verdicts = []
    for bar in bars:
        summary, beside = None, ""
        for table in tables:
            if bar.is_about(table):
                summary, beside = _measured(bar, table["rows"])
        verdicts.append(
            {
                "text": bar.text,
                "limit": bar.limit,
                "kind": bar.kind,
                "workload": bar.workload,
                "size": bar.size,
                "threads": bar.threads,
                "summary": summary,
                "beside": beside,
                "met": None if summary is None else _meets(bar, summary["median"]),
            }
        )
    return verdicts


def _measured(bar: Bar, rows: list[Row]) -> tuple[Summary | None, str]:
    """What the bar is about, and the contender beside which it was taken."""
    named = {row["contender"]: row for row in rows if _summary(row, bar.phase)}
    mine = named.get(bar.contender)
    if mine is None:
        return None, ""
    if not bar.beside:
        return _summary(mine, bar.phase), ""
    other = best_peer(rows, bar.phase) if bar.beside == BEST_PEER else named.get(bar.beside)
    if other is None:
        return None, ""
    if bar.kind == "difference":
        base = _summary(other, bar.phase)["median"]
        return _each(_summary(mine, bar.phase), lambda value: value - base), other["contender"]
    if bar.kind == "speed":
        return share_of(other, mine, bar.phase), other["contender"]
    return share_of(mine, other, bar.phase), other["contender"]


def _meets(bar: Bar, value: float) -> bool:
    return value >= bar.limit if bar.kind == "speed" else value <= bar.limit


def _summary(row: Row, phase: str) -> Summary:
    """Empty where there is none."""
    summary = row.get("summary", {})
    return summary.get(phase, {}) if phase else summary


def _within_rounds(mine: Sequence[float], others: Sequence[float]) -> Summary:
    return summarise([a / b for a, b in zip(mine, others, strict=True)])


def _each(summary: Summary, change: Any) -> Summary:
    return {n: value if n == "count" else change(value) for n, value in summary.items()}
