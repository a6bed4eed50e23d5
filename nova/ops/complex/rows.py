"""The rows that form and read complex tensors: `complex`, `real`, `imag`, `from_parts`, `as_parts`.

`real` of the result of `complex` is its operand: `parts` looks through pairs, so no op between two
complex ops writes interleaved memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, complex_of, dtype, promote_all, real_of
from nova.core.sizes import same_shape
from nova.errors import DTypeError, ShapeError
from nova.ops.rules import Types, static_axis
from nova.ops.table import Op, register

PAIR = "complex"
PARTS = ("real", "imag")
FROM_PARTS = "from_parts"


def _pair_cast(types: tuple[DType, ...]) -> tuple[DType, ...]:
    if any(t.is_complex for t in types):
        raise DTypeError(
            f"the parts of a complex number are real, not {' and '.join(map(str, types))}",
            hint="take nova.real(x) or nova.imag(x) of it first",
        )
    return (real_of(complex_of(promote_all(types))),) * len(types)


def _pair_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    re, im = ins
    if not same_shape(re.shape, im.shape):  # the rule of this row broadcasts operands
        raise ShapeError(f"the parts have shapes {re.shape} and {im.shape}")
    return re.with_dtype(complex_of(re.dtype))


def _pair_numpy(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    result = np.empty(re.shape, complex_of(dtype(re.dtype)).numpy)
    result.real, result.imag = re, im
    return result


def _pair_vjp(F: Any, g: Any, out: Any, re: Any, im: Any) -> tuple[Any, Any]:
    return F.real(g), F.imag(g)


def interleaved(type_: TensorType) -> TensorType:
    """The type of a complex tensor in memory: a last axis with the real and imaginary part."""
    return TensorType((*type_.shape, 2), real_of(type_.dtype))


def _pair_lower(b: Any, out: TensorType, re: Any, im: Any) -> Any:
    # Loaded, not operands: otherwise both parts would be computed for each of the two.
    def body(s: Any) -> Any:
        *at, part = (s.index(i) for i in range(out.rank + 1))
        first, second = (s.load(v.value, at, v.dtype) for v in (re, im))
        return s.select(s.compare("eq", part, 0), first, second)

    return b.generic(interleaved(out), [], body)


def _part_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    if not ins[0].dtype.is_complex:
        raise DTypeError(f"a complex tensor is read, not {ins[0]}")
    return ins[0].with_dtype(real_of(ins[0].dtype))


def _part(name: str, title: str, position: int, vjp: Any) -> Op:
    def lower(b: Any, out: TensorType, x: Any) -> Any:
        return b.remap(out, replace(x, type=interleaved(x.type)), lambda d: [*d, position])

    return Op(
        name,
        f"The {title} part of x, a tensor of the real type.",
        infer=_part_type,
        numpy=lambda x: getattr(x, name).copy(),
        vjp=vjp,
        lower=lower,
        methods=(name,),
        tags=frozenset({PAIR}),
    )


def _from_parts_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    (x,) = ins
    if x.rank == 0 or static_axis(x, -1, "a pair of parts is") != 2:
        raise ShapeError(f"{x} has no last axis of two parts")
    return TensorType(x.shape[:-1], complex_of(x.dtype))


def _as_parts_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    return interleaved(_part_type(ins, attrs).with_dtype(ins[0].dtype))


def _from_parts_numpy(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(complex_of(dtype(x.dtype)).numpy)[..., 0]


def _as_parts_numpy(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], axis=-1)


ROWS = (
    Op(
        FROM_PARTS,
        "The complex tensor of a real one with a last axis of two, in the same memory.",
        cast=_pair_cast,
        infer=_from_parts_type,
        numpy=_from_parts_numpy,
        vjp=lambda F, g, out, x: (F.as_parts(g),),
        lower=lambda b, out, x: b.renamed(x),
        tags=frozenset({PAIR}),
    ),
    Op(
        "as_parts",
        "The parts of a complex tensor as a last axis of two, in the same memory.",
        infer=_as_parts_type,
        numpy=_as_parts_numpy,
        vjp=lambda F, g, out, x: (F.from_parts(g),),
        lower=lambda b, out, x: b.renamed(x),
        tags=frozenset({PAIR}),
    ),
    Op(
        PAIR,
        "The complex tensor with these real and imaginary parts, which broadcast: complex128 for "
        "f64, else complex64.",
        operands=("re", "im"),
        cast=_pair_cast,
        infer=_pair_type,
        numpy=_pair_numpy,
        vjp=_pair_vjp,
        lower=_pair_lower,
        tags=frozenset({PAIR}),
    ),
    _part("real", "real", 0, lambda F, g, out, x: (F.complex(g, F.zeros_like(g)),)),
    _part("imag", "imaginary", 1, lambda F, g, out, x: (F.complex(F.zeros_like(g), g),)),
)


def register_rows() -> None:
    register(*ROWS)
