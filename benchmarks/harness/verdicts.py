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
        position = share * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

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


def relative_times(row: Row, peer_row: Row, phase: str = "") -> Summary:
    """The time of a row as a share of another's: within each round where both have all rounds."""
    times, peer_times = row.get("seconds", []), peer_row.get("seconds", [])
    if times and len(times) == len(peer_times):
        return _within_rounds(times, peer_times)
    base = _summary(peer_row, phase)["median"]
    return _each(_summary(row, phase), lambda value: value / base)


def judge(bars: Sequence[Bar], tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every bar with the measurement and the peer; `met` is None without a measurement."""
    verdicts = []
    for bar in bars:
        summary, peer = None, ""
        for table in tables:
            if bar.is_about(table):
                summary, peer = _measured(bar, table["rows"])
        verdicts.append(
            {
                "text": bar.text,
                "limit": bar.limit,
                "kind": bar.measure,
                "workload": bar.workload,
                "size": bar.size,
                "threads": bar.threads,
                "summary": summary,
                "beside": peer,
                "met": None if summary is None else _meets(bar, summary["median"]),
            }
        )
    return verdicts


def _measured(bar: Bar, rows: list[Row]) -> tuple[Summary | None, str]:
    """The value that the bar limits, and the contender it is compared with."""
    named = {row["contender"]: row for row in rows if _summary(row, bar.phase)}
    times = named.get(bar.contender)
    if times is None:
        return None, ""
    if not bar.peer:
        return _summary(times, bar.phase), ""
    peer_row = best_peer(rows, bar.phase) if bar.peer == BEST_PEER else named.get(bar.peer)
    if peer_row is None:
        return None, ""
    if bar.measure == "difference":
        base = _summary(peer_row, bar.phase)["median"]
        return _each(_summary(times, bar.phase), lambda value: value - base), peer_row["contender"]
    if bar.measure == "speed":
        return relative_times(peer_row, times, bar.phase), peer_row["contender"]
    return relative_times(times, peer_row, bar.phase), peer_row["contender"]


def _meets(bar: Bar, value: float) -> bool:
    return value >= bar.limit if bar.measure == "speed" else value <= bar.limit


def _summary(row: Row, phase: str) -> Summary:
    """Empty where there is none."""
    summary = row.get("summary", {})
    return summary.get(phase, {}) if phase else summary


def _within_rounds(times: Sequence[float], peer_times: Sequence[float]) -> Summary:
    return summarise([a / b for a, b in zip(times, peer_times, strict=True)])


def _each(summary: Summary, change: Any) -> Summary:
    return {n: value if n == "count" else change(value) for n, value in summary.items()}
