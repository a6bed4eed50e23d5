"""Typed scalars in a linalg body: the API of the `scalar` column of the op table.

A `Scalar` is an MLIR value with its Nova dtype, so that signedness is known (MLIR integers carry
none) and Python operators work. `Body` emits constants, calls and conversions. f16 and bf16 never
appear here: the lowering widens them to f32 on entry to the body and narrows the result, which
matches numpy's rounding after every op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import DType, accumulator, bool_, f32, i64
from nova.core.records import record
from nova.core.sizes import SizeExpr
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, math, tensor
from nova.ir.linalg.ops import loop_index
from nova.ir.symbolic.size_values import size_value
from nova.ir.types import element_type

# Predicates of arith.cmpf (ordered, except ne) and arith.cmpi by signedness.
_CMPF = {
    "eq": arith.CmpFPredicate.OEQ,
    "ne": arith.CmpFPredicate.UNE,
    "lt": arith.CmpFPredicate.OLT,
    "le": arith.CmpFPredicate.OLE,
    "gt": arith.CmpFPredicate.OGT,
    "ge": arith.CmpFPredicate.OGE,
}
_CMPI = {
    "eq": ("eq", "eq"),
    "ne": ("ne", "ne"),
    "lt": ("slt", "ult"),
    "le": ("sle", "ule"),
    "gt": ("sgt", "ugt"),
    "ge": ("sge", "uge"),
}


@record
class Scalar:
    """An SSA scalar with its Nova dtype; created by `body`."""

    value: Any
    dtype: DType
    body: Body

    def _binary(self, rhs: Any, name: str) -> Scalar:
        return self.body.binary(name, self, self.body.like(rhs, self))

    def __add__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "add")

    def __sub__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "sub")

    def __rsub__(self, rhs: Any) -> Scalar:
        return self.body.like(rhs, self) - self

    def __mul__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "mul")

    def __truediv__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "div")

    def __rtruediv__(self, rhs: Any) -> Scalar:
        return self.body.like(rhs, self) / self

    def __and__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "and")

    def __or__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "or")

    def __xor__(self, rhs: Any) -> Scalar:
        return self._binary(rhs, "xor")

    def __neg__(self) -> Scalar:
        if self.dtype.is_float:
            return Scalar(arith.negf(self.value), self.dtype, self.body)
        return self.body.const(0, self.dtype) - self

    def __lt__(self, rhs: Any) -> Scalar:
        return self.body.compare("lt", self, rhs)

    def __le__(self, rhs: Any) -> Scalar:
        return self.body.compare("le", self, rhs)

    def __gt__(self, rhs: Any) -> Scalar:
        return self.body.compare("gt", self, rhs)

    def __ge__(self, rhs: Any) -> Scalar:
        return self.body.compare("ge", self, rhs)

    __radd__ = __add__
    __rmul__ = __mul__


class Body:
    """Builds scalar code at the current insertion point."""

    def const(self, value: Any, dtype: DType) -> Scalar:
        """A constant of type `dtype` (usually the `Scalar.dtype` of another scalar).

        A symbolic size is the value that it has at run time.
        """
        if isinstance(value, SizeExpr):
            number = arith.index_cast(element_type(i64), size_value(value))
            return self.cast(Scalar(number, i64, self), dtype)
        mlir_type = element_type(dtype)
        if dtype.is_float:
            attr: ir.Attribute = ir.FloatAttr.get(mlir_type, float(value))
        else:
            attr = ir.IntegerAttr.get(mlir_type, _wrap(int(value), dtype))
        return Scalar(arith.ConstantOp(mlir_type, attr).result, dtype, self)

    def like(self, value: Any, scalar: Scalar) -> Scalar:
        """`value` as a Scalar of the type of `scalar`."""
        return value if isinstance(value, Scalar) else self.const(value, scalar.dtype)

    def binary(self, name: str, x: Scalar, y: Scalar) -> Scalar:
        """add sub mul div rem min max and or xor shl shr shr_u on two scalars of one type."""
        if x.dtype is not y.dtype:
            raise LoweringError(f"scalar {name} of {x.dtype} and {y.dtype}")
        prefix = "f" if x.dtype.is_float else "u" if x.dtype.kind in "ub" else "i"
        maker = _BINARY.get((name, prefix))
        if maker is None:
            raise LoweringError(f"no scalar {name} for {x.dtype}")
        return Scalar(maker(x.value, y.value), x.dtype, self)

    def compare(self, name: str, x: Scalar, y: Any) -> Scalar:
        """eq ne lt le gt ge; false on NaN except for ne."""
        y = self.like(y, x)
        if x.dtype.is_float:
            return Scalar(arith.cmpf(_CMPF[name], x.value, y.value), bool_, self)
        signed, unsigned = _CMPI[name]
        predicate = unsigned if x.dtype.kind in "ub" else signed
        value = arith.cmpi(getattr(arith.CmpIPredicate, predicate), x.value, y.value)
        return Scalar(value, bool_, self)

    def select(self, cond: Scalar, x: Any, y: Any) -> Scalar:
        """cond ? x : y; numbers take the type of the other branch."""
        if not isinstance(x, Scalar):
            x = self.like(x, y)
        y = self.like(y, x)
        return Scalar(arith.select(cond.value, x.value, y.value), x.dtype, self)

    def logical_not(self, x: Scalar) -> Scalar:
        return x ^ self.const(1, bool_)

    def maximum(self, x: Scalar, y: Any) -> Scalar:
        """NaN-propagating maximum."""
        return self.binary("max", x, self.like(y, x))

    def minimum(self, x: Scalar, y: Any) -> Scalar:
        """NaN-propagating minimum."""
        return self.binary("min", x, self.like(y, x))

    def rem(self, x: Scalar, y: Any) -> Scalar:
        """C's remainder (sign of the dividend)."""
        return self.binary("rem", x, self.like(y, x))

    def call(self, name: str, *args: Scalar) -> Scalar:
        """A function of the math dialect by name: exp, tanh, powf, floor, absf, ..."""
        return Scalar(getattr(math, name)(*(a.value for a in args)), args[0].dtype, self)

    def is_nan(self, x: Scalar) -> Scalar:
        return Scalar(arith.cmpf(arith.CmpFPredicate.UNO, x.value, x.value), bool_, self)

    def cast(self, x: Scalar, dtype: DType) -> Scalar:
        """numpy's `astype`: truncation toward zero, wrap-around of integers, non-zero is True.

        A float result is rounded once; `legalize-conversions` expands conversions to 16 bits to
        instructions that targets have.

        Float to integer out of range is undefined in numpy and in LLVM; Nova saturates to the
        64-bit range and then wraps, NaN gives 0, so that nothing depends on poison.
        """
        if x.dtype is dtype:
            return x
        target = element_type(dtype)
        if dtype is bool_:
            return self.compare("ne", x, 0)
        if x.dtype.is_float and dtype.is_float:
            convert = arith.extf if dtype.bits > x.dtype.bits else arith.truncf
            return Scalar(convert(target, x.value), dtype, self)
        if x.dtype.is_float:
            wide = self._saturating_int(x)
            return self.cast(wide, dtype)
        if dtype.is_float:
            convert = arith.uitofp if x.dtype.kind in "ub" else arith.sitofp
            return Scalar(convert(target, x.value), dtype, self)
        source_bits = 1 if x.dtype is bool_ else x.dtype.bits
        if dtype.bits > source_bits:
            convert = arith.extui if x.dtype.kind in "ub" else arith.extsi
            return Scalar(convert(target, x.value), dtype, self)
        if dtype.bits < source_bits:
            return Scalar(arith.trunci(target, x.value), dtype, self)
        return Scalar(x.value, dtype, self)

    def bitcast(self, x: Scalar, dtype: DType) -> Scalar:
        """The bits of x as a number of another dtype of the same width."""
        return Scalar(arith.bitcast(element_type(dtype), x.value), dtype, self)

    def _saturating_int(self, x: Scalar) -> Scalar:
        # fptosi out of range is poison: clamp first. The largest float below 2**63 is exact.
        top = 9223371487098961920.0 if x.dtype is f32 else 9223372036854774784.0
        clamped = self.minimum(self.maximum(x, -(2.0**63)), top)
        safe = self.select(self.is_nan(x), self.const(0.0, x.dtype), clamped)
        return Scalar(arith.fptosi(element_type(i64), safe.value), i64, self)

    def index(self, dim: int) -> Scalar:
        """The loop index of iteration dimension `dim`, as i64."""
        value = loop_index(dim)
        return Scalar(arith.index_cast(element_type(i64), value), i64, self)

    def load(self, source: Any, indices: Sequence[Scalar], dtype: DType) -> Scalar:
        """The element of a whole tensor at computed indices (each i64, in range)."""
        index_type = ir.IndexType.get()
        at = [arith.index_cast(index_type, i.value) for i in indices]
        return self.widen(tensor.extract(source, at), dtype)

    def widen(self, value: Any, dtype: DType) -> Scalar:
        """A loaded element, widened to its compute type."""
        wide = accumulator(dtype)
        return self.cast(Scalar(value, dtype, self), wide)


