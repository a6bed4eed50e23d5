"""Answers of the tools, as aligned text or as JSON.

Tables of strings come in; text goes to a stream. On a terminal, and where `rich` is installed, the
titles stand out and long cells are wrapped; anywhere else the text is plain. Called by the
commands. The contents may come from a hostile file, so control characters are made visible.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title; without `header`, pairs of a name and a value."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]


def print_json(value: Any) -> None:
    """One JSON document on stdout, its keys in a stable order."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_tables(tables: Iterable[Table], stream: TextIO | None = None) -> None:
    """All tables that have rows, with an empty line between two."""
    stream = stream or sys.stdout
    filled = [table for table in tables if table.rows]
    if not (stream.isatty() and _print_rich(filled, stream)):
        stream.write("\n\n".join(render_table(table) for table in filled) + "\n")


def render_table(table: Table) -> str:
    """A table as plain text, its columns aligned; numbers under a header to the right."""
    rows, numeric = _prepare(table)
    all_rows = [list(table.header), *rows] if table.header else rows
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(rows[0]))]
    lines = [printable(table.title)]
    for row in all_rows:
        cells = [
            cell.rjust(width) if i in numeric else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def printable(text: str) -> str:
    """`text` with everything that could move a cursor written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_bytes(count: int) -> str:
    """A number of bytes for people: `40.0 KiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """A short time for people: `12.3 us`."""
    for scale, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 1000 * scale:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds:.2f} s"


def format_age(seconds: float) -> str:
    """A long time for people: `3 min`."""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _prepare(table: Table) -> tuple[list[list[str]], set[int]]:
    """The cells as text, and which columns hold numbers."""
    rows = [[printable(str(cell)) for cell in row] for row in table.rows]
    numeric = {
        i
        for i in range(len(table.header))
        if all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows)
        and all(len(row[i]) < 20 for row in rows)  # a hash is not a number
    }
    return rows, numeric


def _print_rich(tables: list[Table], stream: TextIO) -> bool:
    """Whether `rich` is there, and has printed the tables."""
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=stream)
    for number, table in enumerate(tables):
        rows, numeric = _prepare(table)
        rich_table = RichTable(box=None, pad_edge=False, show_header=bool(table.header))
        for i, name in enumerate(table.header or [""] * len(rows[0])):
            justify = "right" if i in numeric else "left"
            rich_table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in rows:
            rich_table.add_row(*(Text(cell) for cell in row))  # as Text: `f32[2]` is not markup
        if number:
            console.print()
        console.print(Text(printable(table.title), style="bold"))
        console.print(rich_table)
    return True
