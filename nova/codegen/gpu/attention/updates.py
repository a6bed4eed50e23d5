"""What a launch computes before its attention: rotated rows, and new rows of keys and values.

Input: the ops that `join_updates.py` put before the attention of a decoder, and the point of the
batch of a block. Output: code that leaves the results of elementwise ops in the shared memory of
the block, and the new row of each cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.match_attention import Attention
from nova.codegen.gpu.block_ops import ThreadPosition, is_less, split, when
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.slice_writes import NewRow, match_new_row
from nova.ir.bindings import arith
from nova.ir.buffers import buffer_root
from nova.ir.clone import clone_into
from nova.ir.index import Index, add, index, mul


@dataclass(frozen=True)
class _Part:
    """The elements of an op from `first` on that a block needs, and its flat buffers."""

    nest: LoopNest
    buffers: Sequence[Any]
    first: Index
    count: int


class CacheUpdates:
    """The ops before an attention, at one point of its batch."""

    def __init__(self, kernel: DeviceKernel, attention: Attention, point: Index, flat: Any):
        self.kernel = kernel
        self.point = point
        self.flat: Callable[[Any], Any] = flat
        self.rows, self.features = int(attention.size("i")), int(attention.size("e"))
        operands = dict(zip(attention.names, kernel.ops[0].operands, strict=False))
        self._roots = {name: buffer_root(operands[name]) for name in "qkv"}
        self._scalars: dict[Any, Any] = {}

    def emit_scalars(self) -> None:
        """Emit the scalars, among them the positions of the new rows."""
        for op in self.kernel.updates:
            if match_new_row(op) is None:
                with op.location:
                    clone_into(op, self._scalars)

    def new_rows(self) -> dict[str, NewRow]:
        """The new rows of keys and values, by the name of the operand; sources are flat."""
        rows: dict[str, NewRow] = {}
        for op in self.kernel.updates:
            if (row := match_new_row(op)) is None:
                continue
            name = next(n for n in "kv" if self._roots[n] == buffer_root(row.target))
            position = self._scalars.get(row.position, row.position)
            rows[name] = NewRow(row.target, self.flat(row.source), position)
        return rows

    def is_computed(self, row: NewRow) -> bool:
        """Whether the source of a new row is in shared memory, after `emit_elementwise`."""
        outputs = [v for nest in self.kernel.prologue.values() for v in nest.generic.outputs]
        return any(row.source == self.flat(value) for value in outputs)

    def emit_elementwise(self, position: ThreadPosition) -> None:
        """Emit the elements that this point needs: all loads come before the first store."""
        results = []
        for op, nest in self.kernel.prologue.items():
            is_query = buffer_root(nest.generic.outputs[0]) == self._roots["q"]
            count = self.features * (self.rows if is_query else 1)
            buffers = [self.flat(value) for value in op.operands]
            part = _Part(nest, buffers, mul(self.point, count), count)
            with op.location:
                results += [
                    self._compute(part, add(position.thread, start))
                    for start in range(0, count, position.threads)
                ]
        for elements, values, bases, inside in results:
            with nullcontext() if inside is None else when(inside):
                elements.store(values, bases)

    def _compute(self, part: _Part, number: Index) -> tuple[Elements, list[Any], list[Any], Any]:
        """An element, its positions, and whether it exists; the last one instead of others."""
        inside = is_less(index(number), index(part.count))
        number = arith.minui(index(number), index(part.count - 1))
        nest = part.nest
        elements = Elements(nest, part.buffers, self._scalars)
        bases: list[Any] = [index(offset) for offset in nest.offsets]
        ivs: dict[int, Any] = {}
        counters = split(index(add(part.first, number)), [loop.size for loop in nest.loops])
        for loop, counter in zip(nest.loops, counters, strict=True):
            bases = advance(bases, counter, loop)
            if len(loop.dims) == 1:
                ivs[loop.dims[0]] = counter
        return elements, elements.apply(elements.load_all(bases), ivs), bases, inside


def can_update(attention: Attention) -> bool:
    """Whether queries, keys and values are matrices one after the other, in the batch's order."""
    nest = attention.nest
    rows, keys, features = (int(attention.size(role)) for role in "ije")
    for name, row, column, matrix in (
        ("q", "i", "e", rows),
        ("k", "j", "e", keys),
        ("v", "j", "f", keys),
    ):
        number = attention.names.index(name)
        loops = [nest.loops[i] for i in (*attention.batch, attention.roles[row])]
        loops.append(nest.loops[attention.roles[column]])
        sizes = [loop.size for loop in loops]
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        pairs = zip(loops, strides, strict=True)
        if nest.offsets[number] != 0 or sizes[-2:] != [matrix, features]:
            return False
        if any(loop.size != 1 and loop.strides[number] != stride for loop, stride in pairs):
            return False
    return True


def writes_in_order(nest: LoopNest) -> bool:
    """Whether an elementwise op writes one result, element after element."""
    sizes = [loop.size for loop in nest.loops]
    number = nest.generic.num_inputs
    return (
        nest.generic.num_outputs == 1
        and all(loop.parallel and isinstance(loop.size, int) for loop in nest.loops)
        and nest.offsets[number] == 0
        and all(
            loop.strides[number] == prod(sizes[i + 1 :]) or loop.size == 1
            for i, loop in enumerate(nest.loops)
        )
    )
