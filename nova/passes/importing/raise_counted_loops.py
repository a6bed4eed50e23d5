"""`raise-counted-loops`: StableHLO's loops with a counter become `scf.for` over slices."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.clone import clone_into
from nova.ir.control_flow.emit_scf import read_rows, write_rows
from nova.ir.index import index
from nova.ir.walk import defining_op, functions
from nova.passes.base import Pass
from nova.passes.importing.simplify_stablehlo import count_iterations, integer_constant


@record
class RaiseCountedLoops(Pass):
    """Rewrite a `stablehlo.while` that counts up by one, as jax writes `scan`, as a `scf.for`.

    Values that the body passes on unchanged are not carried any more. `dynamic_slice` and
    `dynamic_update_slice` of one position along the first axis, at the counter or backwards from
    the last position, become `tensor.extract_slice` and `tensor.insert_slice`:
    `outline-control-flow` then reads and writes those slices in place. Loops over unsigned values
    stay.
    """

    name: ClassVar[str] = "raise-counted-loops"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.while",)

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if not function.is_external:
                for block in function.body.blocks:
                    _raise_block(block)


def _raise_block(block: Any) -> None:
    for op in list(block.operations):
        op = op.operation
        for region in op.regions:
            for nested in region.blocks:
                _raise_block(nested)
        if op.name != "stablehlo.while" or not _is_signless(op):
            continue
        count = count_iterations(op)
        if count is None:
            continue
        with ir.InsertionPoint(op), op.location:
            results = _Counted(op, count).raised()
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def _is_signless(op: Any) -> bool:
    elements = [v.type.element_type for v in op.operands]
    return all(not isinstance(e, ir.IntegerType) or e.is_signless for e in elements)


class _Counted:
    """One loop of `count` iterations."""

    def __init__(self, op: Any, count: int):
        self.op, self.count = op, count
        self.body = op.regions[1].blocks[0]
        *self.operations, ending = [inner.operation for inner in self.body.operations]
        self.returned = list(ending.operands)
        arguments = list(self.body.arguments)
        condition = op.regions[0].blocks[0]
        compare = next(o for o in condition.operations if o.operation.name == "stablehlo.compare")
        self.counter = list(condition.arguments).index(compare.operation.operands[0])
        self.start = integer_constant(op.operands[self.counter]) or 0
        self.carried = [
            i for i, a in enumerate(arguments) if i != self.counter and self.returned[i] != a
        ]

    def raised(self) -> list[Any]:
        """The results of the new loop, and of values that it does not carry."""
        op, arguments = self.op, list(self.body.arguments)
        initial = [op.operands[i] for i in self.carried]
        loop = scf.ForOp(index(0), index(self.count), index(1), initial)
        with ir.InsertionPoint(loop.body):
            self.position = loop.induction_variable
            mapping = {arguments[i]: op.operands[i] for i in range(len(arguments))}
            mapping |= {
                arguments[i]: v for i, v in zip(self.carried, loop.inner_iter_args, strict=True)
            }
            mapping[arguments[self.counter]] = self._counter_value()
            for inner in self.operations:
                if not self._slice(inner, mapping):
                    clone_into(inner, mapping)
            scf.YieldOp([mapping.get(v, v) for v in (self.returned[i] for i in self.carried)])
        results = dict(zip(self.carried, loop.results, strict=True))
        results[self.counter] = self._last_counter()
        return [results.get(i, op.operands[i]) for i in range(len(arguments))]

    def _counter_value(self) -> Any:
        type_ = self.op.operands[self.counter].type
        position = arith.addi(self.position, index(self.start)) if self.start else self.position
        number = arith.index_cast(type_.element_type, position)
        return tensor.from_elements(type_, [number])

    def _last_counter(self) -> Any:
        type_ = self.op.operands[self.counter].type
        value = ir.IntegerAttr.get(type_.element_type, self.start + self.count)
        return arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, value)).result

    # --- slices ---------------------------------------------------------------------------------

    def _slice(self, inner: Any, mapping: dict[Any, Any]) -> bool:
        """Emit a slice of one position of the loop; whether `inner` was one."""
        if inner.name == "stablehlo.dynamic_slice":
            first, starts = 1, list(inner.operands)[1:]
            sizes = list(inner.attributes["slice_sizes"])
        elif inner.name == "stablehlo.dynamic_update_slice":
            first, starts = 2, list(inner.operands)[2:]
            sizes = list(inner.operands[1].type.shape)
        else:
            return False
        shape = list(inner.operands[0].type.shape)
        if sizes != [1, *shape[1:]] or shape[0] < self.count or self.start != 0:
            return False
        if any(integer_constant(s) != 0 for s in starts[1:]):
            return False
        position = self._position(starts[0])
        if position is None:
            return False
        stacked = mapping.get(inner.operands[0], inner.operands[0])
        if first == 1:
            mapping[inner.results[0]] = read_rows(stacked, position, inner.results[0].type)
        else:
            row = self._row(inner.operands[1], mapping)
            mapping[inner.results[0]] = write_rows(row, stacked, position)
        return True

    def _row(self, update: Any, mapping: dict[Any, Any]) -> Any:
        """The value that is written; a broadcast that only adds an axis is a reshape."""
        broadcast = defining_op(update, "stablehlo.broadcast_in_dim")
        if broadcast is not None:
            source = broadcast.operands[0]
            if list(source.type.shape) == list(update.type.shape)[1:]:
                value = mapping.get(source, source)
                return ir.Operation.create("stablehlo.reshape", [update.type], [value]).results[0]
        return mapping.get(update, update)

    def _position(self, start: Any) -> Any | None:
        """The position that a start index is, as an index; None for another index."""
        counter = self.body.arguments[self.counter]
        if start == counter or _selects(start, counter):
            return self.position
        outer = defining_op(start, "stablehlo.subtract")
        if outer is None:
            return None
        left, right = outer.operands
        inner = defining_op(left, "stablehlo.subtract")
        if inner is not None and integer_constant(right) == 1:
            left, right = inner.operands
            is_last = integer_constant(left) == self.count
        else:
            is_last = integer_constant(left) == self.count - 1
        if is_last and right == counter:
            return arith.subi(index(self.count - 1), self.position)
        return None


def _selects(start: Any, counter: Any) -> bool:
    """Whether an index is the counter, with the case of a negative one that jax writes."""
    select = defining_op(start, "stablehlo.select")
    if select is None or select.operands[2] != counter:
        return False
    compare = defining_op(select.operands[0], "stablehlo.compare")
    return (
        compare is not None
        and "LT" in str(compare.attributes["comparison_direction"])
        and compare.operands[0] == counter
        and integer_constant(compare.operands[1]) == 0
    )
