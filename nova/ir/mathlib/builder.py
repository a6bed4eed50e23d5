"""A small expression builder over `arith`, in which the math library is written.

In: MLIR values of a float type (f32, f64, or a vector of them) wrapped by `Builder.value`. Out:
`arith` ops at the current insertion point and location. Called by the functions of this package,
which `expand-math` runs.

Python operators emit ops with exact IEEE rounding, so error-free transformations can be written
directly. Only `Builder.mad` and `Builder.poly` carry `fastmath<contract>`: a target with FMA may
fuse those, a target without FMA multiplies and adds. There are no branches, calls or tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.mathlib.intrinsics import call_intrinsic

# The predicates of arith.cmpf and arith.cmpi that the library uses, as numbered by the dialect.
_CMPF = {"oeq": 1, "ogt": 2, "oge": 3, "olt": 4, "ole": 5, "une": 13, "uno": 14}
_CMPI = {"eq": 0, "ne": 1, "slt": 2}


@record
class Layout:
    """The parameters of an IEEE format."""

    width: int
    mantissa: int
    bias: int
    min_normal: float


LAYOUTS = {
    32: Layout(32, 23, 127, 2.0**-126),
    64: Layout(64, 52, 1023, 2.0**-1022),
}

Number = float | int
T = TypeVar("T")


class Builder:
    """Types, attributes and constants of one float type; reused for every op of that type."""

    def __init__(
        self,
        float_type: ir.Type,
        *,
        native_rounding: bool = True,
        large_angles: bool = True,
        native_scale: bool = False,
    ):
        element = float_type
        self.shape: ir.VectorType | None = None
        if isinstance(float_type, ir.VectorType):
            self.shape, element = float_type, float_type.element_type
        if isinstance(element, ir.F32Type):
            self.layout = LAYOUTS[32]
        elif isinstance(element, ir.F64Type):
            self.layout = LAYOUTS[64]
        else:
            raise LoweringError(
                f"math on {float_type} has no expansion",
                hint="widen f16 and bf16 to f32 before expand-math",
            )
        self.element = element
        self.float_results = [float_type]
        self.int_element = ir.IntegerType.get_signless(self.layout.width)
        self.int_results = [self.like(self.int_element)]
        self.bool_results = [self.like(ir.IntegerType.get_signless(1))]
        self.native_rounding = native_rounding
        self.large_angles = large_angles
        self.native_scale = native_scale
        self._float_attrs: dict[str, dict] = {}
        self._int_attrs: dict[int, dict] = {}
        self._float_values: dict[str, Float] = {}
        self._int_values: dict[int, Int] = {}
        i64 = ir.IntegerType.get_signless(64)
        self.predicates_f = {k: {"predicate": ir.IntegerAttr.get(i64, v)} for k, v in _CMPF.items()}
        self.predicates_i = {k: {"predicate": ir.IntegerAttr.get(i64, v)} for k, v in _CMPI.items()}
        self._contract = {"fastmath": ir.Attribute.parse("#arith.fastmath<contract>")}

    def like(self, element: ir.Type) -> ir.Type:
        """`element` itself, or a vector of it with the builder's shape."""
        if self.shape is None:
            return element
        return ir.VectorType.get(self.shape.shape, element, scalable=self.shape.scalable_dims)

    @property
    def wide(self) -> bool:
        return self.layout.width == 64

    @cached_property
    def double(self) -> Builder:
        """The f64 builder with the same shape: for f32 functions that need more bits."""
        return Builder(
            self.like(ir.F64Type.get()),
            native_rounding=self.native_rounding,
            native_scale=self.native_scale,
        )

    def begin(self) -> None:
        """Forget constants: those of another expansion need not dominate the next one."""
        self._float_values.clear()
        self._int_values.clear()
        if "double" in self.__dict__:
            self.double.begin()

    def value(self, value: ir.Value) -> Float:
        return Float(self, value)

    def pick(self, f32: T, f64: T) -> T:
        """The constant or table for this width."""
        return f64 if self.wide else f32

    def const(self, number: Number) -> Float:
        # repr distinguishes 0.0 from -0.0, and makes nan a valid key.
        key = repr(number)
        value = self._float_values.get(key)
        if value is None:
            attrs = self._float_attrs.get(key)
            if attrs is None:
                attr = ir.FloatAttr.get(self.element, float(number))
                attrs = self._float_attrs[key] = {"value": self._splat(attr)}
            op = ir.Operation.create("arith.constant", self.float_results, [], attrs)
            value = self._float_values[key] = Float(self, op.results[0])
        return value

    def int_const(self, number: int) -> Int:
        value = self._int_values.get(number)
        if value is None:
            attrs = self._int_attrs.get(number)
            if attrs is None:
                width = self.layout.width
                signed = (number + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
                attr = ir.IntegerAttr.get(self.int_element, signed)
                attrs = self._int_attrs[number] = {"value": self._splat(attr)}
            op = ir.Operation.create("arith.constant", self.int_results, [], attrs)
            value = self._int_values[number] = Int(self, op.results[0])
        return value

    def _splat(self, attr: ir.Attribute) -> ir.Attribute:
        if self.shape is None:
            return attr
        return ir.DenseElementsAttr.get_splat(self.like(attr.type), attr)

    def lift(self, x: Float | Number) -> Float:
        return x if isinstance(x, Float) else self.const(x)

    def mad(self, a: Float, b: Float | Number, c: Float | Number) -> Float:
        """a*b + c, with one rounding or two, whichever is faster on the target."""
        operands = [a.v, self.lift(b).v]
        create = ir.Operation.create
        product = create("arith.mulf", self.float_results, operands, self._contract).results[0]
        operands = [product, self.lift(c).v]
        return Float(
            self, create("arith.addf", self.float_results, operands, self._contract).results[0]
        )

    def fused(self, a: Float, b: Float | Number, c: Float | Number) -> Float:
        """a*b + c with one rounding: math.fma, only for targets with the instruction."""
        return a._op("math.fma", a.v, self.lift(b).v, self.lift(c).v)

    def poly(self, x: Float, coefficients: Sequence[float]) -> Float:
        """Horner's rule; coefficients from the constant term up."""
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.mad(result, x, c)
        return result

    def round_to_int(self, x: Float) -> tuple[Float, Int]:
        """The nearest integer as float and int, for |x| < 2**(mantissa - 1).

        Adds 1.5 * 2**mantissa, whose last bit has weight one. Any other x gives defined bits, never
        poison as with fptosi.
        """
        magic = self.const(1.5 * 2.0**self.layout.mantissa)
        shifted = x + magic
        return shifted - magic, shifted.bits() - magic.bits()

    @property
    def has_scale(self) -> bool:
        """Whether `scale` is an instruction for this type: vectors of 512 bits with AVX-512."""
        lanes = self.shape.shape if self.shape is not None else []
        return self.native_scale and lanes == [512 // self.layout.width]

    def scale(self, x: Float, power: Float) -> Float:
        """x * 2**power for a whole power, rounded once."""
        lanes = 512 // self.layout.width
        # All lanes; rounded as other arithmetic is.
        mask, rounding = (
            ir.Operation.create(
                "arith.constant",
                [type_],
                attributes={"value": ir.IntegerAttr.get(type_, value)},
            ).results[0]
            for type_, value in (
                (ir.IntegerType.get_signless(lanes), -1),
                (ir.IntegerType.get_signless(32), 4),
            )
        )
        name = f"llvm.x86.avx512.mask.scalef.p{self.pick('s', 'd')}.512"
        operands = [x.v, power.v, x.v, mask, rounding]
        return Float(self, call_intrinsic(name, self.float_results, operands)[0])

    def pow2(self, biased: Int) -> Float:
        """The float with this biased exponent."""
        return (biased << self.layout.mantissa).float()


class _Operand:
    """An MLIR value with its builder."""

    __slots__ = ("b", "v")

    def __init__(self, b: Builder, v: ir.Value):
        self.b, self.v = b, v


class Float(_Operand):
    """A float value: operators are single `arith` ops without fastmath flags."""

    __slots__ = ()

    def _op(self, name: str, *operands: ir.Value) -> Float:
        op = ir.Operation.create(name, self.b.float_results, list(operands))
        return Float(self.b, op.results[0])

    def _cmp(self, predicate: str, rhs: Float | Number) -> Bool:
        b = self.b
        op = ir.Operation.create(
            "arith.cmpf",
            b.bool_results,
            [self.v, b.lift(rhs).v],
            b.predicates_f[predicate],
        )
        return Bool(b, op.results[0])

    def __add__(self, rhs: Float | Number) -> Float:
        return self._op("arith.addf", self.v, self.b.lift(rhs).v)

    def __sub__(self, rhs: Float | Number) -> Float:
        return self._op("arith.subf", self.v, self.b.lift(rhs).v)

    def __rsub__(self, rhs: Number) -> Float:
        return self._op("arith.subf", self.b.const(rhs).v, self.v)

    def __mul__(self, rhs: Float | Number) -> Float:
        return self._op("arith.mulf", self.v, self.b.lift(rhs).v)

    def __truediv__(self, rhs: Float | Number) -> Float:
        return self._op("arith.divf", self.v, self.b.lift(rhs).v)

    def __rtruediv__(self, rhs: Number) -> Float:
        return self._op("arith.divf", self.b.const(rhs).v, self.v)

    def __neg__(self) -> Float:
        return self._op("arith.negf", self.v)

    def __abs__(self) -> Float:
        return self._op("math.absf", self.v)

    def __lt__(self, rhs: Float | Number) -> Bool:
        return self._cmp("olt", rhs)

    def __le__(self, rhs: Float | Number) -> Bool:
        return self._cmp("ole", rhs)

    def __gt__(self, rhs: Float | Number) -> Bool:
        return self._cmp("ogt", rhs)

    def __ge__(self, rhs: Float | Number) -> Bool:
        return self._cmp("oge", rhs)

    def equals(self, rhs: Float | Number) -> Bool:
        return self._cmp("oeq", rhs)

    def differs(self, rhs: Float | Number) -> Bool:
        """True also for NaN."""
        return self._cmp("une", rhs)

    def unordered(self, rhs: Float | Number) -> Bool:
        """Whether either operand is NaN."""
        return self._cmp("uno", rhs)

    def sqrt(self) -> Float:
        return self._op("math.sqrt", self.v)

    def exp2(self) -> Float:
        """The op math.exp2; only for targets with an instruction for it."""
        return self._op("math.exp2", self.v)

    def round_even(self) -> Float:
        """The op math.roundeven; only for targets with the instruction."""
        return self._op("math.roundeven", self.v)

    def copysign(self, sign: Float) -> Float:
        return self._op("math.copysign", self.v, sign.v)

    def at_most(self, bound: float) -> Float:
        """min(self, bound); NaN stays NaN."""
        return where(self > bound, self.b.const(bound), self)

    def at_least(self, bound: float) -> Float:
        """max(self, bound); NaN stays NaN."""
        return where(self < bound, self.b.const(bound), self)

    def bounded(self, low: float, high: float) -> Float:
        """max(low, min(self, high)), by instructions; NaN stays NaN."""
        least = self._op("arith.minimumf", self.v, self.b.const(high).v)
        return least._op("arith.maximumf", least.v, self.b.const(low).v)

    def bits(self) -> Int:
        op = ir.Operation.create("arith.bitcast", self.b.int_results, [self.v])
        return Int(self.b, op.results[0])

    def sign_bit(self) -> Bool:
        return self.bits() < 0

    def to_double(self) -> Float:
        """This f32 as f64."""
        double = self.b.double
        op = ir.Operation.create("arith.extf", double.float_results, [self.v])
        return Float(double, op.results[0])

    def to_single(self, b: Builder) -> Float:
        """This f64 rounded to the f32 of builder `b`."""
        return Float(b, ir.Operation.create("arith.truncf", b.float_results, [self.v]).results[0])


class Int(_Operand):
    """A signless integer as wide as the builder's float."""

    __slots__ = ()

    def _op(self, name: str, rhs: Int | int) -> Int:
        b = self.b
        right = rhs if isinstance(rhs, Int) else b.int_const(rhs)
        op = ir.Operation.create(name, b.int_results, [self.v, right.v])
        return Int(b, op.results[0])

    def _cmp(self, predicate: str, rhs: Int | int) -> Bool:
        b = self.b
        right = rhs if isinstance(rhs, Int) else b.int_const(rhs)
        op = ir.Operation.create(
            "arith.cmpi", b.bool_results, [self.v, right.v], b.predicates_i[predicate]
        )
        return Bool(b, op.results[0])

    def __add__(self, rhs: Int | int) -> Int:
        return self._op("arith.addi", rhs)

    def __sub__(self, rhs: Int | int) -> Int:
        return self._op("arith.subi", rhs)

    def __rsub__(self, rhs: int) -> Int:
        return self.b.int_const(rhs)._op("arith.subi", self)

    def __mul__(self, rhs: Int | int) -> Int:
        return self._op("arith.muli", rhs)

    def __and__(self, rhs: Int | int) -> Int:
        return self._op("arith.andi", rhs)

    def __or__(self, rhs: Int | int) -> Int:
        return self._op("arith.ori", rhs)

    def __xor__(self, rhs: Int | int) -> Int:
        return self._op("arith.xori", rhs)

    def __lshift__(self, rhs: Int | int) -> Int:
        return self._op("arith.shli", rhs)

    def __rshift__(self, rhs: Int | int) -> Int:
        """Logical: AVX2 has no arithmetic shift of 64-bit lanes."""
        return self._op("arith.shrui", rhs)

    def __lt__(self, rhs: Int | int) -> Bool:
        return self._cmp("slt", rhs)

    def at_least(self, bound: int) -> Int:
        return (self < bound).choose(self.b.int_const(bound), self)

    def equals(self, rhs: Int | int) -> Bool:
        return self._cmp("eq", rhs)

    def differs(self, rhs: Int | int) -> Bool:
        return self._cmp("ne", rhs)

    def float(self) -> Float:
        """The float with these bits."""
        op = ir.Operation.create("arith.bitcast", self.b.float_results, [self.v])
        return Float(self.b, op.results[0])

    def to_width_of(self, b: Builder) -> Int:
        """The low bits, at the integer width of the narrower builder `b`."""
        return Int(b, ir.Operation.create("arith.trunci", b.int_results, [self.v]).results[0])


class Bool(_Operand):
    """An i1 per lane."""

    __slots__ = ()

    def choose(self, yes: Int, no: Int) -> Int:
        """`arith.select` of integers; `where` is for floats."""
        operands = [self.v, yes.v, no.v]
        op = ir.Operation.create("arith.select", self.b.int_results, operands)
        return Int(self.b, op.results[0])

    def _op(self, name: str, rhs: Bool) -> Bool:
        op = ir.Operation.create(name, self.b.bool_results, [self.v, rhs.v])
        return Bool(self.b, op.results[0])

    def __and__(self, rhs: Bool) -> Bool:
        return self._op("arith.andi", rhs)

    def __or__(self, rhs: Bool) -> Bool:
        return self._op("arith.ori", rhs)


def where(condition: Bool, yes: Float | Number, no: Float | Number) -> Float:
    """`arith.select` of floats."""
    b = condition.b
    operands = [condition.v, b.lift(yes).v, b.lift(no).v]
    return Float(b, ir.Operation.create("arith.select", b.float_results, operands).results[0])
