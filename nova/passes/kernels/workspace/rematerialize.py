"""Rematerialization: recompute values instead of keeping them, less workspace for more time.

`plan-workspace` asks for a step when buffers do not fit into `max_workspace`. At the peak of memory
use, a buffer that is live there only for a later call is given up, and its kernel runs once more
before that call. Inputs of that kernel that are no longer live are recomputed in the same way, by a
chain of kernels. The kernels and their inputs are the same, so the results are bitwise identical.

This is the trade of gradient checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory
Cost", 2016), decided for each buffer at the peak instead of for each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from nova.core.records import record
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import nbytes, view_as

_MORE_WORK = 1.0
"""At most this fraction of the program's work is recomputed."""


@record
class Call:
    """A kernel call of main: the root buffers of its operands, the first `inputs` of them read."""

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
    """Recompute `buffer` by the calls number `makers`, in order, before call number `user`."""

    buffer: Any
    makers: tuple[int, ...]
    user: int
    work: int
    freed: int


class Recompute:
    """Steps that each reduce the peak memory of main, while the added work is within bounds."""

    def __init__(self, read_calls: Callable[[], list[Call]]):
        """`read_calls` lists the calls of main as they are now."""
        self._read_calls = read_calls
        self._budget = _MORE_WORK * sum(call.work for call in read_calls())

    def step(self) -> bool:
        """Give up the buffer with the least added work per byte; False if there is none."""
        chooser = _Chooser(self._read_calls(), self._budget)
        choices = [c for b in chooser.uses if (c := chooser.choice(b)) is not None]
        if not choices:
            return False
        chosen = min(choices, key=lambda c: c.work / c.freed)
        self._budget -= max(1, chosen.work)
        _apply(chooser.calls, chosen)
        return True


class _Chooser:
    """Finds buffers to give up: live but unused at the peak of memory use."""

    def __init__(self, calls: list[Call], budget: float):
        self.calls = calls
        self.budget = budget
        self.uses = _uses(calls)
        self.alive = _alive(calls, self.uses)
        self.peak = self.alive.index(max(self.alive))
        self.writers: dict[Any, list[int]] = {}
        for number, call in enumerate(calls):
            for root in dict.fromkeys(call.written):
                self.writers.setdefault(root, []).append(number)

    def choice(self, buffer: Any) -> _Choice | None:
        """How to recompute a buffer; None if it is not idle at the peak, or nothing is gained."""
        numbers = self.uses[buffer]
        later = [n for n in numbers if n > self.peak]
        if self.peak in numbers or numbers[0] > self.peak or not later:
            return None
        user = later[0]
        makers: list[int] = []
        extended_buffers: set[Any] = set()
        if not self._add_maker(buffer, user, makers, extended_buffers):
            return None
        # Buffers that are live at the peak only for this must not exceed the freed bytes.
        extended = sum(nbytes(value.type) for value in extended_buffers)
        freed = nbytes(buffer.type) - extended
        peak_bytes = self.alive[user] - nbytes(buffer.type) + extended + self._most(buffer, makers)
        if freed <= 0 or peak_bytes >= self.alive[self.peak]:
            return None
        work = sum(self.calls[maker].work for maker in makers)
        return _Choice(buffer, tuple(makers), user, work, freed)

    def _add_maker(
        self, buffer: Any, user: int, makers: list[int], extended_buffers: set[Any]
    ) -> bool:
        """Add the calls that recompute a buffer before call `user`, and buffers kept for them."""
        if len(self.writers.get(buffer, ())) != 1:
            return False  # it holds several values one after another
        (maker,) = self.writers[buffer]
        call = self.calls[maker]
        if maker in makers:
            return True
        if not all(map(_is_allocated, call.written)):
            return False
        for value in call.read:
            if any(n > maker for n in self.writers.get(value, ()) if n < user):
                return False  # it holds another value at that point
            if not _is_allocated(value) or self.uses[value][-1] >= user:
                continue
            if self.uses[value][-1] >= self.peak:
                extended_buffers.add(value)
            elif not self._add_maker(value, user, makers, extended_buffers):
                return False
        makers.append(maker)
        return sum(self.calls[m].work for m in makers) <= self.budget

    def _most(self, buffer: Any, makers: list[int]) -> int:
        """The maximum of simultaneously live bytes of new buffers that the makers need."""
        remade = {root for maker in makers for root in self.calls[maker].written}
        last = {buffer: len(makers)}
        for number, maker in enumerate(makers):
            for value in self.calls[maker].read:
                if value in remade and value != buffer:
                    last[value] = number
        most = 0
        live: set[Any] = set()
        for number, maker in enumerate(makers):
            live |= set(self.calls[maker].written)
            most = max(most, sum(nbytes(root.type) for root in live))
            live = {root for root in live if last.get(root, -1) > number}
        return most


def _uses(calls: list[Call]) -> dict[Any, list[int]]:
    """The calls that use each buffer that main allocates."""
    uses: dict[Any, list[int]] = {}
    for number, call in enumerate(calls):
        for root in dict.fromkeys(call.roots):
            if _is_allocated(root):
                uses.setdefault(root, []).append(number)
    return uses


def _is_allocated(value: Any) -> bool:
    """Whether main allocates a buffer, that is, it is not an argument or constant."""
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "memref.alloc"


def _alive(calls: list[Call], uses: dict[Any, list[int]]) -> list[int]:
    """The live bytes during each call."""
    change = [0] * (len(calls) + 1)
    for buffer, numbers in uses.items():
        change[numbers[0]] += nbytes(buffer.type)
        change[numbers[-1] + 1] -= nbytes(buffer.type)
    return list(accumulate(change[:-1]))


def _apply(calls: list[Call], choice: _Choice) -> None:
    user = calls[choice.user]
    fresh: dict[Any, Any] = {}
    for maker in (calls[number] for number in choice.makers):
        with ir.InsertionPoint(user.op), maker.op.location:
            operands = list(maker.op.operands)
            for i in range(maker.inputs):
                if maker.roots[i] in fresh:
                    operands[i] = view_as(fresh[maker.roots[i]], operands[i].type)
            for root in dict.fromkeys(maker.written):
                fresh[root] = memref.AllocOp(root.type, [], []).result
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
