"""Linalg on tensors with `?` sizes, rewritten with representatives.

In: a module and its `Inference`. Out: the same program with static types. Indices that are operands
of slices, pads and shapes become numbers of their attributes; the others become `nova.size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.sizes import Size, SizeExpr
from nova.frontends.symbolic.infer import Inference
from nova.frontends.symbolic.predicates import is_size
from nova.frontends.symbolic.static_types import set_static_types
from nova.frontends.symbolic.tensor_rules import (
    pad_numbers,
    scalar_of,
    segments,
    slice_numbers,
)
from nova.ir.bindings import arith, ir
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.symbolic.size_values import create_size
from nova.ir.walk import every_op

_SLICES = {"tensor.extract_slice": 1, "tensor.insert_slice": 2}
_NAMES = ("static_offsets", "static_sizes", "static_strides")


class TensorRewriter:
    """Rewrites one function; called inside of the context of its module."""

    def __init__(self, main: Any, inference: Inference, table: SizeTable):
        self.main, self.inference, self.table = main, inference, table

    def run(self) -> None:
        ops = every_op(self.main, outer_first=True)
        set_static_types(ops, self.inference, self.table)
        for op in ops:
            if op.name in _SLICES:
                self._slice(op)
            elif op.name == "tensor.pad":
                self._pad(op)
            elif op.name in ("tensor.empty", "tensor.expand_shape", "tensor.splat"):
                self._shaped(op)
            elif op.name == "scf.for":
                self._bound_loop(op)
        self._make_sizes_data()

    def _replace(self, op: Any, operands: Sequence[Any], attributes: dict[str, Any]) -> None:
        """The same op with other operands and attributes; its regions move."""
        kept = {name: op.attributes[name] for name in op.attributes}
        with ir.InsertionPoint(op), op.location:
            new = ir.Operation.create(
                op.name,
                [result.type for result in op.results],
                list(operands),
                {**kept, **attributes},
                regions=len(op.regions),
            )
        for old, region in zip(op.regions, new.regions, strict=True):
            for block in list(old.blocks):
                block.append_to(region)
        for result, value in zip(op.results, new.results, strict=True):
            self.inference.shapes[value] = self.inference.shape(result)
            result.replace_all_uses_with(value)
        op.erase()

    def _static(
        self, op: Any, names: Sequence[str], sizes: Sequence[Sequence[Any]], first: int
    ) -> None:
        """Numbers of attributes instead of the operands that are sizes."""
        dynamic = ir.ShapedType.get_dynamic_size()
        groups = segments(op, 0)
        attributes: dict[str, Any] = {}
        for k, (name, values) in enumerate(zip(names, sizes, strict=True)):
            data = [v for v in groups[first + k] if not is_size(scalar_of(self.inference, v))]
            groups[first + k] = data
            numbers = [dynamic if n is None else self.table.representative(n) for n in values]
            attributes[name] = ir.DenseI64ArrayAttr.get(numbers)
        counts = [len(group) for group in groups]
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(counts)
        self._replace(op, [value for group in groups for value in group], attributes)

    # --- ops ------------------------------------------------------------------------------------

    def _slice(self, op: Any) -> None:
        first = _SLICES[op.name]
        self._static(op, _NAMES, slice_numbers(self.inference, op, first), first)

    def _pad(self, op: Any) -> None:
        self._static(op, ("static_low", "static_high"), pad_numbers(self.inference, op), 1)

    def _shaped(self, op: Any) -> None:
        count = 0 if op.name == "tensor.empty" else 1
        shape = ir.DenseI64ArrayAttr.get(list(op.results[0].type.shape))
        expanded = op.name == "tensor.expand_shape"
        attributes = {"static_output_shape": shape} if expanded else {}
        self._replace(op, list(op.operands)[:count], attributes)

    def _bound_loop(self, op: Any) -> None:
        """Bounds that are sizes are constants, as those of Nova's own loops."""
        for k in range(3):
            size = scalar_of(self.inference, op.operands[k])
            if isinstance(size, SizeExpr):
                op.operands[k] = self._number(op, size)

    def _number(self, op: Any, size: Size) -> Any:
        with ir.InsertionPoint(op), op.location:
            return arith.constant(ir.IndexType.get(), self.table.representative(size))

    def _make_sizes_data(self) -> None:
        """Replace scalars that other ops read by sizes, and erase unused ones."""
        for op in reversed(every_op(self.main, outer_first=True)[1:]):
            if len(op.results) != 1 or op.regions or not op.name.startswith(("arith.", "tensor.")):
                continue
            result = op.results[0]
            size = scalar_of(self.inference, result)
            if isinstance(size, SizeExpr) and list(result.uses):
                with ir.InsertionPoint(op), op.location:
                    value = create_size(size)
                    if result.type != value.type:
                        value = arith.index_cast(result.type, value)
                result.replace_all_uses_with(value)
            if not list(result.uses):
                op.erase()
