"""Runtime library functions (as in compiler-rt), as LLVM IR for the target of the objects.

LLVM calls them if the target has no instruction: conversions between 16-bit and wider floats, and
divisions of 128-bit integers. C compilers link them from a library. A `.nova` file has none, so the
functions that objects call are compiled for the same target and linked with the objects.
`nova/compiler/cpu/backend.py` calls `helper_unit`. Functions that are not here stay undefined, and
the linker refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova.compiler.llvm.machine_code import Unit


@dataclass(frozen=True)
class _Format:
    """A binary floating-point format by its LLVM name."""

    type: str
    bits: int
    fraction: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def infinity(self) -> int:
        return (1 << (self.bits - 1)) - (1 << self.fraction)


_HALF, _BRAIN = _Format("half", 16, 10), _Format("bfloat", 16, 7)
_SINGLE, _DOUBLE = _Format("float", 32, 23), _Format("double", 64, 52)


def _narrowing(name: str, source: _Format, target: _Format) -> str:
    """A conversion with one rounding, to nearest even; NaN becomes quiet, with its high bits."""
    s, t = f"i{source.bits}", target.bits
    drop = source.fraction - target.fraction
    offset = source.bias - target.bias
    smallest = (offset + 1) << source.fraction if offset else 0  # the smallest normal result
    implicit_bit = 1 << source.fraction
    quiet = target.infinity | 1 << (target.fraction - 1)
    return f"""
define hidden {target.type} @{name}({source.type} %x) #0 {{
  %bits = bitcast {source.type} %x to {s}
  %magnitude = and {s} %bits, {(1 << (source.bits - 1)) - 1}
  %odd.n.0 = lshr {s} %magnitude, {drop}
  %odd.n = and {s} %odd.n.0, 1
  %n.0 = sub {s} %magnitude, {offset << source.fraction}
  %n.1 = add {s} %n.0, {(1 << (drop - 1)) - 1}
  %n.2 = add {s} %n.1, %odd.n
  %normal = lshr {s} %n.2, {drop}
  %exponent = lshr {s} %magnitude, {source.fraction}
  %fraction = and {s} %magnitude, {implicit_bit - 1}
  %full = or {s} %fraction, {implicit_bit}
  %is.normal = icmp ne {s} %exponent, 0
  %digits = select i1 %is.normal, {s} %full, {s} %fraction
  %distance.0 = sub {s} {drop + 1 + offset}, %exponent
  %far = icmp ugt {s} %distance.0, {source.fraction + 2}
  %distance = select i1 %far, {s} {source.fraction + 2}, {s} %distance.0
  %below = sub {s} %distance, 1
  %tie = shl {s} 1, %below
  %odd.s.0 = lshr {s} %digits, %distance
  %odd.s = and {s} %odd.s.0, 1
  %s.0 = add {s} %digits, %tie
  %s.1 = sub {s} %s.0, 1
  %s.2 = add {s} %s.1, %odd.s
  %subnormal = lshr {s} %s.2, %distance
  %is.small = icmp ult {s} %magnitude, {smallest}
  %finite = select i1 %is.small, {s} %subnormal, {s} %normal
  %is.large = icmp uge {s} %magnitude, {(target.bias + 1 + source.bias) << source.fraction}
  %over = icmp ugt {s} %finite, {target.infinity}
  %is.infinite = or i1 %is.large, %over
  %bounded = select i1 %is.infinite, {s} {target.infinity}, {s} %finite
  %payload.0 = lshr {s} %fraction, {drop}
  %payload = or {s} %payload.0, {quiet}
  %is.nan = icmp ugt {s} %magnitude, {source.infinity}
  %value = select i1 %is.nan, {s} %payload, {s} %bounded
  %sign.0 = lshr {s} %bits, {source.bits - t}
  %sign = and {s} %sign.0, {1 << (t - 1)}
  %signed = or {s} %value, %sign
  %short = trunc {s} %signed to i{t}
  %result = bitcast i{t} %short to {target.type}
  ret {target.type} %result
}}
"""


def _widening(name: str) -> str:
    """f16 to f32: exact, and NaN becomes quiet."""
    return f"""
