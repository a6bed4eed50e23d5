"""`stft` and `istft`: transforms of overlapping frames of a signal, with torch's arguments."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import real_of
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.fft.functions import fft, ifft, irfft, rfft
from nova.graph.transforms import as_tensor
from nova.ops import F
from nova.ops.rules import int_value, static_axis


def _lengths(name: str, n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    size = int_value(n_fft, f"{name}: n_fft")
    hop = size // 4 if hop_length is None else int_value(hop_length, f"{name}: hop_length")
    length = size if win_length is None else int_value(win_length, f"{name}: win_length")
    if size < 1 or hop < 1 or not 0 < length <= size:
        raise AttributeValueError(
            f"{name}: n_fft {size}, hop_length {hop}, win_length {length}",
            where=str(user_location()),
            hint="they are at least 1, and a window is not longer than n_fft",
        )
    return size, hop, length


def _window(name: str, window: Any, size: int, length: int, type_: Any) -> Any:
    """The window with zeros on both sides, in the middle of n_fft elements."""
    if window is None:
        values = F.ones((length,), dtype=type_)
    else:
        values = as_tensor(window)
        if tuple(values.shape) != (length,):
            raise ShapeError(
                f"{name}: a window of {values.shape} for win_length {length}",
                where=str(user_location()),
            )
        values = F.cast(values, dtype=type_)
    low = (size - length) // 2
    return F.pad(values, (low,), (size - length - low,))


@user_facing
def stft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = True,
) -> Any:
    """The transforms of frames of a signal (..., time), as (..., frequency, frame).

    Frames of n_fft elements begin every `hop_length` (n_fft / 4 by default), times a window of
    `win_length` elements. With `center` the signal is padded so that frame t is centered at
    t * hop_length. A real signal has the frequencies that are not negative, unless `onesided` is
    False. Without `return_complex` the last axis has the real and imaginary parts.
    """
    x = as_tensor(x)
    size, hop, length = _lengths("stft", n_fft, hop_length, win_length)
    if not x.dtype.is_float and not x.dtype.is_complex:
        raise DTypeError(f"stft: a signal of {x.dtype}", hint="cast it to a float type first")
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"stft: a signal of {x.shape} is not (time) or (batch, time)")
    is_complex = x.dtype.is_complex
    one_side = not is_complex if onesided is None else bool(onesided)
    if one_side and is_complex:
        raise AttributeValueError(
            "stft: onesided of a complex signal", hint="it has negative frequencies of its own"
        )
    if is_complex:
        options = (size, hop, length, window, center, pad_mode, normalized, False, True)
        parts = [stft(part, *options) for part in (F.real(x), F.imag(x))]
        result = parts[0] + parts[1] * 1j
        return result if return_complex else F.view_as_real(result)
    rows = F.unsqueeze(x, 0) if len(x.shape) == 1 else x
    if center:
        rows = F.squeeze(F.pad_edges(F.unsqueeze(rows, 1), (size // 2, size // 2), pad_mode), 1)
    if rows.shape[1] < size:
        raise ShapeError(f"stft: frames of {size} in a signal of {rows.shape[1]} elements")
    frames = F.windows(rows, kernel=(size,), stride=(hop,))
    frames = frames * F.reshape(_window("stft", window, size, length, x.dtype), (size, 1))
    norm = "ortho" if normalized else None
    terms = (rfft if one_side else fft)(frames, axis=-2, norm=norm)
    terms = terms if len(x.shape) == 2 else F.squeeze(terms, 0)
    return terms if return_complex else F.view_as_real(terms)


@user_facing
def istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal of its `stft` (..., frequency, frame): frames added, divided by the windows.

    `length` is that of the signal, which frames may exceed. Where the windows of all frames are 0,
    the result is infinite or NaN.
    """
    x = as_tensor(x)
    if not x.dtype.is_complex:
        raise DTypeError(f"istft: terms of {x.dtype}, not complex", hint="use nova.view_as_complex")
    size, hop, taps = _lengths("istft", n_fft, hop_length, win_length)
    if len(x.shape) not in (2, 3):
        raise ShapeError(f"istft: {x.shape} is not (frequency, frame) with or without a batch")
    rows = F.unsqueeze(x, 0) if len(x.shape) == 2 else x
    terms = static_axis(rows.type, 1, "istft transforms")
    one_side = terms != size if onesided is None else bool(onesided)
    if terms != (size // 2 + 1 if one_side else size):
        raise ShapeError(f"istft: {terms} frequencies for n_fft {size}")
    if return_complex and one_side:
        raise AttributeValueError("istft: a one-sided transform is that of a real signal")
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ifft(rows, axis=1, norm=norm)
    else:  # a real signal has half of the frequencies, whatever the others are
        frames = irfft(F.narrow(rows, 1, 0, size // 2 + 1), size, axis=1, norm=norm)
    real = real_of(rows.dtype)
    values = F.reshape(_window("istft", window, size, taps, real), (size, 1))
    count = static_axis(rows.type, 2, "istft adds the frames of")
    total = size + hop * (count - 1)
    weights = F.overlap_add(F.expand(F.square(values), (size, count)), size=(total,), stride=(hop,))
    result = _added(frames * values, total, hop) / weights
    start = size // 2 if center else 0
    end = start + length if length is not None else total - start
    result = F.narrow(result, 1, start, min(end, total) - start)
    if end > total:
        result = F.pad(result, (0, 0), (0, end - total))
    return result if len(x.shape) == 3 else F.squeeze(result, 0)


def _added(frames: Any, total: int, hop: int) -> Any:
    """The frames at their positions."""
    options = {"size": (total,), "stride": (hop,)}
    if not frames.dtype.is_complex:
        return F.overlap_add(frames, **options)
    return F.complex(*(F.overlap_add(part(frames), **options) for part in (F.real, F.imag)))
