"""Scalar access to a structured op: loads elements, applies the body, stores the results.

Input: a loop nest and the flat buffers of its operands. Output: code at the insertion point, for
one element of each operand. The scalar loops of the CPU and the threads of a device use this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.codegen.common.index_math import at
from nova.codegen.common.loop_nest import LoopNest
from nova.ir.bindings import arith, ir, memref
from nova.ir.clone import clone_into

_REORDERED = {"arith.addf", "arith.mulf"}


class Elements:
    """Element by element access to one loop nest.

    `captured` maps the outer values that the body uses to their replacements. With `reorder`, LLVM
    may reassociate sums.
    """

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        captured: Mapping[Any, Any],
        *,
        reorder: bool = True,
    ):
        self.flags = "reassoc,contract" if reorder else "contract"
        self.nest = nest
        self.buffers = buffers
        self.captured = captured
        self.generic = nest.generic

    def load_inputs(self, bases: Sequence[Any]) -> list[Any]:
        """The inputs at `bases`; None for those that the body does not use."""
        arguments = self.generic.block.arguments
        return [
            self.load(i, bases[i]) if any(True for _ in arguments[i].uses) else None
            for i in range(self.generic.num_inputs)
        ]

    def load_outputs(self, bases: Sequence[Any]) -> list[Any]:
        """The current values of the outputs at `bases`."""
        count = self.generic.num_inputs
        return [self.load(i, bases[i]) for i in range(count, count + self.generic.num_outputs)]

    def load_all(self, bases: Sequence[Any]) -> list[Any]:
        """The inputs, and the outputs where the body reads them."""
        outputs = self.load_outputs(bases) if self.generic.uses_output else []
        return [*self.load_inputs(bases), *outputs]

    def load(self, operand: int, base: Any) -> Any:
        """One element of an operand; a scalar operand unchanged."""
        buffer = self.buffers[operand]
        if not isinstance(buffer.type, ir.MemRefType):
            return buffer
        return self.unpacked(operand, memref.load(buffer, [at(base)]))

    def unpacked(self, operand: int, value: Any) -> Any:
        """An element in the type of the body: a bool is a byte in memory and an i1 in registers."""
        body_type = self.generic.block.arguments[operand].type
        return value if value.type == body_type else arith.trunci(body_type, value)

    def packed(self, operand: int, value: Any) -> Any:
        """An element in its memory type."""
        memory_type = self.buffers[operand].type.element_type
        return value if value.type == memory_type else arith.extui(memory_type, value)

    def store(self, values: Sequence[Any], bases: Sequence[Any]) -> None:
        """Store the results to the outputs at `bases`."""
        for k, value in enumerate(values):
            operand = self.generic.num_inputs + k
            element = self.packed(operand, value)
            memref.store(element, self.buffers[operand], [at(bases[operand])])

    def apply(self, elements: Sequence[Any], ivs: Mapping[int, Any]) -> list[Any]:
        """Apply the body to elements; `ivs` are the counters of the linalg loops that it uses."""
        block = self.generic.block
        mapping = dict(self.captured)
        mapping |= {a: v for a, v in zip(block.arguments, elements, strict=False) if v is not None}
        reduction = not all(loop.parallel for loop in self.nest.loops)
        for op in block.operations:
            op = op.operation
            if op.name == "linalg.yield":
                return [mapping.get(v, v) for v in op.operands]
            if op.name == "linalg.index":
                mapping[op.results[0]] = ivs[int(op.attributes["dim"].value)]
                continue
            new = clone_into(op, mapping)
            if reduction and op.name in _REORDERED:
                new.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{self.flags}>")
        raise AssertionError("a linalg body ends with a yield")
