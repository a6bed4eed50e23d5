"""The scaled error function, and the normal distribution: its integral, log and inverse.

erfcx(x) (1 + 2 x) is a sum of Chebyshev polynomials of (x - k) / (x + k), after Schonfelder (1978).
"""

from __future__ import annotations

from math import inf, log, nan, sqrt
from typing import Any

from nova.core.dtypes import f64
from nova.ops.functional.common import as_floats, function, to_dtype
from nova.ops.functional.special.erfinv import inverse
from nova.ops.functional.special.series import chebyshev
from nova.ops.table import Op, register

_CENTER = 3.75
_ERFCX = (
    *(1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189),
    *(-0.026658668435305753, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086),
    *(-6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07),
    *(1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10, -6.318088340886684e-11),
    *(2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.25254814814874e-14),
    *(
        3.3478119482868056e-14,
        -1.864562880419313e-15,
        -1.2507950530688648e-15,
        7.418235256624044e-17,
    ),
    *(5.068148904796111e-17,),
)


def _erfcx_positive(F: Any, x: Any) -> Any:
    """At x >= 0, where it falls from 1 as 1 / x."""
    t = F.where(F.eq(x, inf), 1.0, (x - _CENTER) / (F.minimum(x, 1e300) + _CENTER))
    return chebyshev(F, t, _ERFCX) / (1.0 + 2.0 * x)


def _erfcx_wide(F: Any, x: Any) -> Any:
    low = x < 0.0
    positive = _erfcx_positive(F, F.where(low, -x, x))
    # exp(x^2) of x that is not negative may be infinite: its product with 0 is NaN.
    grown = 2.0 * F.exp(F.square(F.where(low, x, 0.0)))
    return F.where(low, grown - positive, positive)


def _ndtr_wide(F: Any, x: Any) -> Any:
    return F.erfc(x * -sqrt(0.5)) * 0.5


def _log_ndtr_wide(F: Any, x: Any) -> Any:
    low = x < -1.0
    tail = F.where(low, x, -1.0)
    far = F.log(_erfcx_positive(F, tail * -sqrt(0.5)) * 0.5) - tail * tail * 0.5
    near = F.log1p(F.erfc(F.where(low, 0.0, x) * sqrt(0.5)) * -0.5)
    return F.where(low, far, near)


def _ndtri_wide(F: Any, p: Any) -> Any:
    inside = (p > 0.0) & (p < 1.0)
    safe = F.where(inside, p, 0.5)
    low = safe < 0.5
    tail = F.where(low, safe, 1.0 - safe)
    size = inverse(F, 1.0 - 2.0 * tail, 2.0 * tail) * sqrt(2.0)
    edge = F.where(F.eq(p, 0.0), -inf, F.where(F.eq(p, 1.0), inf, nan))
    return F.where(inside, F.where(low, -size, size), edge)


def _entr_wide(F: Any, x: Any) -> Any:
    positive = x > 0.0
    value = -x * F.log(F.where(positive, x, 1.0))
    return F.where(positive, value, F.where(x < 0.0, -inf, x))


def _rounded(wide: Any) -> Any:
    def build(F: Any, x: Any) -> Any:
        (x,) = as_floats(F, x)
        return to_dtype(F, wide(F, to_dtype(F, x, f64)), x.dtype)

    return build


def _xlog1py(F: Any, x: Any, y: Any) -> Any:
    x, y = as_floats(F, x, y)
    zero = F.eq(x, 0.0) & F.logical_not(F.isnan(y))
    return F.where(zero, 0.0, x * F.log1p(F.where(zero, 0.0, y)))


def _log1mexp(F: Any, x: Any) -> Any:
    """Maechler (2012): by expm1 where exp(-x) is near 1, by log1p elsewhere."""
    (x,) = as_floats(F, x)
    near = x < log(2.0)
    first = F.log(-F.expm1(-F.where(near, x, 1.0)))
    return F.where(near, first, F.log1p(-F.exp(-F.where(near, 1.0, x))))


def _logmeanexp(F: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    (x,) = as_floats(F, x)
    total = F.logsumexp(x, axis=axis, keepdims=keepdims)
    count = F.sum(F.ones_like(x), axis=axis, keepdims=keepdims)
    return total - F.log(count)


ROWS: tuple[Op, ...] = (
    function("erfcx", "exp(x^2) * erfc(x), without overflow.", _rounded(_erfcx_wide)),
    function(
        "ndtr", "The integral of the normal distribution from -inf to x.", _rounded(_ndtr_wide)
    ),
    function("log_ndtr", "The logarithm of ndtr(x), in its tail too.", _rounded(_log_ndtr_wide)),
    function("ndtri", "The inverse of ndtr, on 0..1.", _rounded(_ndtri_wide)),
    function("entr", "-x * log(x), 0 at 0 and -inf below.", _rounded(_entr_wide)),
    function("xlog1py", "x * log(1 + y), 0 where x is 0.", _xlog1py, operands=("x", "y")),
    function("log1mexp", "log(1 - exp(-x)) of x above 0.", _log1mexp),
    function("logmeanexp", "The logarithm of the mean of exp(x) over the axes.", _logmeanexp),
)


def register_rows() -> None:
    register(*ROWS)
