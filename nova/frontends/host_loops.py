"""Unrolls host loops around launches.

In: a module whose function `entry` launches kernels in loops. Out: the same with a launch for each
iteration, if the bounds of a loop are constants, or become constants when the outer loops are
unrolled. Other loops stay. Called by `nova.frontends.launches`.
"""

from __future__ import annotations

from typing import Any

from nova.frontends.entry import find_entry
from nova.ir.bindings import arith, ir
from nova.ir.clone import clone_into
from nova.ir.launches import find_constant
from nova.ir.walk import every_op
from nova.passes.base import UpstreamPass, run_pipeline

_MOST_OPS = 4096
"""The limit on device ops of an unrolled loop: a table has a row for each."""
_DEVICE_WORK = ("memref.alloc", "memref.alloca", "memref.copy", "memref.dealloc")


def has_device_work(op: Any) -> bool:
    """Whether an op, or a nested op, is more than arithmetic, loads and stores."""
    return any(o.name.startswith("gpu.") or o.name in _DEVICE_WORK for o in every_op(op))


def unroll_loops(module: ir.Module, entry: str, filename: str) -> None:
    """Unroll the loops of a function that launch kernels, if their bounds are known."""
    while True:
        main = find_entry(module, entry, filename)
        loops = _known_loops(main)
        if not loops:
            return
        with module.context:
            for loop, counters in loops:
                _unroll(loop, counters)
        # Computed bounds of inner loops, and sizes, are now constants.
        run_pipeline(module, [UpstreamPass("canonicalize,cse")])


def _known_loops(within: Any) -> list[tuple[Any, range]]:
    """The outermost loops to unroll, with their counters."""
    loops = []
    for region in within.regions:
        for op in (inner.operation for block in region.blocks for inner in block.operations):
            counters = _bounds(op) if op.name == "scf.for" and has_device_work(op) else None
            work = sum(inner.name.startswith("gpu.") for inner in every_op(op))
            if counters is not None and len(counters) * work <= _MOST_OPS:
                loops.append((op, counters))
            elif op.name.startswith("scf."):
                loops += _known_loops(op)
    return loops


def _bounds(loop: Any) -> range | None:
    """The values of a loop's counter, if they are known."""
    numbers = [find_constant(value) for value in list(loop.operands)[:3]]
    lower, upper, step = numbers
    if lower is None or upper is None or step is None or step < 1:
        return None
    return range(lower, upper, step)


def _unroll(loop: Any, counters: range) -> None:
    block = loop.regions[0].blocks[0]
    counter, *carried = list(block.arguments)
    *operations, ending = [op.operation for op in block.operations]
    values = list(loop.operands)[3:]
    with ir.InsertionPoint(loop), loop.location:
        for number in counters:
            mapping = dict(zip(carried, values, strict=True))
            mapping[counter] = arith.ConstantOp(
                counter.type, ir.IntegerAttr.get(counter.type, number)
            ).result
            for op in operations:
                clone_into(op, mapping)
            values = [mapping.get(v, v) for v in ending.operands]
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
