"""Element types, tensor types and the promotion rules: a table that every folder may import.

Promotion is torch's, documented in `docs/ops.md` and checked against torch in the tests: an
integer or bool with a float gives that float, whatever its width, and a float-only function
computes integers in f32. So only f64 operands give f64. i8 with u8 gives i32; an integer sum of
any width is i64; Python numbers are weak, as in NEP 50. A complex operand gives the complex type of
the promoted parts: with f64 that is complex128, with any other type it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from nova.core.location import user_location
from nova.core.records import record
from nova.core.sizes import SizeExpr, evaluate, is_static_shape, known_equal, same_shape
from nova.core.suggest import find_close
from nova.errors import DTypeError, ShapeError


@record
class DType:
    """One element type; `kind` is 'f' float, 'c' complex, 'i' signed, 'u' unsigned, 'b' boolean.

    Each is a singleton, so equal dtypes are identical.
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_differentiable(self) -> bool:
        """Whether tensors of this dtype have gradients: floats and complex numbers."""
        return self.kind in "fc"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (array_dtype, (self.name,))


f64 = DType("f64", "f", 64, np.dtype(np.float64))
f32 = DType("f32", "f", 32, np.dtype(np.float32))
f16 = DType("f16", "f", 16, np.dtype(np.float16))
bf16 = DType("bf16", "f", 16, np.dtype(bfloat16))
# Storage types: ops compute in f32. E4M3FN has no infinity, E5M2 is the upper byte of an f16.
f8e4m3 = DType("f8e4m3", "f", 8, np.dtype(float8_e4m3fn))
f8e5m2 = DType("f8e5m2", "f", 8, np.dtype(float8_e5m2))
i64 = DType("i64", "i", 64, np.dtype(np.int64))
i32 = DType("i32", "i", 32, np.dtype(np.int32))
i16 = DType("i16", "i", 16, np.dtype(np.int16))
i8 = DType("i8", "i", 8, np.dtype(np.int8))
u64 = DType("u64", "u", 64, np.dtype(np.uint64))
u32 = DType("u32", "u", 32, np.dtype(np.uint32))
u16 = DType("u16", "u", 16, np.dtype(np.uint16))
u8 = DType("u8", "u", 8, np.dtype(np.uint8))
bool_ = DType("bool", "b", 8, np.dtype(np.bool_))
complex64 = DType("complex64", "c", 64, np.dtype(np.complex64))
complex128 = DType("complex128", "c", 128, np.dtype(np.complex128))

# The dtypes that every op is tested with.
ALL = (f64, f32, f16, bf16, i64, i32, i8, u8, bool_)
# Ops take these as well: programs of other frameworks have them.
MORE_INTEGERS = (i16, u64, u32, u16)
# A tensor of these is a pair of real tensors: see `nova/ops/complex`.
COMPLEX = (complex64, complex128)
# Floats that are stored narrow and computed in f32.
FLOATS_8 = (f8e4m3, f8e5m2)
EVERY = (*ALL, *MORE_INTEGERS, *COMPLEX, *FLOATS_8)
FLOATS = (f64, f32, f16, bf16)
INTEGERS = (i64, i32, i8, u8)
# Floats that ops widen to f32.
NARROW_FLOATS = (f16, bf16, *FLOATS_8)

_BY_NAME = {d.name: d for d in EVERY}
_BY_NUMPY = {d.numpy: d for d in EVERY}


def dtype(spec: Any) -> DType:
    """The DType that `spec` names: a DType, its name, or a dtype of numpy; None is f32."""
    if isinstance(spec, DType):
        return spec
    if spec is None:  # which numpy reads as f64
        return f32
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    try:
        return _BY_NUMPY[np.dtype(spec)]
    except (KeyError, TypeError) as error:
        raise DTypeError(
            f"{spec!r} is not an element type of Nova",
            hint=_dtype_hint(spec),
        ) from error


def _dtype_hint(spec: Any) -> str:
    """The dtype that a misspelt name means, or that another library calls so; else all names."""
    word = str(spec).lower().removeprefix("torch.").replace("_", "").removesuffix("fn")
    if word in ("fp8", "float8"):
        return "did you mean f8e4m3 or f8e5m2?"
    if word in ("i4", "u4", "int4", "uint4"):
        return "integers of 4 bits are stored in i8 and u8: nova.quantize and nova.pack_int4"
    names = {name: name for name in _BY_NAME}
    names |= {d.numpy.name.replace("_", "").removesuffix("fn"): d.name for d in EVERY}
    names |= {d.name.removeprefix("f8"): d.name for d in FLOATS_8}
    close = find_close(word, names, cutoff=0.8)
    if close is not None:
        return f"did you mean {names[close]}?"
    return f"the types are {', '.join(_BY_NAME)}; cast the array first"


# Signatures, files and arrays call it by this name.
array_dtype = dtype


def promote(a: DType, b: DType) -> DType:
    """The common dtype of two operands, as torch's `promote_types`."""
    if a is b:
        return a
    if a.is_complex or b.is_complex:
        return complex_of(promote(real_of(a), real_of(b)))
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        # Of two types of one width, each holds values that the other cannot represent.
        return f32 if a.bits == b.bits else max(a, b, key=_width)
    if {a, b} == {i8, u8}:
        return i32  # torch has i16; programs of Nova have relied on i32
    if a.kind == b.kind or bool_ in (a, b):
        return a if b is bool_ else b if a is bool_ else max(a, b, key=_width)
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned is u64:
        raise DTypeError(f"{signed} and u64 have no common type", hint="cast one of them first")
    return i32 if unsigned.bits < 32 else i64


