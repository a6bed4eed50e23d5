"""`raise-to-contract`: contractions in any form become `linalg.contract`."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.match_contraction import is_multiply_add
from nova.core.records import record
from nova.ir.bindings import arith, ir, tensor
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import contract, fill, generic_op, yield_op
from nova.ir.mathlib.f8_formats import F8_TYPES, NARROW_TYPES
from nova.ir.walk import defining_op, find_tensor_ops
from nova.passes.base import Pass


@record
class RaiseToContract(Pass):
    """Rewrite each linalg.generic that is `c += a * b` over floats as `linalg.contract`.

    Nova's own matmuls have this form already: elementwise fusion leaves a contraction alone, and
    the schedules pack it. A sum in a narrow float becomes one in f32, rounded once. Named ops
    must have been generalized; contractions at sums of loops (convolutions that
    `unfold-convolutions` left) stay.
    """

    name: ClassVar[str] = "raise-to-contract"

    def run(self, module: ir.Module) -> None:
        for op in find_tensor_ops(module, "linalg.generic"):
            if is_contraction(GenericOp(op)):
                _rewrite(GenericOp(op))


def is_contraction(generic: GenericOp) -> bool:
    """Whether an op is `c += a * b` over floats, of which `linalg.contract` is another form."""
    if len(generic.op.operands) != 3 or "reduction" not in generic.iterators:
        return False
    if generic.num_outputs != 1 or len(generic.op.results) != 1:
        return False
    types = [o.type for o in generic.op.operands]
    if any(not isinstance(t, ir.RankedTensorType) for t in types):
        return False
    a, b, c = (t.element_type for t in types)
    is_pair = a == b or (isinstance(a, F8_TYPES) and isinstance(b, F8_TYPES))
    if not is_pair or not isinstance(c, ir.FloatType) or not isinstance(a, ir.FloatType):
        return False
    return _is_permuted(generic) and is_multiply_add(generic)


def _is_permuted(generic: GenericOp) -> bool:
    """Whether every operand is indexed by single loops, each loop in two operands at least."""
    used = []
    for access in generic.accesses:
        dims = [access.row_dim(i) for i in range(len(access.coefficients))]
        if None in dims or len(set(dims)) != len(dims):
            return False
        used.append(set(dims))
    a, b, c = used
    for loop, iterator in enumerate(generic.iterators):
        in_inputs = (loop in a) + (loop in b)
        if (iterator == "parallel") != (loop in c) or in_inputs < (1 if loop in c else 2):
            return False
    return True


def _rewrite(generic: GenericOp) -> None:
    op = generic.op
    a, b, c = op.operands
    maps = [m.value for m in op.attributes["indexing_maps"]]
    half = isinstance(c.type.element_type, NARROW_TYPES)
    with ir.InsertionPoint(op), op.location:
        total = converted(c, ir.F32Type.get()) if half else c
        value = contract(a, b, total, maps)
        if half:
            value = converted(value, c.type.element_type)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def converted(value: Any, element: Any) -> Any:
    """`value` in another float type; a fill is rebuilt in that type."""
    type_ = ir.RankedTensorType.get(list(value.type.shape), element)
    empty = tensor.empty(list(type_.shape), element)
    if (number := _filled_with(value)) is not None:
        constant = arith.ConstantOp(element, ir.FloatAttr.get(element, number)).result
        return fill(constant, empty)
    rank = len(type_.shape)
    identity = ir.AffineMap.get_identity(rank)
    generic = generic_op([type_], [value], [empty], [identity, identity], ["parallel"] * rank)
    block = generic.regions[0].blocks.append(value.type.element_type, element)
    wider = isinstance(value.type.element_type, NARROW_TYPES)
    with ir.InsertionPoint(block):
        convert = arith.extf if wider else arith.truncf
        yield_op([convert(element, block.arguments[0])])
    return generic.results[0]


def _filled_with(value: Any) -> float | None:
    """The number that a linalg.generic (or a constant) gives every element of `value`."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    if op.name == "arith.constant":
        attr = op.attributes["value"]
        is_splat = isinstance(attr, ir.DenseElementsAttr) and attr.is_splat
        return float(attr.get_splat_value().value) if is_splat else None
    if not is_generic_op(op):
        return None
    generic = GenericOp(op)
    yielded = list(generic.block.operations)[-1].operands[0]
    arguments = list(generic.block.arguments)
    if yielded in arguments[: generic.num_inputs]:
        yielded = op.operands[arguments.index(yielded)]
    constant = defining_op(yielded, "arith.constant")
    if constant is None or not isinstance(constant.attributes["value"], ir.FloatAttr):
        return None
    return float(constant.attributes["value"].value)
