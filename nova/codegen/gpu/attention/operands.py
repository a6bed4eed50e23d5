"""The operands of an attention at one point of its batch.

Input: an `Attention`, its flat buffers and the number of a point. Output: the counters of the batch
loops there, and a `Matrix` per operand and result. Both attention strategies of GPUs use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.match_attention import Attention, Matrix
from nova.ir.attention_ops import AXES
from nova.ir.index import Index, add, divide, modulo, mul


def batch_counters(attention: Attention, point: Index) -> list[Index]:
    """The counters of the batch loops at a point, the last loop fastest."""
    counters: list[Index] = []
    for number in reversed(attention.batch):
        size = attention.nest.loops[number].size
        counters.append(modulo(point, size))
        point = divide(point, size)
    return counters[::-1]


def matrices_at(
    attention: Attention, buffers: Sequence[Any], counters: Sequence[Index]
) -> dict[str, Matrix]:
    """The operands and results at a point of the batch, by name.

    With dropout, the start of `point` is the number of the point in the batch of the result.
    """
    nest = attention.nest
    starts: list[Index] = list(nest.offsets)
    for number, counter in zip(attention.batch, counters, strict=True):
        strides = nest.loops[number].strides
        starts = [
            add(start, mul(counter, stride)) for start, stride in zip(starts, strides, strict=True)
        ]
    matrices = {}
    for number, (name, buffer) in enumerate(zip(attention.names, buffers, strict=True)):
        axes = AXES[name.removeprefix("to_")]
        row_and_column = [nest.loops[attention.roles[a]].strides[number] for a in axes]
        element = str(buffer.type.element_type)
        row, column = [*row_and_column, 0, 0][:2]
        matrices[name] = Matrix(buffer, element, starts[number], row, column)
    if attention.spec.has_dropout:
        seed, point_strides = matrices["seed"], attention.point_strides()
        point: Index = 0
        for number, counter in zip(attention.batch, counters, strict=True):
            point = add(point, mul(counter, point_strides[number]))
        matrices["point"] = Matrix(seed.buffer, seed.type, point, 0, 0)
    return matrices
