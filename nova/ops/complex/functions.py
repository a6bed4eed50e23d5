"""Functions of complex tensors under torch's and numpy's names."""

from __future__ import annotations

from typing import Any

from nova.core.dtypes import float_of
from nova.errors import DTypeError, ShapeError
from nova.ops.complex.parts import angle, split, split_all
from nova.ops.functional.common import as_tensor, function, to_dtype
from nova.ops.table import register


def _conj(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    re, im = split(F, x)
    return x if im is None else F.complex(re, F.neg(im))


def _angle(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    x = x if x.dtype.is_complex else to_dtype(F, x, float_of(x.dtype))
    return angle(F, split_all(F, x))


def _polar(F: Any, abs: Any, angle: Any) -> Any:
    return F.complex(F.mul(abs, F.cos(angle)), F.mul(abs, F.sin(angle)))


def _view_as_real(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    if not x.dtype.is_complex:
        raise DTypeError(f"view_as_real: {x.type} is not complex")
    return F.as_parts(x)


def _view_as_complex(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(
            f"view_as_complex: {x.type} has no last axis of size 2",
            hint="it holds the real and the imaginary part",
        )
    return F.from_parts(x)


def _is_complex(F: Any, x: Any) -> bool:
    return bool(as_tensor(F, x).dtype.is_complex)


ROWS = (
    function("conj", "The complex conjugate; a real tensor itself.", _conj, method=True),
    function("angle", "The argument of each element, -pi to pi.", _angle, method=True),
    function(
        "polar",
        "The complex tensor with these magnitudes and arguments.",
        _polar,
        operands=("abs", "angle"),
    ),
    function(
        "view_as_real", "A complex tensor as a real one with a last axis of two.", _view_as_real
    ),
    function(
        "view_as_complex",
        "A real tensor whose last axis has a real and an imaginary part, as a complex one.",
        _view_as_complex,
    ),
    function(
        "is_complex",
        "Whether the element type is complex.",
        _is_complex,
        method=True,
        tags=frozenset({"nograd"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
