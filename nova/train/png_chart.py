"""The loss curve as a PNG, for `History.save_png`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nova.train.axes import Axis, count_label, label, value_axis
from nova.train.canvas import Canvas, Colour
from nova.train.font import HEIGHT
from nova.train.text_chart import column_means

_WIDTH, _TALL = 960, 540
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 30, 62, 64
_INNER, _UPRIGHT = _WIDTH - _LEFT - _RIGHT, _TALL - _TOP - _BOTTOM
_DOT = 2
_INK: Colour = (60, 64, 72)
_FAINT: Colour = (130, 136, 146)
_GRID: Colour = (232, 234, 238)
_PALE: Colour = (176, 204, 240)
_CURVE: Colour = (24, 95, 186)
# More steps than this look like noise: they are drawn pale, with a smooth curve over them.
_MANY = 150
_SMOOTH_PARTS = 60


def draw_png(losses: np.ndarray, epoch_ends: Sequence[int], *, log: bool | None) -> bytes:
    """The bytes of a picture of 960 x 540."""
    canvas = Canvas(_WIDTH, _TALL)
    steps = Axis(0.0, float(max(1, len(losses))))
    values = value_axis(losses, log)
    _draw_frame(canvas, steps, values)
    _draw_title(canvas, losses, epoch_ends, values)
    numbers = np.arange(1.0, len(losses) + 1)
    if len(losses) <= _MANY:
        canvas.curve(_points(numbers, losses, steps, values), _CURVE, 2.6)
    else:
        canvas.curve(_outline(losses, steps, values), _PALE, 1.4)
        ends = np.linspace(0, len(losses), _SMOOTH_PARTS + 1)
        means = column_means(losses, _SMOOTH_PARTS)
        middles = (ends[:-1] + ends[1:]) / 2
        canvas.curve(_points(middles, means, steps, values), _CURVE, 3.0)
    if len(losses) == 1 and np.isfinite(losses[0]):
        dot = np.repeat(_points(numbers, losses, steps, values), 2, axis=0)
        canvas.curve(dot, _CURVE, 8.0)
    return canvas.png()


def _draw_frame(canvas: Canvas, steps: Axis, values: Axis) -> None:
    bottom = _TALL - _BOTTOM
    for tick in values.ticks(6):
        y = round(_vertical(np.array([tick]), values)[0])
        canvas.box(_LEFT, y, _INNER, 1, _GRID)
        _right_text(canvas, _LEFT - 14, y - HEIGHT * _DOT // 2, label(tick))
    for tick in steps.ticks(8):
        if tick != int(tick):
            continue
        x = round(_horizontal(np.array([tick]), steps)[0])
        canvas.box(x, _TOP, 1, _UPRIGHT, _GRID)
        canvas.box(x, bottom, 1, 7, _INK)
        text = count_label(tick)
        canvas.text(x - len(text) * 3 * _DOT + _DOT // 2, bottom + 14, text, _INK)
    canvas.box(_LEFT, _TOP, 2, _UPRIGHT, _INK)
    canvas.box(_LEFT, bottom, _INNER, 2, _INK)
    _right_text(canvas, _WIDTH - _RIGHT, _TALL - 24, "step", _FAINT)


def _draw_title(
    canvas: Canvas, losses: np.ndarray, epoch_ends: Sequence[int], values: Axis
) -> None:
    canvas.text(_LEFT, 24, "loss", _INK, 3)
    if values.log:
        canvas.text(_LEFT + 86, 31, "(log scale)", _FAINT)
    finite = losses[np.isfinite(losses)]
    epochs = f"{len(epoch_ends)} epoch{'s' * (len(epoch_ends) != 1)}, " if epoch_ends else ""
    steps = f"{len(losses)} step{'s' * (len(losses) != 1)}"
    last = f", last {label(float(finite[-1]))}" if finite.size else ""
    _right_text(canvas, _WIDTH - _RIGHT, 31, epochs + steps + last, _FAINT)


def _outline(losses: np.ndarray, steps: Axis, values: Axis) -> np.ndarray:
    """All steps as a line; a pixel with several steps shows their minimum and maximum."""
    if len(losses) <= 2 * _INNER:
        return _points(np.arange(1.0, len(losses) + 1), losses, steps, values)
    ends = np.linspace(0, len(losses), _INNER + 1).astype(int)
    extremes = []
    for low, high in pairwise(ends):
        part = losses[low:high][np.isfinite(losses[low:high])]
        extremes += [part.min(), part.max()] if part.size else [np.nan, np.nan]
    numbers = np.repeat((ends[:-1] + ends[1:]) / 2, 2)
    return _points(numbers, np.array(extremes), steps, values)


def _points(numbers: np.ndarray, losses: np.ndarray, steps: Axis, values: Axis) -> np.ndarray:
    return np.stack([_horizontal(numbers, steps), _vertical(losses, values)], axis=1)


def _horizontal(numbers: np.ndarray, steps: Axis) -> np.ndarray:
    return _LEFT + steps.place(numbers) * _INNER


def _vertical(losses: np.ndarray, values: Axis) -> np.ndarray:
    shown = np.where(np.isfinite(losses), losses, np.nan)
    return _TOP + (1 - values.place(shown)) * _UPRIGHT


def _right_text(canvas: Canvas, right: int, y: int, text: str, colour: Colour = _INK) -> None:
    canvas.text(right - len(text) * 6 * _DOT + _DOT, y, text, colour, _DOT)
