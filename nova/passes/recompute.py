"""Computing values again instead of keeping them: less workspace for more time.

`plan-workspace` asks for a step when buffers do not fit into `max_workspace`. Where the most memory
is in use, a buffer that waits there for a later call is given up, and the kernel that made it runs
once more before that call. The kernel and what it reads are the same, so the bits are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from nova.mlir.bindings import func, ir, memref
from nova.mlir.buffers import nbytes, view_as
from nova.records import record

_MORE_WORK = 1.0
"""At most this part of the program's work is done again."""


@record
class Call:
    """A kernel call of main: the buffers behind its operands, the first `inputs` of them read."""

    op: Any
    roots: tuple[Any, ...]
    inputs: int
    work: int

    @property
    def read(self) -> tuple[Any, ...]:
        return self.roots[: self.inputs]

    @property
    def written(self) -> tuple[Any, ...]:
        return self.roots[self.inputs :]


@record
class _Choice:
    """Make `buffer` again by call number `maker` before call number `user`."""

    buffer: Any
    maker: int
    user: int
    cost: float


class Recompute:
    """Steps that each make main need less memory, while the work they add is within bounds."""

    def __init__(self, read_calls: Callable[[], list[Call]]):
        """`read_calls` lists the calls of main as they are now."""
        self._read_calls = read_calls
        self._budget = _MORE_WORK * sum(call.work for call in read_calls())

    def step(self) -> bool:
        """Give up the buffer that costs the least work for its bytes; False if there is none."""
        calls = self._read_calls()
        uses = _uses(calls)
        alive = _alive(calls, uses)
        choices = [c for b in uses if (c := _choice(calls, uses, b, alive)) is not None]
        choices = [c for c in choices if calls[c.maker].work <= self._budget]
        if not choices:
            return False
        chosen = min(choices, key=lambda c: c.cost)
        self._budget -= max(1, calls[chosen.maker].work)
        _apply(calls, chosen)
        return True


def _uses(calls: list[Call]) -> dict[Any, list[int]]:
    """The calls that use each buffer that main allocates."""
    uses: dict[Any, list[int]] = {}
    for number, call in enumerate(calls):
        for root in dict.fromkeys(call.roots):
            if _is_allocated(root):
                uses.setdefault(root, []).append(number)
    return uses


def _is_allocated(value: Any) -> bool:
    """Whether a buffer is one of main's own, and no argument or constant."""
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "memref.alloc"


def _alive(calls: list[Call], uses: dict[Any, list[int]]) -> list[int]:
    """The bytes that hold values during each call."""
    change = [0] * (len(calls) + 1)
    for buffer, numbers in uses.items():
        change[numbers[0]] += nbytes(buffer.type)
        change[numbers[-1] + 1] -= nbytes(buffer.type)
    return list(accumulate(change[:-1]))


def _choice(
    calls: list[Call], uses: dict[Any, list[int]], buffer: Any, alive: list[int]
) -> _Choice | None:
    """How to give up a buffer that waits where most is alive; None if it does not, or cannot be."""
    numbers = uses[buffer]
    peak = alive.index(max(alive))
    later = [n for n in numbers if n > peak]
    if peak in numbers or numbers[0] > peak or not later:
        return None
    maker, user = numbers[0], later[0]
    call = calls[maker]
    if buffer not in call.written or not all(_is_allocated(b) for b in call.written):
        return None
    extended = 0
    for value in call.read:
        if any(value in c.written for c in calls[maker:user]):
            return None  # it holds something else by then
        if _is_allocated(value) and uses[value][-1] < user:
            # What is alive at the peak only for this must not be more than what it frees.
            extended += nbytes(value.type)
    freed = nbytes(buffer.type) - extended
    beside = sum(nbytes(b.type) for b in set(call.written) if b != buffer)
    if freed <= 0 or alive[user] + extended + beside >= alive[peak]:
        return None
    return _Choice(buffer, maker, user, call.work / freed)


def _apply(calls: list[Call], choice: _Choice) -> None:
    maker, user = calls[choice.maker], calls[choice.user]
    fresh: dict[Any, Any] = {}
    with ir.InsertionPoint(user.op), maker.op.location:
        for root in dict.fromkeys(maker.written):
            fresh[root] = memref.AllocOp(root.type, [], []).result
        operands = list(maker.op.operands)
        for i in range(maker.inputs, len(operands)):
            operands[i] = view_as(fresh[maker.roots[i]], operands[i].type)
        callee = maker.op.attributes["callee"].value
        func.CallOp([], ir.FlatSymbolRefAttr.get(callee), operands)
    for call in calls[choice.user :]:
        for i, root in enumerate(call.roots):
            if root == choice.buffer:
                with ir.InsertionPoint(call.op), call.op.location:
                    again = view_as(fresh[root], call.op.operands[i].type)
                call.op.operands[i] = again
