"""The plot of a run: speeds relative to the best peer, a bar for each workload and thread count.

`run.py` gives the tables with the summaries of `harness.verdicts`. The axis is logarithmic, so that
twice as fast and half as fast are as far from the line at 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.verdicts import best_peer, relative_times

_COLOURS = {1: "#4c78a8", 2: "#f58518"}
_BAR = 0.38


def lines_of(entries: list[dict[str, Any]]) -> dict[str, dict[int, tuple[float, str]]]:
    """Label (workload and size) -> thread count -> speed relative to the best peer, its name."""
    speeds_by_label: dict[str, dict[int, tuple[float, str]]] = {}
    for entry in entries:
        if entry["kind"] != "loop":
            continue
        nova, best = entry["rows"][0], best_peer(entry["rows"])
        if "summary" not in nova or best is None:
            continue
        label = " ".join(filter(None, [entry["workload"].replace("_", " "), entry["size"]]))
        speed = relative_times(best, nova)["median"]
        speeds_by_label.setdefault(label, {})[entry["threads"]] = (speed, best["contender"])
    return speeds_by_label


def required_speeds(bars: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """Label and thread count -> the speed relative to the best peer that a bar requires."""
    required = {}
    for bar in bars:
        if bar["threads"] and bar["kind"] in ("share", "speed"):
            label = " ".join(filter(None, [bar["workload"].replace("_", " "), bar["size"]]))
            speed = bar["limit"] if bar["kind"] == "speed" else 1 / bar["limit"]
            required[label, bar["threads"]] = speed
    return required


def draw(results: dict[str, Any], path: Path) -> None:
    """Write the picture; ImportError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines, required = lines_of(results["workloads"]), required_speeds(results["bars"])
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.52 * len(lines)))
    for row, (label, speeds) in enumerate(lines.items()):
        offsets = {n: (i - (len(speeds) - 1) / 2) * _BAR for i, n in enumerate(sorted(speeds))}
        for threads, (speed, peer) in speeds.items():
            y = row + offsets[threads]
            axes.barh(y, speed - 1, _BAR, left=1, color=_COLOURS.get(threads, "#999999"))
            at, ahead = required.get((label, threads)), speed >= 1
            axes.annotate(
                f"{speed:.2f}  {peer}",
                (max(speed, at or 0) if ahead else speed, y),
                xytext=(4 if ahead else -4, 0),
                textcoords="offset points",
                ha="left" if ahead else "right",
                va="center",
                fontsize=7.5,
            )
            if at is not None:
                axes.plot([at, at], [y - _BAR / 2, y + _BAR / 2], color="black", linewidth=1.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    lowest, highest = _limits(lines)
    axes.set_xlim(lowest, highest)
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator(_ticks(lowest, highest)))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}x"))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_yticks(range(len(lines)), list(lines), fontsize=9)
    axes.invert_yaxis()
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(axis="x", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    thread_counts = {n for speeds in lines.values() for n in speeds}
    handles = [
        matplotlib.patches.Patch(
            color=_COLOURS.get(n, "#999999"), label=f"{n} thread{'s' * (n > 1)}"
        )
        for n in sorted(thread_counts)
    ]
    handles.append(matplotlib.lines.Line2D([], [], color="black", linewidth=1.6, label="bar"))
    axes.legend(handles=handles, loc="lower right", fontsize=9)
    machine = results["machine"]
    axes.set_title(
        "Nova's speed relative to the best peer of the same run: right of 1x Nova is faster\n"
        f"{machine['date'][:10]}, {machine['cpu']} ({machine['vectors']}), "
        f"{machine['cores']} cores",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _limits(lines: dict[str, dict[int, tuple[float, str]]]) -> tuple[float, float]:
    """The ends of the axis, with room for the labels of the longest bars."""
    speeds = [speed for by_threads in lines.values() for speed, _ in by_threads.values()] or [1.0]
    return min(*speeds, 0.5) / 2.2, max(*speeds, 2.0) * 2.2


def _ticks(lowest: float, highest: float) -> list[float]:
    steps = [m * 10.0**e for e in range(-3, 4) for m in (1, 2, 5)]
    return [step for step in steps if lowest <= step <= highest]
