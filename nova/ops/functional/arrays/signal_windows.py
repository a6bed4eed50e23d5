"""Windows of signal processing, with torch's names: hann_window, kaiser_window, ...

Their values are constants of the program, so no size of them is symbolic.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from nova.core.dtypes import dtype as dtype_of
from nova.core.dtypes import f32
from nova.errors import AttributeValueError
from nova.ops.functional.common import function, number
from nova.ops.rules import int_value
from nova.ops.table import Op, register


def _positions(name: str, window_length: Any, periodic: bool) -> tuple[int, np.ndarray, float]:
    """The length, the places 0, 1, ..., and the place of the end of the window."""
    count = int_value(window_length, f"{name}: window_length")
    if count < 0:
        raise AttributeValueError(f"{name}: window_length must be at least 0, not {count}")
    return count, np.arange(count, dtype=np.float64), float(count if periodic else count - 1)


def _constant(F: Any, values: np.ndarray, dtype: Any) -> Any:
    return F.detach(values.astype(dtype_of(dtype).numpy))


def _cosines(name: str, *weights: float) -> Any:
    """Sums of cosines with alternating signs: Blackman's family of windows."""

    def build(F: Any, window_length: int, periodic: bool = True, dtype: Any = f32) -> Any:
        count, at, end = _positions(name, window_length, periodic)
        values = np.ones(count) if count == 1 else _sum(at, end, weights)
        return _constant(F, values, dtype)

    return build


def _sum(at: np.ndarray, end: float, weights: tuple[float, ...]) -> np.ndarray:
    total = np.zeros_like(at)
    for k, weight in enumerate(weights):
        total += (-1) ** k * weight * np.cos(2 * pi * k * at / end)
    return total


def _hamming(
    F: Any,
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    dtype: Any = f32,
) -> Any:
    weights = (number("hamming_window", "alpha", alpha), number("hamming_window", "beta", beta))
    return _cosines("hamming_window", *weights)(F, window_length, periodic, dtype)


def _bartlett(F: Any, window_length: int, periodic: bool = True, dtype: Any = f32) -> Any:
    count, at, end = _positions("bartlett_window", window_length, periodic)
    values = np.ones(count) if count == 1 else 1.0 - np.abs(2.0 * at / end - 1.0)
    return _constant(F, values, dtype)


def _kaiser(
    F: Any, window_length: int, periodic: bool = True, beta: float = 12.0, dtype: Any = f32
) -> Any:
    count, at, end = _positions("kaiser_window", window_length, periodic)
    shape = number("kaiser_window", "beta", beta)
    if count == 1:
        return _constant(F, np.ones(1), dtype)
    inside = np.sqrt(np.maximum(1.0 - (2.0 * at / end - 1.0) ** 2, 0.0))
    return _constant(F, np.i0(shape * inside) / np.i0(shape), dtype)


_DOC = "{} window of a number of samples; `periodic` omits the last one of a symmetric window."
ROWS: tuple[Op, ...] = tuple(
    function(f"{name}_window", _DOC.format(title), build, operands=(), tags=frozenset({"nograd"}))
    for name, title, build in (
        ("hann", "Hann's", _cosines("hann_window", 0.5, 0.5)),
        ("hamming", "Hamming's", _hamming),
        ("blackman", "Blackman's", _cosines("blackman_window", 0.42, 0.5, 0.08)),
        ("bartlett", "Bartlett's triangular", _bartlett),
        ("kaiser", "Kaiser's", _kaiser),
    )
)


def register_rows() -> None:
    register(*ROWS)
