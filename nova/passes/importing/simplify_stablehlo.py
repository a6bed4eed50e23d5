"""`simplify-stablehlo`: ops that upstream lowers poorly or incorrectly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from nova.core.records import record
from nova.ir.attributes import INVERTED
from nova.ir.bindings import ir
from nova.ir.clone import clone_into
from nova.ir.resources import is_resource, retyped
from nova.ir.walk import defining_op, functions
from nova.passes.base import Pass


@record
class SimplifyStablehlo(Pass):
    """Unroll loops with a small static iteration count, and fold trivial reductions.

    A loop qualifies when it starts at a constant, ends at one and adds one in each iteration, as
    jax writes `scan`, `fori_loop` and the rounds of its random numbers. Unrolled it is
    straight-line code, which is fused and runs on all cores; `max-turns` and `max-ops` bound what
    is unrolled. Longer loops stay loops. Two broadcasts in a row, as jax adds dimensions first, are
    one: each op is processed by dozens of passes. A reduction without elements is its initial
    value, and one over no axis its operand, as in XLA. A sum of bools is their disjunction, which
    upstream lowers to the sum of bits without carry. A slice without elements is an empty constant:
    upstream rejects one that begins at the end of its operand. Unsigned operands of a product whose
    result is wider or a float are converted to its type first: upstream extends their sign. A large
    unsigned constant becomes a signless one: upstream converts only values inside of the module.
    Upstream takes the candidate of a `select_and_scatter` whose windows do not overlap where its
    selection is true, which keeps the selected element by the specification: the selection of all
    is inverted, and `lower-select-and-scatter` inverts that of the others again.
    """

    name: ClassVar[str] = "simplify-stablehlo"
    max_turns: int = 16
    max_ops: int = 1024

    def run(self, module: ir.Module) -> None:
        rewrites = {**_REWRITES, "stablehlo.while": self._written_out}
        for function in functions(module):
            if not function.is_external:
                for block in function.body.blocks:
                    _rewrite_block(block, rewrites)

    def _written_out(self, op: Any) -> list[Any] | None:
        turns = count_iterations(op)
        body = op.regions[1].blocks[0]
        size = len(body.operations)
        if turns is None or turns > self.max_turns or turns * size > self.max_ops:
            return None
        values = list(op.operands)
        for _ in range(turns):
            mapping = dict(zip(body.arguments, values, strict=True))
            for inner in body.operations:
                inner = inner.operation
                if inner.name == "stablehlo.return":
                    values = [mapping.get(v, v) for v in inner.operands]
                else:
                    clone_into(inner, mapping)
        return values


Rewrite: TypeAlias = Callable[[Any], list[Any] | None]
"""Emits the values that replace the results of an op; None if the op stays."""


def _rewrite_block(block: Any, rewrites: Mapping[str, Rewrite]) -> None:
    for op in list(block.operations):
        op = op.operation
        for region in op.regions:
            for nested in region.blocks:
                _rewrite_block(nested, rewrites)
        rewrite = rewrites.get(op.name)
        if rewrite is None:
            continue
        with ir.InsertionPoint(op), op.location:
            new = rewrite(op)
        if new is not None:
            for old, value in zip(op.results, new, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


def count_iterations(op: Any) -> int | None:
    """The iteration count of a `stablehlo.while` that is a plain counter; else None."""
    condition, body = (region.blocks[0] for region in op.regions)
    ops = [o.operation for o in condition.operations if o.operation.name != "stablehlo.constant"]
    if [o.name for o in ops] != ["stablehlo.compare", "stablehlo.return"]:
        return None
    compare = ops[0]
    counter, limit = compare.operands
    if "LT" not in str(compare.attributes["comparison_direction"]):
        return None
    if counter not in list(condition.arguments):
        return None
    number = list(condition.arguments).index(counter)
    returned = list(body.operations)[-1].operation.operands[number]
    end, start = integer_constant(limit), integer_constant(op.operands[number])
    if end is None or start is None or not _adds_one(returned, body.arguments[number]):
        return None
    return max(0, end - start)


def _adds_one(value: Any, counter: Any) -> bool:
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "stablehlo.add":
        return False
    a, b = value.owner.operation.operands
    return (a == counter and integer_constant(b) == 1) or (
        b == counter and integer_constant(a) == 1
    )


def integer_constant(value: Any) -> int | None:
    """The integer in a constant tensor of rank 0."""
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "stablehlo.constant":
        return None
    attr = value.owner.operation.attributes["value"]
    if not isinstance(attr.type.element_type, ir.IntegerType) or list(attr.type.shape):
        return None
    return int(attr.get_splat_value().value)


def _trivial_reduction(op: Any) -> list[Any] | None:
    count = len(op.operands) // 2
    if 0 not in op.operands[0].type.shape:
        return None if list(op.attributes["dimensions"]) else _elements_alone(op)
    return [
        ir.Operation.create(
            "stablehlo.broadcast_in_dim",
            [result.type],
            [start],
            {"broadcast_dimensions": ir.DenseI64ArrayAttr.get([])},
        ).results[0]
        for result, start in zip(op.results, list(op.operands)[count:], strict=True)
    ]


def _elements_alone(op: Any) -> list[Any]:
    """A reduction over no axis: StableHLO leaves it open whether the initial value takes part."""
    return [
        ir.Operation.create("stablehlo.convert", [result.type], [value]).results[0]
        for value, result in zip(op.operands, op.results, strict=False)
    ]


def _no_elements(op: Any) -> list[Any] | None:
    type_ = op.results[0].type
    if 0 not in type_.shape:
        return None
    empty = ir.Attribute.parse(f"dense<> : {type_}")
    return [ir.Operation.create("stablehlo.constant", [type_], [], {"value": empty}).results[0]]


def _signless_values(op: Any) -> list[Any] | None:
    attr = op.attributes["value"]
    element = op.results[0].type.element_type
    if not is_resource(attr) or not isinstance(element, ir.IntegerType) or element.is_signless:
        return None
    plain = ir.IntegerType.get_signless(element.width)
    type_ = ir.RankedTensorType.get(list(op.results[0].type.shape), plain)
    values = ir.Operation.create("stablehlo.constant", [type_], [], {"value": retyped(attr, type_)})
    cast = "builtin.unrealized_conversion_cast"
    return [ir.Operation.create(cast, [op.results[0].type], [values.results[0]]).results[0]]


def _invert_selection(op: Any) -> None:
    """`select(selected, candidate)` as `not select(candidate, selected)`, marked `INVERTED`."""
    if INVERTED.find(op):
        return
    block = op.regions[0].blocks[0]
    first, second = block.arguments
    for inner in [o.operation for o in block.operations]:
        for number, value in enumerate(list(inner.operands)):
            if value in (first, second):
                inner.operands[number] = second if value == first else first
    returned = list(block.operations)[-1].operation
    with ir.InsertionPoint(returned), returned.location:
        flag = returned.operands[0]
        returned.operands[0] = ir.Operation.create("stablehlo.not", [flag.type], [flag]).results[0]
    INVERTED.set(op, True)


def _widen_unsigned(op: Any) -> None:
    element = op.results[0].type.element_type
    for number, value in enumerate(op.operands):
        narrow = value.type.element_type
        if not isinstance(narrow, ir.IntegerType) or not narrow.is_unsigned:
            continue
        is_wider = isinstance(element, ir.IntegerType) and element.width > narrow.width
        if is_wider or isinstance(element, ir.FloatType):
            type_ = ir.RankedTensorType.get(list(value.type.shape), element)
            wide = ir.Operation.create("stablehlo.convert", [type_], [value])
            op.operands[number] = wide.results[0]


def _either(op: Any) -> list[Any] | None:
    element = op.results[0].type.element_type
    if not isinstance(element, ir.IntegerType) or element.width != 1:
        return None
    return [ir.Operation.create("stablehlo.or", [op.results[0].type], list(op.operands)).results[0]]


def _merge_broadcasts(op: Any) -> None:
    """Let a broadcast of a broadcast read the operand of the first."""
    first = defining_op(op.operands[0], "stablehlo.broadcast_in_dim")
    if first is None:
        return
    outer, inner = (list(o.attributes["broadcast_dimensions"]) for o in (op, first))
    op.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get([outer[d] for d in inner])
    op.operands[0] = first.operands[0]
    if not any(True for _ in first.results[0].uses):
        first.erase()


_REWRITES: dict[str, Rewrite] = {
    "stablehlo.reduce": _trivial_reduction,
    "stablehlo.add": _either,
    "stablehlo.broadcast_in_dim": _merge_broadcasts,
    "stablehlo.slice": _no_elements,
    "stablehlo.constant": _signless_values,
    "stablehlo.dot_general": _widen_unsigned,
    "stablehlo.dot": _widen_unsigned,
    "stablehlo.convolution": _widen_unsigned,
    "stablehlo.select_and_scatter": _invert_selection,
}
