"""Modified Bessel functions of the first kind, of orders 0 and 1.

exp(-x) I(x) is a sum of Chebyshev polynomials: of x below 8, of 8 / x above, there times sqrt(x).
The coefficients were computed at Chebyshev nodes with 40 digits.
"""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import f64
from nova.ops.functional.common import as_floats, function, to_dtype
from nova.ops.functional.special.series import chebyshev
from nova.ops.table import Op, register

_BORDER = 8.0
_I0_NEAR = (
    *(0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764),
    *(0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576),
    *(
        0.0016394756169413357,
        -0.0005763755745385824,
        0.00018850288509584165,
        -5.754195010082104e-05,
    ),
    *(
        1.6448448070728896e-05,
        -4.4167383584587505e-06,
        1.1173875391201037e-06,
        -2.670793853940612e-07,
    ),
    *(
        6.046995022541919e-08,
        -1.300025009986248e-08,
        2.6598237246823866e-09,
        -5.189795601635263e-10,
    ),
    *(9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13),
    *(
        7.676185498604936e-14,
        -1.1685332877993451e-14,
        1.715391285555133e-15,
        -2.431279846547955e-16,
    ),
    *(3.3307945188222384e-17, -4.4153416464793395e-18),
)
_I0_FAR = (
    *(0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06),
    *(2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10),
    *(
        1.1889147107846439e-11,
        -3.1499165279632416e-11,
        -1.3215811840447713e-11,
        -1.7941785315068062e-12,
    ),
    *(7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14),
    *(
        -9.554846698828307e-15,
        3.8116806693526224e-15,
        1.7725601330565263e-15,
        -3.425485619677219e-16,
    ),
    *(-2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944178e-18),
    *(-7.23318048787476e-18,),
)
# Of I1(x) exp(-x) / x below 8.
_I1_NEAR = (
    *(0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499),
    *(0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532),
    *(
        0.0005122859561685758,
        -0.00016176081582589674,
        4.781565107550054e-05,
        -1.3273163656039436e-05,
    ),
    *(
        3.4702513081376785e-06,
        -8.568720264695455e-07,
        2.0032947535521353e-07,
        -4.445059128796328e-08,
    ),
    *(
        9.381537386495773e-09,
        -1.8872497517228294e-09,
        3.625590281552117e-10,
        -6.663489723502027e-11,
    ),
    *(
        1.1736186298890901e-11,
        -1.9839743977649436e-12,
        3.223793365945575e-13,
        -5.042185504727912e-14,
    ),
    *(
        7.600684294735408e-15,
        -1.1055969477353862e-15,
        1.5536319577362005e-16,
        -2.111421214358166e-17,
    ),
    *(2.7779141127610464e-18,),
)
_I1_FAR = (
    *(0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06),
    *(
        -2.512236237870209e-07,
        -2.6314688468895196e-08,
        -3.835380385964237e-09,
        -5.589743462196584e-10,
    ),
    *(
        -1.8974958123505413e-11,
        3.2526035830154884e-11,
        1.4125807436613782e-11,
        2.0356285441470896e-12,
    ),
    *(
        -7.198551776245908e-13,
        -4.0835511110921974e-13,
        -2.1015418427726643e-14,
        4.272440016711951e-14,
    ),
    *(
        1.0420276984128802e-14,
        -3.8144030724370075e-15,
        -1.8803547755107825e-15,
        3.3082023109209285e-16,
    ),
    *(2.96262899764595e-16, -3.209525921993424e-17, -4.650305368489358e-17, 4.414348323071704e-18),
    *(7.517296310842111e-18, -9.314178867326863e-19, -1.2421932751949152e-18),
)


def _scaled(F: Any, size: Any, near: tuple[float, ...], far: tuple[float, ...]) -> tuple[Any, Any]:
    """The two sums at size >= 0, each at a place inside its range: (near, far / sqrt(size))."""
    low = F.minimum(size, _BORDER)
    high = F.maximum(size, _BORDER)
    first = chebyshev(F, low * (2.0 / _BORDER) - 1.0, near)
    second = chebyshev(F, (2.0 * _BORDER) / high - 1.0, far) / F.sqrt(high)
    return first, second


def _i0e_wide(F: Any, x: Any) -> Any:
    size = F.abs(x)
    near, far = _scaled(F, size, _I0_NEAR, _I0_FAR)
    return F.where(size <= _BORDER, near, far)


def _i1e_wide(F: Any, x: Any) -> Any:
    size = F.where(x < 0.0, -x, x)  # the derivative at 0 is 1, as that of x is
    near, far = _scaled(F, size, _I1_NEAR, _I1_FAR)
    value = F.where(size <= _BORDER, near * size, far)
    return F.where(x < 0.0, -value, value)


def _rounded(wide: Any, is_scaled: bool) -> Any:
    def build(F: Any, x: Any) -> Any:
        (x,) = as_floats(F, x)
        at = to_dtype(F, x, f64)
        value = wide(F, at)
        if not is_scaled:
            # In two factors: exp(x) alone is infinite before the product is.
            half = F.exp(F.abs(at) * 0.5)
            value = value * half * half
        return to_dtype(F, value, x.dtype)

    return build


_FIRST = "The modified Bessel function of the first kind of order {}{}."
ROWS: tuple[Op, ...] = (
    function("i0", _FIRST.format(0, ""), _rounded(_i0e_wide, False), method=True),
    function("i0e", _FIRST.format(0, ", times exp(-|x|)"), _rounded(_i0e_wide, True)),
    function("i1", _FIRST.format(1, ""), _rounded(_i1e_wide, False)),
    function("i1e", _FIRST.format(1, ", times exp(-|x|)"), _rounded(_i1e_wide, True)),
)


def register_rows() -> None:
    register(*ROWS)
