"""Joins the update of a cache with the attention that reads it: one launch of a decoder less.

Input: `main` or a region of a program for a device over buffers, which have no offsets yet.
Output: a call of a kernel that writes new rows into keys and values, and computes queries, and the
call of the attention after it become a call of one kernel, whose ops before the attention have the
attribute `nova.prologue`. `plan-workspace` calls this where it knows which updates are in place:
with one launch instead of two, buffers live longer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from nova.codegen.common.loop_nest import make_loop_nest, merge_inner
from nova.codegen.common.match_attention import Attention, find_attention
from nova.ir.attributes import DEVICE, PROLOGUE
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import VIEWS, buffer_root, view_as
from nova.ir.clone import clone_into
from nova.ir.control_flow.functions import is_call
from nova.ir.kernel import Kernel, is_kernel
from nova.ir.linalg.generic import is_generic_op
from nova.ir.walk import every_op
from nova.passes.kernels.buffer_donation import users

_MOST_OPS = 16


def join_updates(main: Any, named: dict[str, Any]) -> None:
    """Join calls of `main`; `named` are the functions by name, and gain new ones."""
    joined: dict[Any, str] = {}
    calls = [op.operation for op in main.entry_block.operations if is_call(op.operation)]
    pairs = [_Pair(first, second, named) for first, second in pairwise(calls)]
    # No call is part of two pairs: an update has no attention.
    others: set[str] = set()
    for pair in [pair for pair in pairs if pair.can_join(others)]:
        key = pair.key
        if key not in joined:
            joined[key] = pair.make_kernel()
        pair.replace_calls(joined[key])
    called = {_callee(op.operation) for op in main.entry_block.operations if is_call(op.operation)}
    for name in {name for key in joined for name in key[:2]} - called:
        named.pop(name).operation.erase()


def _callee(call: Any) -> str:
    return str(call.attributes["callee"].value)


class _Pair:
    """A call, and the call after it."""

    def __init__(self, first: Any, second: Any, named: dict[str, Any]):
        self.calls = (first, second)
        self.named = named
        self.kernels: tuple[Any, ...] = tuple(named.get(_callee(call)) for call in self.calls)
        self._same: tuple[tuple[int, int], ...] = ()
        self.shared: dict[Any, list[Any]] = {}
        """Buffers of the first kernel that hold a new row, and then queries: with both writers."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Pairs with the same key become the same kernel."""
        return (*map(_callee, self.calls), *self._same)

    def can_join(self, others: set[str]) -> bool:
        """Whether the second call is an attention to what the first one updates.

        `others` gains the names of kernels without one, which are called many times.
        """
        if any(k is None or not is_kernel(k) or DEVICE.has(k) for k in self.kernels):
            return False
        update, attend = self.kernels
        name = _callee(self.calls[1])
        attention = None if name in others else _find_decode(attend)
        if attention is None:
            others.add(name)
            return False
        if Kernel(update).grid or not _has_row_writes(update):
            return False
        self._same = self._find_same()
        return self._updates_only(attention)

    def _find_same(self) -> tuple[tuple[int, int], ...]:
        """The arguments of the attention that are buffers of the update, and those."""
        update, attend = self.calls
        written = list(enumerate(update.operands))[Kernel(self.kernels[0]).ins :]
        return tuple(
            (i, j)
            for i, value in enumerate(attend.operands)
            for j, target in written
            if buffer_root(value) == buffer_root(target)
        )

    def _updates_only(self, attention: Attention) -> bool:
        """Whether all that the first kernel computes is for the attention."""
        from nova.codegen.gpu.attention.updates import writes_in_order
        from nova.codegen.gpu.slice_writes import match_new_row

        update, attend = self.kernels
        formal = dict(zip(attention.names, attention.nest.generic.op.operands, strict=True))
        numbers = {a: i for i, a in enumerate(attend.entry_block.arguments)}
        own = {n: numbers.get(buffer_root(formal[n])) for n in "qkv"}
        same = dict(self._same)
        arguments = list(update.entry_block.arguments)
        names = {arguments[same[i]]: n for n, i in own.items() if i in same}
        if len(same) != len(self._same) or len(names) != len(same):
            return False
        ops = [op.operation for op in update.entry_block.operations][:-1]
        rows = [row for op in ops if (row := match_new_row(op)) is not None]
        targets = [names.get(buffer_root(row.target)) for row in rows]
        if len(set(targets)) < len(targets) or not set(targets) <= {"k", "v"}:
            return False
        sources = {buffer_root(row.source) for row in rows}
        writers: dict[Any, list[Any]] = {}
        for op in ops:
            if not is_generic_op(op):
                continue
            *inputs, root = (buffer_root(value) for value in op.operands)
            if not (names.get(root) == "q" or root in sources) or not self._is_private(root):
                return False
            if any(value in writers for value in inputs) or _reads_memory(op):
                return False
            if not writes_in_order(merge_inner(make_loop_nest(op), 0)):
                return False
            writers.setdefault(root, []).append(op)
        written = {buffer_root(row.target) for row in rows} | set(writers)
        used = {a for a in arguments[Kernel(update).ins :] if any(True for _ in a.uses)}
        if not used <= written or not self._reads_other(ops, written):
            return False
        self.shared = {root: pair for root, pair in writers.items() if len(pair) > 1}
        return all(self._can_separate(ops, root, names.get(root)) for root in self.shared)

    def _can_separate(self, ops: list[Any], root: Any, name: str | None) -> bool:
        """Whether a buffer holds a new row first, which is written, and then the queries."""
        first, *others = self.shared[root]
        positions = {op: i for i, op in enumerate(ops)}
        between = range(positions[first], positions[others[0]])
        views = [
            positions[op]
            for op in ops
            if not is_generic_op(op) and any(buffer_root(v) == root for v in op.operands)
        ]
        loops = [
            positions[op]
            for op in ops
            if op.name == "scf.for"
            and any(buffer_root(v) == root for inner in every_op(op) for v in inner.operands)
        ]
        return name == "q" and len(others) == 1 and all(i in between for i in views + loops)

    def _is_private(self, argument: Any) -> bool:
        """Whether no call but these two uses the buffer of an argument of the first kernel."""
        if not isinstance(argument, ir.BlockArgument):
            return False
        root = buffer_root(self.calls[0].operands[argument.arg_number])
        return (
            isinstance(root, ir.OpResult)
            and root.owner.operation.name == "memref.alloc"
            and set(users(root)) <= set(self.calls)
        )

    def _reads_other(self, ops: list[Any], written: set[Any]) -> bool:
        """Whether scalars are loaded from buffers that the first kernel does not write."""
        loads = [op for op in ops if op.name == "memref.load"]
        return not any(buffer_root(op.operands[0]) in written for op in loads)

    def make_kernel(self) -> str:
        """Make the joined kernel; return its name."""
        update, attend = self.kernels
        same = dict(self._same)
        formals = [list(kernel.entry_block.arguments) for kernel in self.kernels]
        order = self._arguments()
        number = 0
        while (name := f"{Kernel(attend).name}_joined{number}") in self.named:
            number += 1
        types = [formals[member][i].type for member, i in order]
        types += [root.type for root in self.shared]
        with ir.InsertionPoint(update.operation), attend.location:
            joined = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private")
            block = joined.add_entry_block()
        places = {place: block.arguments[k] for k, place in enumerate(order)}
        work = Kernel(update).work + Kernel(attend).work
        view = Kernel.mark(joined, work=work, grid=Kernel(attend).grid)
        sections = self._sections()
        view.ins, view.outs = len(sections[0]), len(sections[1])
        mapping = {formals[m][i]: argument for (m, i), argument in places.items()}
        # A new row has a buffer of its own: queries are computed at the same time.
        buffers = {}
        for number, (root, (first, second)) in enumerate(self.shared.items(), len(order)):
            buffers[first], buffers[second] = (root, block.arguments[number]), (root, mapping[root])
        with ir.InsertionPoint(block), attend.location:
            for op in [op.operation for op in update.entry_block.operations][:-1]:
                if op in buffers:
                    root, buffer = buffers[op]
                    mapping[root] = buffer
                copy = clone_into(op, mapping)
                if op.name != "arith.constant" and op.name not in VIEWS:
                    PROLOGUE.set(copy)
            for i, j in same.items():
                mapping[formals[1][i]] = view_as(places[0, j], formals[1][i].type)
            for op in [op.operation for op in attend.entry_block.operations]:
                clone_into(op, mapping)
        self.named[name] = joined
        return name

    def _sections(self) -> tuple[list[tuple[int, int]], ...]:
        """The arguments that are read, written, and intermediate: kernels and their numbers."""
        same = dict(self._same)
        sections: tuple[list[tuple[int, int]], ...] = ([], [], [])
        for member, kernel in enumerate(self.kernels):
            view = Kernel(kernel)
            for i, argument in enumerate(kernel.entry_block.arguments):
                if not any(True for _ in argument.uses) or (member == 1 and i in same):
                    continue
                section = 0 if i < view.ins else 1 if i < view.ins + view.outs else 2
                if section == 1 and member == 0 and self._is_private(argument):
                    section = 2
                sections[section].append((member, i))
        return sections

    def _arguments(self) -> list[tuple[int, int]]:
        return [place for section in self._sections() for place in section]

    def replace_calls(self, name: str) -> None:
        """Call the joined kernel in place of the second call."""
        operands = [self.calls[member].operands[i] for member, i in self._arguments()]
        with ir.InsertionPoint(self.calls[1]), self.calls[1].location:
            operands += [memref.AllocOp(root.type, [], []).result for root in self.shared]
            func.CallOp([], ir.FlatSymbolRefAttr.get(name), operands)
        for call in self.calls:
            call.erase()


