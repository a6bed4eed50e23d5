"""Complex numbers: parts, conjugates, polar form and Fourier transforms.

Rows of other files take complex operands too: Nova's ops compute with pairs of real tensors
(`nova/ops/complex`). torch conjugates lazily, by a bit of a view; here a conjugate has values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi
from typing import Any

from nova.core.dtypes import complex_of, float_of
from nova.fft import fft, ifft, irfft, rfft
from nova.frontends.torch.rows.table import cast, row


@row("_conj.default", "_conj_physical.default", "conj_physical.default", "conj.default")
def _conj(F: Any, x: Any) -> Any:
    return F.conj(x)


@row("resolve_conj.default", "resolve_neg.default")
def _resolved(F: Any, x: Any) -> Any:
    return x


@row("_neg_view.default")
def _neg_view(F: Any, x: Any) -> Any:
    return F.neg(x)


@row("real.default")
def _real(F: Any, x: Any) -> Any:
    return F.real(x)


@row("imag.default")
def _imag(F: Any, x: Any) -> Any:
    return F.imag(x)


@row("view_as_real.default", "view_as_real_copy.default")
def _view_as_real(F: Any, x: Any) -> Any:
    return F.view_as_real(x)


@row("view_as_complex.default", "view_as_complex_copy.default")
def _view_as_complex(F: Any, x: Any) -> Any:
    return F.view_as_complex(x)


@row("complex.default")
def _complex(F: Any, real: Any, imag: Any) -> Any:
    return F.complex(real, imag)


@row("polar.default")
def _polar(F: Any, abs: Any, angle: Any) -> Any:
    return F.polar(abs, angle)


@row("angle.default")
def _angle(F: Any, x: Any) -> Any:
    if x.dtype.is_complex:
        return F.angle(x)
    x = cast(F, x, float_of(x.dtype))  # a zero has the angle 0, whatever its sign
    return F.where(F.isnan(x), x, F.where(F.lt(x, 0), pi, 0.0))


# --- Fourier transforms ---------------------------------------------------------------------------

_FORWARD_NORMS = ("backward", "ortho", "forward")
"""By ATen's number: no factor, 1 / sqrt(n), 1 / n."""
_INVERSE_NORMS = ("forward", "ortho", "backward")


@row("_fft_c2c.default")
def _fft_c2c(F: Any, x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    norm = (_FORWARD_NORMS if forward else _INVERSE_NORMS)[normalization]
    for axis in dim:
        x = (fft if forward else ifft)(x, axis=axis, norm=norm)
    return x


@row("_fft_r2c.default")
def _fft_r2c(F: Any, x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not onesided or not dim:
        return _fft_c2c(F, cast(F, x, complex_of(x.dtype)), dim, normalization, True)
    *others, last = dim
    half = rfft(x, axis=last, norm=_FORWARD_NORMS[normalization])
    return _fft_c2c(F, half, others, normalization, True)


@row("_fft_c2r.default")
def _fft_c2r(F: Any, x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    *others, last = dim
    x = _fft_c2c(F, x, others, normalization, False)
    return irfft(x, n=last_dim_size, axis=last, norm=_INVERSE_NORMS[normalization])
