"""The loss curve as text, for `print(history)`."""

from __future__ import annotations

import numpy as np

from nova.train.axes import count_label, label, value_axis

_WIDTH, _HEIGHT = 64, 10
_BLOCKS = " ▁▂▃▄▅▆▇█"


def draw_text(losses: np.ndarray) -> str:
    """A chart of blocks: each column is the mean of its steps."""
    if not np.isfinite(losses).any():
        return f"no finite loss in {len(losses)} steps"
    columns = column_means(losses, min(_WIDTH, len(losses)))
    # Few steps get wide columns.
    columns = np.repeat(columns, max(1, _WIDTH // len(columns)))
    axis = value_axis(columns, None)
    eighths = np.zeros(len(columns), np.int64)
    finite = np.isfinite(columns)
    # The lowest value is visible too.
    eighths[finite] = np.maximum(1, np.rint(axis.normalize(columns[finite]) * _HEIGHT * 8))
    labels = _labels(axis.ticks(4), axis.normalize(np.array(axis.ticks(4))))
    wide = max(map(len, labels.values()), default=1)
    lines = [f"{'loss':>{wide}}" + (" (log scale)" if axis.log else "")]
    for row in reversed(range(_HEIGHT)):
        blocks = "".join(_BLOCKS[int(n)] for n in np.clip(eighths - 8 * row, 0, 8))
        edge = "┤" if row in labels else "│"
        lines.append(f"{labels.get(row, ''):>{wide}} {edge}{blocks}".rstrip())
    last = f"{count_label(len(losses))} steps"
    lines.append(f"{'':>{wide}} └{'─' * len(columns)}")
    lines.append(f"{'':>{wide}}  1{last:>{len(columns) - 1}}")
    return "\n".join(lines)


def column_means(losses: np.ndarray, count: int) -> np.ndarray:
    """Means of the finite numbers in `count` segments of equal length; else NaN."""
    parts = np.array_split(losses, count)
    finite = [part[np.isfinite(part)] for part in parts]
    return np.array([part.mean() if part.size else np.nan for part in finite])


def _labels(ticks: list[float], heights: np.ndarray) -> dict[int, str]:
    """The label of a row, if it has one."""
    rows = [min(_HEIGHT - 1, int(height * _HEIGHT)) for height in heights]
    return {row: label(tick) for row, tick in zip(rows, ticks, strict=True)}