def _width(type_: DType) -> int:
    return type_.bits


def promote_all(types: Sequence[DType]) -> DType:
    """The common dtype of any number of operands."""
    result = types[0]
    for dtype_ in types[1:]:
        result = promote(result, dtype_)
    return result


def float_of(a: DType) -> DType:
    """The dtype in which a float-only function computes an `a`: f32 for integers and bool."""
    return a if a.is_differentiable else f32


def real_of(a: DType) -> DType:
    """The dtype of the parts of a complex dtype; a real dtype itself."""
    return a if not a.is_complex else f64 if a is complex128 else f32


def complex_of(a: DType) -> DType:
    """The complex dtype whose parts hold values of `a`, computed in f32 or f64."""
    return complex128 if real_of(a) is f64 else complex64


def weak(value: bool | int | float | complex, strong: DType) -> DType:
    """The dtype of a Python number combined with a tensor of dtype `strong` (NEP 50)."""
    if isinstance(value, complex):
        return complex_of(strong)
    if isinstance(value, bool):
        return strong
    if isinstance(value, int):
        return i64 if strong is bool_ else strong
    return float_of(strong)


def constant(value: Any, type_: DType) -> np.ndarray:
    """Python's `value` as an array of `type_`; an integer out of the dtype's range is an error.

    A float beyond the range becomes an infinity, as in a cast of an array.
    """
    if type(value) is int and type_.is_integer:
        limits = np.iinfo(type_.numpy)
        if not limits.min <= value <= limits.max:
            raise DTypeError(
                f"{value} does not fit {type_}", hint="cast the tensor to a wider type"
            )
    try:
        with np.errstate(all="ignore"):
            return converted(np.asarray(value), type_)
    except OverflowError:
        raise DTypeError(f"an int of {value.bit_length()} bits does not fit {type_}") from None


def converted(array: np.ndarray, type_: DType) -> np.ndarray:
    """`array` as `type_`, without a copy if it has that dtype already. A float is rounded once.

    numpy's own conversion to bf16 and to 8 bits goes through f32, and so rounds twice.
    """
    twice = array.dtype == np.float64 or (array.dtype.kind in "iu" and array.dtype.itemsize > 2)
    if type_ in (bf16, *FLOATS_8) and twice:
        array = _shortened(array).astype(np.float64, copy=False)
        with np.errstate(all="ignore"):
            near = np.asarray(array.astype(np.float32))
        # Round an inexact value to odd in f32 first: then the second rounding equals a single one.
        back, bits = near.astype(np.float64), near.view(np.int32)
        step = (np.abs(back) < np.abs(array)).astype(np.int32) - (np.abs(back) > np.abs(array))
        array = np.where(bits & 1, bits, bits + step).astype(np.int32).view(np.float32)
    return array.astype(type_.numpy, copy=False)


def _shortened(array: np.ndarray) -> np.ndarray:
    """Integers that exceed the f64 mantissa, with the dropped bits folded into a sticky bit."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    low = array & array.dtype.type(0xFFF)
    short = (array ^ low) | np.where(low != 0, array.dtype.type(0x800), array.dtype.type(0))
    limit = array.dtype.type(1 << 53)
    large = (array > limit) if array.dtype.kind == "u" else (array > limit) | (array < -limit)
    return np.where(large, short, array)


def accumulator(a: DType) -> DType:
    """The dtype in which reductions and contractions of `a` accumulate."""
    return f32 if a in NARROW_FLOATS else a


_MOST_BYTES = 1 << 47


def _sizes_of(shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        return tuple(shape)
    raise ShapeError(
        f"{shape!r} is not a shape",
        where=str(user_location()),
        hint="write a tuple of sizes, such as (2, 3)",
    )


def _located_dtype(spec: Any) -> DType:
    try:
        return dtype(spec)
    except DTypeError as error:
        raise error.located(str(user_location())) from None


@record
class TensorType:
    """Shape and element type of a tensor. A size is an int, or a `SizeExpr` known at run time."""

    shape: tuple[Any, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if type(self.dtype) is not DType:
            object.__setattr__(self, "dtype", _located_dtype(self.dtype))
        if type(self.shape) is not tuple:
            object.__setattr__(self, "shape", _sizes_of(self.shape))
        if not is_static_shape(self.shape):
            return
        # Strides and offsets are 64-bit, and no machine addresses more than this.
        if prod(n or 1 for n in self.shape) >= _MOST_BYTES:
            raise ShapeError(f"{self} has more elements than memory has bytes")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.dtype is other.dtype and same_shape(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        return prod(self.shape)

    @property
    def nbytes(self) -> Any:
        return self.size * self.dtype.itemsize

    @property
    def is_static(self) -> bool:
        """Whether all sizes are plain numbers."""
        return is_static_shape(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether the tensor has no element, for all values of its symbols."""
        return any(known_equal(n, 0) for n in self.shape)

    def with_shape(self, shape: Sequence[Any]) -> TensorType:
        return TensorType(
            tuple(n if isinstance(n, SizeExpr) else int(n) for n in shape), self.dtype
        )

    def with_sizes(self, values: Mapping[str, int]) -> TensorType:
        """The static type for these values of the symbols."""
        if self.is_static:
            return self
        return TensorType(tuple(evaluate(n, values) for n in self.shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"