def _reads_memory(op: Any) -> bool:
    """Whether the body of a generic reads memory at computed positions."""
    return any(inner.name == "memref.load" for inner in every_op(op))


def _find_decode(kernel: Any) -> Attention | None:
    """The attention of a kernel, if its strategy takes new rows of keys and values."""
    ops = [op.operation for op in kernel.entry_block.operations][:-1]
    coded = [op for op in ops if op.name not in VIEWS and op.name != "arith.constant"]
    if len(coded) != 1 or not is_generic_op(coded[0]):
        return None
    attention = find_attention(make_loop_nest(coded[0]))
    if attention is None:
        return None
    # they load the device dialects
    from nova.codegen.gpu.attention.decode import decode_width
    from nova.codegen.gpu.attention.updates import can_update

    return attention if decode_width(attention) is not None and can_update(attention) else None


def _has_row_writes(kernel: Any) -> bool:
    """Whether a kernel writes rows, computes scalars and elementwise ops, and nothing else."""
    from nova.codegen.gpu.device_kernel import computes_scalars
    from nova.codegen.gpu.slice_writes import match_new_row

    ops = [op.operation for op in kernel.entry_block.operations][:-1]
    ops = [op for op in ops if op.name not in VIEWS and op.name != "arith.constant"]
    others = [op for op in ops if not is_generic_op(op) and not computes_scalars(op)]
    return 0 < len(others) <= len(ops) <= _MOST_OPS and all(
        match_new_row(op) is not None for op in others
    )