def _wrap(value: int, dtype: DType) -> int:
    bits = 1 if dtype is bool_ else dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


_BINARY: dict[tuple[str, str], Any] = {
    ("add", "f"): arith.addf,
    ("sub", "f"): arith.subf,
    ("mul", "f"): arith.mulf,
    ("div", "f"): arith.divf,
    ("rem", "f"): arith.remf,
    ("max", "f"): arith.maximumf,
    ("min", "f"): arith.minimumf,
    ("div", "i"): arith.divsi,
    ("div", "u"): arith.divui,
    ("rem", "i"): arith.remsi,
    ("rem", "u"): arith.remui,
    ("max", "i"): arith.maxsi,
    ("max", "u"): arith.maxui,
    ("min", "i"): arith.minsi,
    ("min", "u"): arith.minui,
    ("shr", "i"): arith.shrsi,
    ("shr", "u"): arith.shrui,
    ("shr_u", "i"): arith.shrui,
    ("shr_u", "u"): arith.shrui,
}
for _prefix in "iu":
    _BINARY |= {
        ("add", _prefix): arith.addi,
        ("sub", _prefix): arith.subi,
        ("mul", _prefix): arith.muli,
        ("and", _prefix): arith.andi,
        ("or", _prefix): arith.ori,
        ("xor", _prefix): arith.xori,
        ("shl", _prefix): arith.shli,
    }

__all__ = ["Body", "Scalar"]
