"""`split-complex`: complex tensors of StableHLO become pairs of real tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import UnsupportedOpError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.walk import every_op, functions
from nova.passes.base import Pass
from nova.passes.importing.complex_rules import (
    RULES,
    Pair,
    combines_parts_alone,
    is_complex,
    part_type,
    region_by_parts,
)
from nova.passes.importing.inline_graph import lower_inlined

# Ops whose regions take and return the values of all operands: they carry two for each pair.
_WITH_REGIONS = {
    *("stablehlo.while", "stablehlo.case", "stablehlo.if", "stablehlo.reduce"),
    *("stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort", "stablehlo.map"),
}
_REDUCING = {"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter"}
COMPLEX_OPS = {*RULES, *_WITH_REGIONS, "stablehlo.return", "stablehlo.composite"}
"""Ops that may have complex operands and results."""


@record
class SplitComplex(Pass):
    """Replace every complex value by its real and imaginary part.

    Arguments and results of functions become real tensors with a last axis of the two parts,
    numpy's layout of complex arrays. Functions that are called must have been inlined. Each op is
    replaced by real ops (`complex_rules.py`); regions take two values for each complex one.
    """

    name: ClassVar[str] = "split-complex"
    only_with: ClassVar[tuple[str, ...]] = ("complex<",)

    def run(self, module: ir.Module) -> None:
        if not any(_mentions_complex(op) for op in every_op(module)):
            return
        for function in functions(module):
            if not function.is_external:
                _Splitter().function(function)
        lower_inlined(module)


def _mentions_complex(op: Any) -> bool:
    values = [*op.operands, *op.results]
    for region in op.regions:
        for block in region.blocks:
            values += block.arguments
    return any(is_complex(v.type) for v in values)


class _Splitter:
    def __init__(self) -> None:
        self.pairs: dict[Any, Pair] = {}
        self.replaced: list[Any] = []

    def function(self, function: Any) -> None:
        block = function.entry_block
        ops = [op.operation for op in block.operations]
        with ir.InsertionPoint.at_block_begin(block), function.location:
            for argument in block.arguments:
                if is_complex(argument.type):
                    type_ = argument.type
                    argument.set_type(_interleaved(type_))
                    self.pairs[argument] = _read_parts(argument, type_)
        self.split(ops)
        self.erase_replaced()
        operations = block.operations
        returned = operations[len(operations) - 1].operation
        types = ir.FunctionType.get(
            [a.type for a in block.arguments], [v.type for v in returned.operands]
        )
        function.attributes["function_type"] = ir.TypeAttr.get(types)

    def erase_replaced(self) -> None:
        for op in reversed(self.replaced):  # users before definitions
            op.erase()

    def split(self, ops: Sequence[Any]) -> None:
        for op in ops:
            if _mentions_complex(op) or any(v in self.pairs for v in op.operands):
                with ir.InsertionPoint(op), op.location:
                    self.op(op)
            else:
                for region in op.regions:
                    for block in region.blocks:
                        self.split([inner.operation for inner in block.operations])

    def op(self, op: Any) -> None:
        if op.name == "func.return":
            for i, value in enumerate(op.operands):
                if value in self.pairs and is_complex(value.type):  # else it is an argument
                    op.operands[i] = _interleave(self.pairs[value])
            return
        if op.name == "stablehlo.return":
            ir.Operation.create(op.name, [], self.flat(op.operands))
            self.replaced.append(op)
            return
        if op.name in _REDUCING and combines_parts_alone(op):
            results = region_by_parts(op, [self.pairs.get(v, v) for v in op.operands])
        elif op.name in _WITH_REGIONS:
            results = self.with_regions(op)
        else:
            rule = RULES.get(op.name)
            if rule is None:
                raise UnsupportedOpError(
                    f"{op.name} of complex numbers has no code in Nova",
                    where=place_of(op.location),
                    hint="compute with real and imaginary parts",
                )
            results = rule(op, [self.pairs.get(v, v) for v in op.operands])
        for old, new in zip(op.results, results, strict=True):
            if isinstance(new, tuple):
                self.pairs[old] = new
            else:
                old.replace_all_uses_with(new)
        self.replaced.append(op)

    def flat(self, values: Sequence[Any]) -> list[Any]:
        return [part for v in values for part in self.pairs.get(v, (v,))]

    # --- regions --------------------------------------------------------------------------------

    def with_regions(self, op: Any) -> list[Any]:
        types = [t for r in op.results for t in _part_types(r.type)]
        attributes = {name: op.attributes[name] for name in op.attributes}
        new = ir.Operation.create(
            op.name, types, self.flat(op.operands), attributes, regions=len(op.regions)
        )
        for old_region, region in zip(op.regions, new.regions, strict=True):
            [old] = old_region.blocks
            arguments = [(a, _part_types(a.type)) for a in old.arguments]
            if op.name == "stablehlo.sort":  # (left, right) of each operand
                order = _sorted_arguments(arguments)
            else:
                order = [(a, part) for a, parts in arguments for part in range(len(parts))]
            block_types = [dict(arguments)[a][part] for a, part in order]
            block = region.blocks.append(*block_types, arg_locs=[op.location] * len(order))
            values = dict(zip(order, block.arguments, strict=True))
            for argument, parts in arguments:
                if len(parts) == 2:
                    self.pairs[argument] = values[argument, 0], values[argument, 1]
                else:
                    argument.replace_all_uses_with(values[argument, 0])
            outer, self.replaced = self.replaced, []
            self.split([inner.operation for inner in old.operations])
            self.erase_replaced()  # before the op, which owns the arguments that they use
            self.replaced = outer
            for inner in list(old.operations):
                block.append(inner)
        results = iter(new.results)
        return [
            (next(results), next(results)) if is_complex(r.type) else next(results)
            for r in op.results
        ]


def _sorted_arguments(arguments: Sequence[tuple[Any, list[Any]]]) -> list[tuple[Any, int]]:
    """The parts of (left, right) pairs: left and right of one part are next to each other."""
    order = []
    for (left, parts), (right, _) in zip(arguments[::2], arguments[1::2], strict=True):
        for part in range(len(parts)):
            order += [(left, part), (right, part)]
    return order


def _part_types(type_: Any) -> list[Any]:
    return [part_type(type_)] * 2 if is_complex(type_) else [type_]


# --- memory: the parts are a last axis ------------------------------------------------------------


def _interleaved(type_: Any) -> Any:
    part = part_type(type_)
    return ir.RankedTensorType.get([*part.shape, 2], part.element_type)


def _read_parts(value: Any, type_: Any) -> Pair:
    part = part_type(type_)
    shape = list(part.shape)
    first = ir.RankedTensorType.get([*shape, 1], part.element_type)

    def read(position: int) -> Any:
        attributes = {
            "start_indices": ir.DenseI64ArrayAttr.get([*[0] * len(shape), position]),
            "limit_indices": ir.DenseI64ArrayAttr.get([*shape, position + 1]),
            "strides": ir.DenseI64ArrayAttr.get([1] * (len(shape) + 1)),
        }
        sliced = ir.Operation.create("stablehlo.slice", [first], [value], attributes).results[0]
        return ir.Operation.create("stablehlo.reshape", [part], [sliced]).results[0]

    return read(0), read(1)


def _interleave(pair: Pair) -> Any:
    part = pair[0].type
    shape = list(part.shape)
    single = ir.RankedTensorType.get([*shape, 1], part.element_type)
    whole = ir.RankedTensorType.get([*shape, 2], part.element_type)
    values = [ir.Operation.create("stablehlo.reshape", [single], [p]).results[0] for p in pair]
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(shape))
    return ir.Operation.create(
        "stablehlo.concatenate", [whole], values, {"dimension": axis}
    ).results[0]
