"""The loss curve as a PNG, drawn by matplotlib (the extra `plot`). For `History.save_png`."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np

from nova.core.packages import install_command
from nova.errors import MissingPackageError
from nova.train.axes import label, value_axis
from nova.train.text_chart import column_means

_INCHES, _DPI = (9.6, 5.4), 100
_CURVE, _PALE, _GRID, _FAINT = "#185fba", "#b0ccf0", "#e8eaee", "#828892"
# More steps than this look like noise: they are drawn pale, with a smooth curve over them.
_MANY = 150
_SMOOTH_PARTS = 60
# More steps than this are reduced to the minimum and the maximum of each part.
_OUTLINE_PARTS = 1000


def draw_png(losses: np.ndarray, epoch_ends: Sequence[int], *, log: bool | None) -> bytes:
    """The bytes of a picture of 960 x 540."""
    figure = _figure_class()(figsize=_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    scale = value_axis(losses, log)
    if scale.log:
        axes.set_yscale("log")
    axes.set_xlim(0, max(1, len(losses)))
    axes.set_ylim(scale.low, scale.high)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step", loc="right", color=_FAINT)
    axes.set_title("loss (log scale)" if scale.log else "loss", loc="left", fontsize="x-large")
    axes.set_title(_summary(losses, epoch_ends), loc="right", color=_FAINT, fontsize="medium")
    _draw_curve(axes, np.where(np.isfinite(losses), losses, np.nan))
    png = BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def check_matplotlib() -> None:
    """Raise the error of a missing matplotlib now, not after the first epoch."""
    _figure_class()


def _figure_class() -> Any:
    """The figure of matplotlib, without pyplot: no window, no global state, any thread."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            f"a PNG of the loss needs matplotlib, which cannot be imported: {error}",
            hint=f"{install_command(['matplotlib'])}; print(history) draws the curve as text",
        ) from error
    return Figure


def _draw_curve(axes: Any, losses: np.ndarray) -> None:
    steps = np.arange(1.0, len(losses) + 1)
    if len(losses) == 1:
        axes.plot(steps, losses, "o", color=_CURVE, markersize=8, clip_on=False)
    elif len(losses) <= _MANY:
        axes.plot(steps, losses, color=_CURVE, linewidth=2)
    else:
        axes.plot(*_outline(losses), color=_PALE, linewidth=1)
        ends = np.linspace(0, len(losses), _SMOOTH_PARTS + 1)
        middles = (ends[:-1] + ends[1:]) / 2
        axes.plot(middles, column_means(losses, _SMOOTH_PARTS), color=_CURVE, linewidth=2.2)


def _outline(losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses to draw; of many steps, the minimum and the maximum of each part."""
    if len(losses) <= 2 * _OUTLINE_PARTS:
        return np.arange(1.0, len(losses) + 1), losses
    ends = np.linspace(0, len(losses), _OUTLINE_PARTS + 1).astype(int)
    extremes = []
    for low, high in pairwise(ends):
        part = losses[low:high][np.isfinite(losses[low:high])]
        extremes += [part.min(), part.max()] if part.size else [np.nan, np.nan]
    return np.repeat((ends[:-1] + ends[1:]) / 2, 2), np.array(extremes)


def _summary(losses: np.ndarray, epoch_ends: Sequence[int]) -> str:
    finite = losses[np.isfinite(losses)]
    epochs = f"{len(epoch_ends)} epoch{'s' * (len(epoch_ends) != 1)}, " if epoch_ends else ""
    steps = f"{len(losses)} step{'s' * (len(losses) != 1)}"
    last = f", last {label(float(finite[-1]))}" if finite.size else ""
    return epochs + steps + last