define hidden float @{name}(half %x) #0 {{
  %short = bitcast half %x to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %shifted = shl i32 %magnitude, 13
  %normal = add i32 %shifted, {(_SINGLE.bias - _HALF.bias) << 23}
  %count = uitofp i32 %magnitude to float
  %tiny = fmul float %count, 0x3E70000000000000
  %subnormal = bitcast float %tiny to i32
  %is.small = icmp ult i32 %magnitude, 1024
  %finite = select i1 %is.small, i32 %subnormal, i32 %normal
  %special.0 = or i32 %shifted, {_SINGLE.infinity}
  %is.nan = icmp ugt i32 %magnitude, {_HALF.infinity}
  %quiet = select i1 %is.nan, i32 {1 << 22}, i32 0
  %special = or i32 %special.0, %quiet
  %is.special = icmp uge i32 %magnitude, {_HALF.infinity}
  %value = select i1 %is.special, i32 %special, i32 %finite
  %sign.0 = and i32 %bits, 32768
  %sign = shl i32 %sign.0, 16
  %signed = or i32 %value, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}}
"""


def _division(name: str, *, signed: bool, remainder: bool) -> str:
    """A bitwise division of 128-bit integers; division by zero gives the result of the loop."""
    sign = "%negative.x" if remainder else "%negative"
    return f"""
define hidden i128 @{name}(i128 %x, i128 %y) #0 {{
begin:
  %x.minus = sub i128 0, %x
  %y.minus = sub i128 0, %y
  %negative.x = icmp slt i128 %x, {0 if signed else -(1 << 127)}
  %negative.y = icmp slt i128 %y, {0 if signed else -(1 << 127)}
  %negative = xor i1 %negative.x, %negative.y
  %a = select i1 %negative.x, i128 %x.minus, i128 %x
  %b = select i1 %negative.y, i128 %y.minus, i128 %y
  br label %loop
loop:
  %i = phi i32 [ 0, %begin ], [ %i.next, %loop ]
  %rest = phi i128 [ 0, %begin ], [ %rest.next, %loop ]
  %left = phi i128 [ %a, %begin ], [ %left.next, %loop ]
  %top = lshr i128 %left, 127
  %carry = lshr i128 %rest, 127
  %rest.wide = shl i128 %rest, 1
  %taken = or i128 %rest.wide, %top
  %over = icmp ne i128 %carry, 0
  %enough = icmp uge i128 %taken, %b
  %fits = or i1 %over, %enough
  %less = sub i128 %taken, %b
  %rest.next = select i1 %fits, i128 %less, i128 %taken
  %digit = zext i1 %fits to i128
  %left.wide = shl i128 %left, 1
  %left.next = or i128 %left.wide, %digit
  %i.next = add i32 %i, 1
  %done = icmp eq i32 %i.next, 128
  br i1 %done, label %end, label %loop
end:
  %value = or i128 {"%rest.next" if remainder else "%left.next"}, 0
  %minus = sub i128 0, %value
  %result = select i1 {sign}, i128 %minus, i128 %value
  ret i128 %result
}}
"""


HELPERS = {
    "__extendhfsf2": _widening("__extendhfsf2"),
    "__truncsfhf2": _narrowing("__truncsfhf2", _SINGLE, _HALF),
    "__truncdfhf2": _narrowing("__truncdfhf2", _DOUBLE, _HALF),
    "__truncsfbf2": _narrowing("__truncsfbf2", _SINGLE, _BRAIN),
    "__truncdfbf2": _narrowing("__truncdfbf2", _DOUBLE, _BRAIN),
    "__divti3": _division("__divti3", signed=True, remainder=False),
    "__modti3": _division("__modti3", signed=True, remainder=True),
    "__udivti3": _division("__udivti3", signed=False, remainder=False),
    "__umodti3": _division("__umodti3", signed=False, remainder=True),
}
"""The LLVM IR of each function by name."""

_ATTRIBUTES = '\nattributes #0 = { nounwind noinline "no-builtins" }\n'


def helper_unit(objects: Iterable[bytes]) -> Unit | None:
    """A unit with the functions that objects call; None if they call none."""
    # A name is a whole string in the string table of an object. A false match, of a name that is
    # data, only adds an unused function.
    names = [name for name in HELPERS if any(name.encode() in data for data in objects)]
    if not names:
        return None
    text = "".join(HELPERS[name] for name in names) + _ATTRIBUTES
    return Unit(text, unroll=False, vectorize=False)
