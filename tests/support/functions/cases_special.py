"""Cases of special functions and of functions of the bits and signs of numbers."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
import torch
from function_cases import case

X = (3, 17)
POSITIVE = (X, "positive")


def _wide(x: Any) -> Any:
    return x.to(torch.float64)


SPECIAL = (
    case("i0", X),
    case("i0", X, call=lambda f, x: f(x * 3.0)),
    case("i0e", X),
    case("i0e", X, call=lambda f, x: f(x * 30.0)),
    case("i1", X),
    case("i1e", X, call=lambda f, x: f(x * 30.0)),
    case("erfcx", X),
    case("erfcx", POSITIVE, call=lambda f, x: f(x * 20.0)),
    case("ndtr", X),
    case("log_ndtr", X),
    case("log_ndtr", POSITIVE, call=lambda f, x: f(x * -9.0)),
    case("ndtri", (X, "probability")),
    case("entr", POSITIVE),
    case("xlog1py", X, POSITIVE),
    case("log1mexp", POSITIVE, torch=lambda x: torch.log(-torch.expm1(-x))),
    case(
        "logmeanexp",
        X,
        axis=1,
        torch=lambda x, axis: torch.logsumexp(x, axis) - float(np.log(X[1])),
    ),
    # torch has no gradient for the first operand.
    case("zeta", POSITIVE, call=lambda f, y: f(2.5, y)),
    # torch's derivatives of orders 1 and 2 are exact to 1e-7 only: `test_functions.py` has them.
    case("polygamma", POSITIVE, call=lambda f, x: f(3, x)),
    case("polygamma", POSITIVE, call=lambda f, x: f(2, x)),
    case("mvlgamma", POSITIVE, call=lambda f, x: f(x + 2.0, 3), grad=False),
    case(
        "betaln",
        POSITIVE,
        POSITIVE,
        torch=lambda x, y: torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y),
        grad=False,
    ),
)

NUMBERS = (
    case("fmod", X, (X, "positive")),
    case("fmod", X, X),
    case("fmax", X, X),
    case("fmin", X, (17,)),
    case("float_power", POSITIVE, X),
    case("isneginf", X, call=lambda f, x: f(-1.0 / (x * 0.0))),
    case("isposinf", X, call=lambda f, x: f(-1.0 / (x * 0.0))),
    case("isreal", X),
    case("positive", X),
    case("clamp_min", X, args=(0.2,)),
    case("clamp_min", X, (17,)),
    case("clamp_max", X, args=(0.2,)),
    case("clamp_max", X, X),
    case("rsub", X, X, alpha=2),
    case("cbrt", X, torch=lambda x: x.sign() * x.abs() ** (1 / 3)),
    case("divmod", X, POSITIVE, torch=lambda x, y: (torch.floor(x / y), x % y), grad=False),
    case("modf", X, torch=lambda x: (x - x.trunc(), x.trunc())),
    case("frexp", X),
    case("frexp", X, call=lambda f, x: f(x * 1e-3)),
    case("ldexp", X, ((17,), "index:9"), call=lambda f, x, n: f(x, n)),
    case("nextafter", X, X, torch=lambda x, y: x, grad=False),
    case("array_equal", X, X, torch=lambda x, y: torch.tensor(torch.equal(x, y))),
    case(
        "bitwise_count",
        ((5, 9), "index:100000"),
        torch=lambda x: torch.tensor(np.bitwise_count(x.numpy()).astype(np.int64)),
    ),
)

WINDOWS = tuple(
    case(f"{name}_window", args=(11,), torch=torch_window, **options)
    for name, torch_window, options in (
        ("hann", torch.hann_window, {}),
        ("hann", torch.hann_window, {"periodic": False}),
        (
            "hamming",
            lambda n, **k: torch.hamming_window(n, True, *k.values()),
            {"alpha": 0.5, "beta": 0.5},
        ),
        ("blackman", torch.blackman_window, {}),
        ("bartlett", torch.bartlett_window, {"periodic": False}),
        ("kaiser", lambda n, beta: torch.kaiser_window(n, True, beta), {"beta": 7.0}),
    )
)


def _unwrapped(x: Any) -> Any:
    steps = x.detach().diff()
    jumps = (torch.remainder(steps + pi, 2 * pi) - pi - steps).cumsum(-1)
    return x + torch.nn.functional.pad(jumps, (1, 0))


def _interp(x: Any, xp: Any, fp: Any) -> Any:
    place = torch.searchsorted(xp.detach(), x.detach(), right=True).clamp(1, len(xp) - 1)
    share = (x - xp[place - 1]) / (xp[place] - xp[place - 1])
    inside = fp[place - 1] + share * (fp[place] - fp[place - 1])
    return torch.where(x < xp[0], fp[0], torch.where(x > xp[-1], fp[-1], inside))


def _convolve(x: Any, y: Any, mode: str) -> Any:
    full = torch.nn.functional.conv1d(
        x[None, None], y.flip(0)[None, None], padding=len(y) - 1
    ).flatten()
    if mode == "full":
        return full
    count = len(x) if mode == "same" else len(x) - len(y) + 1
    start = (len(full) - count) // 2
    return full[start : start + count]


CALCULUS = (
    case("cumulative_trapezoid", X, call=lambda f, y: f(y, dx=0.5)),
    case("cumulative_trapezoid", X, ((17,), "positive"), call=lambda f, y, x: f(y, x=x)),
    case("gradient", X),
    case("gradient", X, call=lambda f, x: f(x, spacing=2.0, dim=1, edge_order=2)),
    case(
        "interp",
        (9,),
        ((6,), "positive"),
        (6,),
        torch=_interp,
        call=lambda f, x, p, v: f(x * 2.0, p.cumsum(0) - 4.0, v),
    ),
    case("polyval", (5,), X, torch=lambda p, x: sum(c * x ** (4 - i) for i, c in enumerate(p))),
    *(
        case("convolve", (9,), (4,), torch=_convolve, mode=mode)
        for mode in ("full", "same", "valid")
    ),
    case(
        "correlate", (9,), (3,), mode="full", torch=lambda x, y, mode: _convolve(x, y.flip(0), mode)
    ),
    case("unwrap", X, torch=_unwrapped, call=lambda f, x: f(x * 6.0)),
    case("ediff1d", X, torch=lambda x: x.flatten().diff()),
    case("renorm", X, args=(2.0, 0, 3.0), torch=torch.renorm),
    case("renorm", (2, 3, 4), args=(1.0, 1, 5.0), torch=torch.renorm),
)

CASES = (*SPECIAL, *NUMBERS, *WINDOWS, *CALCULUS)
