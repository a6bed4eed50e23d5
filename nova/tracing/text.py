"""Times, shares and columns as text, for summaries."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def format_ns(nanoseconds: float) -> str:
    """A time for people: `12.3 us`."""
    for scale, unit in ((1, "ns"), (1e3, "us"), (1e6, "ms")):
        if nanoseconds < 1000 * scale:
            return f"{nanoseconds:.0f} ns" if scale == 1 else f"{nanoseconds / scale:.1f} {unit}"
    return f"{nanoseconds / 1e9:.2f} s"


def percent(part: float, total: float) -> str:
    """`12.3 %`, or a dash if there is no total."""
    return f"{100 * part / total:.1f} %" if total else "-"


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (1, 2)) -> list[str]:
    """Rows with aligned cells; the columns in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
