"""`call-device-intrinsics`: math ops with a device instruction become LLVM intrinsics."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.gpu.ptx_ops import narrow_pair
from nova.core.records import record
from nova.ir.bindings import arith, ir, vector
from nova.ir.gpu_bindings import llvm
from nova.ir.mathlib.intrinsics import call_intrinsic
from nova.ir.walk import defining_op, find_ops
from nova.passes.base import Pass
from nova.passes.gpu.rounded_results import is_one, is_rounded_later

_INTRINSICS = {
    "math.absf": "llvm.fabs",
    "math.ceil": "llvm.ceil",
    "math.copysign": "llvm.copysign",
    "math.ctpop": "llvm.ctpop",
    "math.exp2": "llvm.nvvm.ex2.approx.ftz.f",  # of an f32; no result of expand-math's is subnormal
    "math.floor": "llvm.floor",
    "math.fma": "llvm.fma",
    "math.round": "llvm.round",
    "math.roundeven": "llvm.roundeven",
    "math.sqrt": "llvm.sqrt",
    "math.trunc": "llvm.trunc",
}


@record
class CallDeviceIntrinsics(Pass):
    """Replace the `math` ops that `expand-math` leaves by calls of LLVM intrinsics.

    Upstream's conversion to NVVM would turn all of them into math library calls, even a copysign,
    and would round an f32 to bf16 with seven integer instructions. LLVM has instructions for each
    of these on every device; one rounds two elements of a vector to bf16. That is inline PTX,
    because bf16 is not an arithmetic type on this path through LLVM (`compiler/llvm/compat.py`).
    A quotient that is only used for results of 16 bits is computed with an error of 2 ulp of an
    f32: a correctly rounded one takes several times as many instructions, and a branch. Divided by
    1 + exp(x), it is a product with a reciprocal, which is 0 if it would be subnormal.
    """

    name: ClassVar[str] = "call-device-intrinsics"

    def run(self, module: ir.Module) -> None:
        ops = find_ops(module, "arith.divf", "arith.truncf", *_INTRINSICS)
        quotients = [op for op in ops if op.name == "arith.divf"]
        others = [op for op in ops if op.name != "arith.divf"]
        # Quotients first, while the roundings of their results are ops of their own.
        for op in quotients:
            if isinstance(op.results[0].type, ir.F32Type) and is_rounded_later(op):
                with op.location, ir.InsertionPoint(op):
                    quotient = _divide(*op.operands)
                op.results[0].replace_all_uses_with(quotient)
                op.erase()
        for op in others:
            with op.location, ir.InsertionPoint(op):
                if op.name in _INTRINSICS:
                    result = call_intrinsic(
                        _INTRINSICS[op.name], [op.results[0].type], op.operands
                    )[0]
                elif _rounds_to_bf16(op):
                    result = _round_to_bf16(op.operands[0])
                else:
                    continue
            op.results[0].replace_all_uses_with(result)
            op.erase()


def _divide(dividend: Any, divisor: Any) -> Any:
    """A quotient with an error of 2 ulp; by an instruction if its divisor is 1 + exp(x)."""
    if _is_exponential_and_one(divisor):
        reciprocal = llvm.inline_asm(divisor.type, [divisor], "rcp.approx.ftz.f32 $0, $1;", "=f,f")
        return reciprocal if is_one(dividend) else arith.mulf(dividend, reciprocal)
    return llvm.inline_asm(divisor.type, [dividend, divisor], "div.full.f32 $0, $1, $2;", "=f,f,f")


def _is_exponential_and_one(value: Any) -> bool:
    """Whether a value is what `approximate-exp` leaves of 1 + exp(x): it is 1 or more."""
    total = defining_op(value, "arith.addf")
    if total is None or not any(map(is_one, total.operands)):
        return False
    calls = [defining_op(v, "llvm.call_intrinsic") for v in total.operands if not is_one(v)]
    return any(
        call is not None and "ex2.approx" in str(call.attributes["intrin"]) for call in calls
    )


def _rounds_to_bf16(op: Any) -> bool:
    """Whether an op rounds an f32, or a vector of one dimension of them, to bf16."""
    source, target = op.operands[0].type, op.results[0].type
    if not isinstance(target, ir.VectorType):
        return isinstance(source, ir.F32Type) and isinstance(target, ir.BF16Type)
    is_f32 = isinstance(source.element_type, ir.F32Type)
    return is_f32 and isinstance(target.element_type, ir.BF16Type) and target.rank == 1


def _round_to_bf16(value: Any) -> Any:
    bf16 = ir.BF16Type.get()
    if not isinstance(value.type, ir.VectorType):
        return _round_element(value)
    (size,) = value.type.shape
    elements = [vector.extract(value, [], [i]) for i in range(size)]
    rounded = []
    for i in range(0, size - 1, 2):
        word = narrow_pair(elements[i], elements[i + 1], "bf16")
        pair = llvm.bitcast(ir.VectorType.get([2], bf16), word)
        rounded += [vector.extract(pair, [], [k]) for k in (0, 1)]
    if size % 2:
        rounded.append(_round_element(elements[-1]))
    return vector.from_elements(ir.VectorType.get([size], bf16), rounded)


def _round_element(value: Any) -> Any:
    """One element, by the instruction for two: that for one takes many times as long."""
    f32, i16 = ir.F32Type.get(), ir.IntegerType.get_signless(16)
    zero = arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result
    word = narrow_pair(value, zero, "bf16")
    return llvm.bitcast(ir.BF16Type.get(), arith.trunci(i16, word))
