"""Rows of Fourier transforms, by `nova/fft`.

Complex numbers are a last axis of two: real and imaginary part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.errors import OnnxError
from nova.fft.transform import transform, transform_real
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast, narrow, pad, wide
from nova.frontends.onnx.table import row
from nova.ops import F
from nova.ops.complex.parts import Pair


def _transform(real: Any, imaginary: Any, inverse: bool, onesided: bool) -> Pair:
    """The transform of the last axis."""
    points = real.shape[-1]
    if onesided and imaginary is None and not inverse:
        return transform_real(real)
    sign, scale = (1, 1.0 / points) if inverse else (-1, 1.0)
    pair = transform((real, imaginary), sign, scale)
    return tuple(part[..., : points // 2 + 1] for part in pair) if onesided else pair


@row("DFT", since=17)
def _dft(node: Node) -> Any:
    x = node.tensor(0)
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise OnnxError(f"DFT of {x.shape}")
    if node.version < 20:
        axis = node.resolve(node.attr("axis", 1), x.ndim)
    else:
        axis = node.resolve(int(node.scalar(2)) if node.has(2) else -2, x.ndim)
    length = int(node.scalar(1)) if node.has(1) else x.shape[axis]
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if inverse and onesided:
        return _inverse_onesided(node, x, axis, length)
    return cast(_along_axis(node, wide(x), axis, length, inverse, onesided), x.dtype)


def _along_axis(node: Node, x: Any, axis: int, length: int, inverse: bool, onesided: bool) -> Any:
    high = [0] * x.ndim
    high[axis] = length - x.shape[axis]
    x = F.movedim(pad(x, [0] * x.ndim, high), axis, -2)
    real = x[..., 0]
    imaginary = x[..., 1] if x.shape[-1] == 2 else None
    parts = _transform(real, imaginary, inverse, onesided)
    return F.movedim(F.stack(list(parts), axis=-1), -2, axis)


def _inverse_onesided(node: Node, x: Any, axis: int, length: int) -> Any:
    """The real signal of half a spectrum: the other half is its conjugate."""
    if not node.has(1):
        length = 2 * (x.shape[axis] - 1)
    half = length // 2 + 1
    high = [0] * x.ndim
    high[axis] = half - x.shape[axis]
    data = pad(wide(x), [0] * x.ndim, high)
    if data.shape[-1] == 1:
        low = (0,) * data.ndim
        data = F.pad(data, low=low, high=(*low[:-1], 1))
    inner = narrow(data, axis, 1, (length + 1) // 2)
    signs = constant(np.array([1, -1], data.dtype.numpy))
    mirrored = F.flip(inner, axes=(axis,)) * signs
    full = F.concat([data, mirrored], axis=axis)
    out = _along_axis(node, full, axis, length, True, False)
    return cast(narrow(out, x.ndim - 1, 0, 1), x.dtype)


@row("STFT", since=17)
def _stft(node: Node) -> Any:
    x = node.tensor(0)
    step = int(node.scalar(1))
    window = node.optional(2)
    if node.has(3):
        length = int(node.scalar(3))
    elif window is not None:
        length = window.shape[0]
    else:
        raise OnnxError("STFT needs a window or a frame_length")
    if length < 1 or step < 1:
        raise node.refused(f"frames of {length} at steps of {step}")
    if x.ndim == 2:
        x = F.unsqueeze(x, 2)
    parts = []
    for i in range(x.shape[2]):
        frames = F.windows(wide(x[:, :, i]), kernel=(length,), stride=(step,))
        frames = F.swapaxes(frames, 1, 2)
        parts.append(frames if window is None else frames * wide(window))
    imaginary = parts[1] if len(parts) == 2 else None
    onesided = bool(node.attr("onesided", 1)) and imaginary is None
    result = _transform(parts[0], imaginary, False, onesided)
    return cast(F.stack(list(result), axis=-1), x.dtype)
