"""The first argument of a run that is an index outside of its axis, for `NOVA_CHECK=1`.

Rows clamp such an index, where torch raises an error. Only indices that the caller passes are
judged, directly or cast and reshaped: those that a program computes may rely on the clamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nova.core.records import record
from nova.debug.finding import Finding, step_finding
from nova.debug.oracle import arg_value
from nova.debug.plan_transforms import Program
from nova.ops import OPS
from nova.plan import Arg, Input, Param, Plan, Slot, Step

_PASSED_ON = ("cast", "reshape", "expand", "detach")
_CLASS_LOSSES = ("cross_entropy", "nll_loss")
_SLICES = ("dynamic_slice", "dynamic_update_slice")


@record
class _Indices:
    """Indices that a step reads: valid ones are low..high-1, and `ignored` is not an index.

    `is_start`: the positions at which a slice starts.
    """

    arg: Arg
    low: Any
    high: Any
    ignored: object = None
    is_start: bool = False


def find_index(program: Program) -> Finding | None:
    """The first step whose index is out of range."""
    plan = program.plan
    for step in plan.steps:
        for indices in _indices_of(plan, step):
            detail = _out_of_range(program, indices)
            if detail is not None:
                return step_finding("index", program, step, detail)
    return None


def _out_of_range(program: Program, indices: _Indices) -> str | None:
    """The first index that is out of range, in words."""
    plan = program.plan
    source = _argument(plan, indices.arg)
    low, high = np.asarray(indices.low, object), np.asarray(indices.high, object)
    is_decided = all(isinstance(n, int) for n in (*low.flat, *high.flat))
    if source is None or not is_decided:
        return None
    values = np.asarray(arg_value(plan, source, program.arrays, ())).astype(object)
    wrong = np.array((values < low) | (values >= high), bool) & (values != indices.ignored)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.shape else ()
    at = f" at {list(first)}" if first else ""
    name = plan.signature.arguments[_number(plan, source)].name
    end = high[first] if high.shape else high[()]
    limit = (
        f"a slice starts at {end - 1} at most" if indices.is_start else f"there are {end} elements"
    )
    return (
        f"{name!r} is {values[first]}{at}, and {limit}; "
        f"{int(wrong.sum())} of {wrong.size} indices are out of range"
    )


def _indices_of(plan: Plan, step: Step) -> Iterator[_Indices]:
    """The indices that a step reads, and their limits."""
    if step.op in _SLICES:
        yield from _slice_starts(plan, step)
        return
    if step.op in _CLASS_LOSSES:
        scores = _shape(plan, step.args[0])
        classes = scores[0 if len(scores) == 1 else 1]
        target = step.args[1]
        if len(_shape(plan, target)) != len(scores):  # one of floats has the rank of the scores
            yield _Indices(target, 0, classes, step.attrs["ignore_index"])
        return
    row = OPS.get(step.op)
    if row is None or "index" not in row.operands:
        return
    arg = step.args[row.operands.index("index")]
    for attribute in ("num_classes", "axis_size"):
        if attribute in step.attrs:
            yield _from_the_end(arg, step.attrs[attribute])
            return
    axis = 0 if step.op == "embedding" else step.attrs.get("axis")
    if axis is not None:
        yield _from_the_end(arg, _shape(plan, step.args[0])[axis])


def _from_the_end(arg: Arg, size: Any) -> _Indices:
    """Indices among `size` elements, where negative ones count from the end."""
    return _Indices(arg, -size if isinstance(size, int) else size, size)


def _slice_starts(plan: Plan, step: Step) -> Iterator[_Indices]:
    """The positions at which a slice starts: one tensor, or numbers that the caller stacked."""
    sizes = _shape(plan, step.args[0])
    window = (
        step.attrs["slice_sizes"] if "slice_sizes" in step.attrs else _shape(plan, step.args[1])
    )
    if not all(isinstance(n, int) for n in (*sizes, *window)):
        return
    # The whole slice lies inside: the last start is the size less that of the slice.
    low = [-int(n) for n in sizes]
    high = [int(n) - int(w) + 1 for n, w in zip(sizes, window, strict=True)]
    arg = step.args[-1]
    parts = plan.steps[arg.index] if isinstance(arg, Slot) else None
    if parts is not None and parts.op == "join" and len(parts.args) == len(sizes):
        for number, lowest, end in zip(parts.args, low, high, strict=True):
            yield _Indices(number, lowest, end, is_start=True)
        return
    yield _Indices(arg, low, high, is_start=True)


def _argument(plan: Plan, arg: Arg) -> Input | Param | None:
    """The argument of the program whose elements `arg` has."""
    while isinstance(arg, Slot):
        step = plan.steps[arg.index]
        if step.op not in _PASSED_ON:
            return None
        arg = step.args[0]
    return arg if isinstance(arg, Input | Param) else None


def _number(plan: Plan, arg: Input | Param) -> int:
    return arg.index if isinstance(arg, Input) else len(plan.signature.inputs) + arg.index


def _shape(plan: Plan, arg: Arg) -> Sequence[Any]:
    match arg:
        case Slot(index):
            return plan.steps[index].out_type.shape
        case Input() | Param():
            return plan.signature.arguments[_number(plan, arg)].type.shape
    return arg.array.shape
