"""`widen-sums`: sums that another compiler wrote in narrow floats are computed in f32."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.clone import clone_into
from nova.ir.linalg.generic import GenericOp
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass
from nova.passes.tensor.raise_to_contract import converted


@record
class WidenSums(Pass):
    """Give each linalg.generic that adds up narrow floats an accumulator in f32, rounded once.

    A bf16 accumulator stops growing once it is 256 times as large as the addend. Matmuls of such a
    sum are exact in f32, and stay so.
    `raise-to-contract` has widened the contractions; bodies that do more with their accumulator
    than add to it stay.
    """

    name: ClassVar[str] = "widen-sums"
    only_with: ClassVar[tuple[str, ...]] = ("f16", "f8E")

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            generic = GenericOp(op)
            if (total := _find_sum(generic)) is not None:
                _rewrite(generic, total)


def _find_sum(generic: GenericOp) -> Any:
    """The op that adds to the accumulator, if it is its only use."""
    if generic.num_outputs != 1 or len(generic.op.results) != 1:
        return None
    if "reduction" not in generic.iterators:
        return None
    out = list(generic.block.arguments)[-1]
    if not isinstance(out.type, NARROW_TYPES):
        return None
    last = list(generic.block.operations)[-1].operands[0]
    total = last.owner.operation if isinstance(last, ir.OpResult) else None
    if total is None or total.name != "arith.addf" or len(list(last.uses)) != 1:
        return None
    uses = [use.owner.operation for use in out.uses]
    return total if uses == [total] else None


def _product(term: Any) -> Any:
    """The multiplication that only the sum uses: a convolution or contraction of few elements."""
    if not isinstance(term, ir.OpResult) or term.owner.name != "arith.mulf":
        return None
    return term.owner if len(list(term.uses)) == 1 else None


def _rewrite(generic: GenericOp, total: Any) -> None:
    op, old = generic.op, generic.block
    maps = [m.value for m in op.attributes["indexing_maps"]]
    *inputs, start = op.operands
    wide, out = ir.F32Type.get(), list(old.arguments)[-1]
    with ir.InsertionPoint(op), op.location:
        begin = converted(start, wide)
        made = generic_op([begin.type], inputs, [begin], maps, list(generic.iterators))
        kinds = [argument.type for argument in old.arguments]
        block = made.regions[0].blocks.append(*kinds[:-1], wide)
        mapping = dict(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            (term,) = [value for value in total.operands if value != out]
            product = _product(term)
            for inner in list(old.operations)[:-1]:
                if inner.operation not in (total, product):
                    clone_into(inner.operation, mapping)
            factors = [term] if product is None else list(product.operands)
            factors = [arith.extf(wide, mapping.get(v, v)) for v in factors]
            term = factors[0] if product is None else arith.mulf(*factors)
            yield_op([arith.addf(block.arguments[len(inputs)], term)])
        result = converted(made.results[0], out.type)
    op.results[0].replace_all_uses_with(result)
    op.erase()
