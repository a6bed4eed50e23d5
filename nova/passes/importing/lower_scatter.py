"""`lower-scatter`: `stablehlo.scatter` becomes loops over its updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, stablehlo, tensor
from nova.ir.diagnostics import place_of
from nova.ir.index import index
from nova.ir.linalg.builder import LinalgBuilder
from nova.ir.linalg.scalarize import emit_scalars
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class LowerScatter(Pass):
    """Rewrite `stablehlo.scatter` as a loop that combines one element after the other.

    In row-major order of the updates, so that the result is deterministic; an update out of bounds
    changes nothing. Its combiner must have been lowered (`stablehlo-legalize-to-linalg`).
    """

    name: ClassVar[str] = "lower-scatter"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.scatter",)

    def run(self, module: ir.Module) -> None:
        for op in find_ops(module, "stablehlo.scatter"):
            with ir.InsertionPoint(op), op.location:
                value = _Scatter(op).emit()
            op.results[0].replace_all_uses_with(value)
            op.erase()


class _Scatter:
    def __init__(self, op: Any):
        if len(op.operands) != 3:
            raise LoweringError(
                "stablehlo.scatter of several operands at once",
                where=place_of(op.location),
                hint="scatter them one by one",
            )
        self.op = op
        self.operand, self.indices, self.updates = op.operands
        self.numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        self.index_type = ir.IndexType.get()
        element = self.indices.type.element_type
        self.unsigned = isinstance(element, ir.IntegerType) and element.is_unsigned
        if self.unsigned:
            plain = ir.IntegerType.get_signless(element.width)
            type_ = ir.RankedTensorType.get(list(self.indices.type.shape), plain)
            self.indices = ir.Operation.create(
                "builtin.unrealized_conversion_cast", [type_], [self.indices]
            ).results[0]

    def emit(self) -> Any:
        if 0 in self.updates.type.shape or 0 in self.operand.type.shape:
            return self.operand
        return LinalgBuilder().loop_nest(self.operand, self.updates.type.shape, self._combine)

    def _combine(self, state: Any, at: list[Any]) -> Any:
        places = self._places(at)
        inside = None
        clamped = []
        for place, size in zip(places, self.operand.type.shape, strict=True):
            for test in (
                arith.cmpi(arith.CmpIPredicate.sge, place, index(0)),
                arith.cmpi(arith.CmpIPredicate.slt, place, index(size)),
            ):
                inside = test if inside is None else arith.andi(inside, test)
            clamped.append(arith.maxsi(arith.minsi(place, index(size - 1)), index(0)))
        old = tensor.extract(state, clamped)
        update = tensor.extract(self.updates, at)
        [new] = emit_scalars(self.op.regions[0].blocks[0], [old, update])
        if inside is not None:
            new = arith.select(inside, new, old)
        return tensor.insert(new, state, clamped)

    def _places(self, at: Sequence[Any]) -> list[Any]:
        """The position of the update at `at` in the operand; may be out of bounds."""
        numbers = self.numbers
        window_dims = list(numbers.update_window_dims)
        batching = list(numbers.input_batching_dims)
        left_out = {*numbers.inserted_window_dims, *batching}
        scattered = [i for axis, i in enumerate(at) if axis not in window_dims]
        window = iter([at[axis] for axis in window_dims])
        rank = len(self.operand.type.shape)
        places = [index(0) if d in left_out else next(window) for d in range(rank)]
        for k, axis in enumerate(numbers.scattered_dims_to_operand_dims):
            places[axis] = arith.addi(places[axis], self._start(scattered, k))
        for own, theirs in zip(batching, numbers.scatter_indices_batching_dims, strict=True):
            # The axes of `scattered` are those of the indices without the axis of the vector.
            position = theirs - (theirs > numbers.index_vector_dim)
            places[own] = scattered[position]
        return places

    def _start(self, scattered: list[Any], k: int) -> Any:
        at = list(scattered)
        axis = self.numbers.index_vector_dim
        if axis < len(self.indices.type.shape):
            at.insert(axis, index(k))
        wanted = tensor.extract(self.indices, at)
        cast = arith.index_castui if self.unsigned else arith.index_cast
        return cast(self.index_type, wanted)
