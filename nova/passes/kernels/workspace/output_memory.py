"""Intermediates in the memory of outputs: dead before that part of the output is written.

The caller's memory for a result has no value until the program writes it, and overlaps neither an
argument nor another result (nova/model.h: `nova_run`; calls from Python check it). So a buffer of
`main` may be in any bytes of an output that no call up to its last use reads or writes. A result
that a program writes in parts, such as the gradient of rows chunk by chunk, has room in its last
part until the end. An updated parameter is no such result: its memory has the old value.

In: the lifetimes of buffers, and the outputs with the bytes that each call accesses. Out: an output
and an offset for some of the buffers. `plan-workspace` asks where the workspace is large, or larger
than its limit; like sharing the workspace, this orders kernels that are otherwise independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nova.core.records import record
from nova.core.rounding import round_up
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, element_bytes, nbytes
from nova.ir.kernel import is_kernel
from nova.passes.kernels.workspace.assign_offsets import ALIGN, Lifetime, lay_out, lowest_offset

_LARGE = 64 << 20
"""Bytes of a workspace without a limit that is worth the memory of outputs."""


@record
class OutputUse:
    """A call that accesses bytes [low, high) of an output."""

    call: int
    low: int
    high: int


@record
class OutputMemory:
    """An output: its size, and the calls that use it, in order."""

    nbytes: int
    uses: tuple[OutputUse, ...]


class OutputPlaces:
    """Finds room for buffers in outputs; `places` has the output and the offset of each.

    `before[c]` is the set of calls, as bits, on which call c depends. `fits(buffer, output)` says
    which outputs may have a buffer at all.
    """

    def __init__(
        self,
        buffers: Sequence[Lifetime],
        outputs: Sequence[OutputMemory],
        before: Sequence[int],
        fits: Callable[[int, int], bool],
    ):
        self.buffers = buffers
        self.outputs = outputs
        self.places: dict[int, tuple[int, int]] = {}
        self.before = before
        self._fits = fits
        # An output that is written last has room for most buffers.
        self._order = sorted(
            (k for k, output in enumerate(outputs) if output.uses),
            key=lambda k: -outputs[k].uses[-1].call,
        )

    def place(self, ordered: bool) -> bool:
        """Place those that are not placed yet, the largest first; whether there was room for any.

        With `ordered`, only where data dependences order all calls that would share bytes.
        """
        buffers, placed = self.buffers, len(self.places)
        for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].nbytes, buffers[i].first)):
            if i in self.places:
                continue
            for k in self._order:
                if self._fits(i, k) and (at := self._find(i, k, ordered)) is not None:
                    self.places[i] = k, at
                    break
        return len(self.places) > placed

    def _find(self, i: int, k: int, ordered: bool) -> int | None:
        """The lowest offset in output k that is free during the lifetime of buffer i."""
        buffer, output = self.buffers[i], self.outputs[k]
        if buffer.nbytes > output.nbytes or any(u.call in buffer.calls for u in output.uses):
            return None
        taken = [*self._written(buffer, output, ordered), *self._shared(i, k, ordered)]
        low = np.array([low for low, _ in taken], np.int64)
        high = np.array([high for _, high in taken], np.int64)
        at = lowest_offset(low, high - low, buffer.space)
        return at if at + buffer.nbytes <= output.nbytes else None

    def _written(
        self, buffer: Lifetime, output: OutputMemory, ordered: bool
    ) -> Iterator[tuple[int, int]]:
        """The bytes of the output's own value: from their first access on they are not free."""
        for use in output.uses:
            if use.low < use.high and (
                use.call < buffer.last or (ordered and not self._depends(use.call, buffer))
            ):
                yield use.low // ALIGN * ALIGN, round_up(use.high, ALIGN)

    def _shared(self, i: int, k: int, ordered: bool) -> Iterator[tuple[int, int]]:
        """The bytes of the buffers in output k that may not share them with buffer i."""
        for j, (output, at) in self.places.items():
            if output != k:
                continue
            early, late = sorted((self.buffers[i], self.buffers[j]), key=lambda b: b.first)
            if late.first <= early.last or (ordered and not self._depends(late.first, early)):
                yield at, at + self.buffers[j].space

    def _depends(self, call: int, buffer: Lifetime) -> bool:
        """Whether a call depends on all calls that use a buffer."""
        return all(self.before[call] >> other & 1 for other in buffer.calls)


@record
class Placement:
    """The place of each buffer: an output, or None for the workspace, and an offset."""

    places: tuple[tuple[int | None, int], ...]
    size: int
    """The bytes of the workspace."""


def place_buffers(
    finder: OutputPlaces, limit: int | None, spare: int | None, on_device: bool
) -> Placement:
    """Lay out the workspace, with buffers in outputs where it is large, or above its limit.

    Without a limit, kernels of a CPU do not wait for memory of outputs: independent ones run
    concurrently. Those of a device that write large outputs fill it anyway.
    """
    best = _lay_out_rest(finder, limit, spare)
    if best.size <= (_LARGE if limit is None else limit):
        return best
    for ordered in (True, False) if on_device or limit is not None else (True,):
        if not finder.place(ordered):
            continue
        best = min(best, _lay_out_rest(finder, limit, spare), key=lambda p: p.size)
        if limit is not None and best.size <= limit:
            break
    return best


def _lay_out_rest(finder: OutputPlaces, limit: int | None, spare: int | None) -> Placement:
    """The buffers that are not in outputs, in the workspace."""
    rest = [i for i in range(len(finder.buffers)) if i not in finder.places]
    layout = lay_out([finder.buffers[i] for i in rest], finder.before, limit, spare)
    places: dict[int, tuple[int | None, int]] = {**finder.places}
    places |= {i: (None, at) for i, at in zip(rest, layout.offsets, strict=True)}
    return Placement(tuple(places[i] for i in range(len(places))), layout.size)


# --- the outputs of main --------------------------------------------------------------------------


def find_outputs(
    outputs: Sequence[Any], calls: Sequence[Any], named: Mapping[str, Any]
) -> list[OutputMemory]:
    """The bytes of each output, an argument of main, that each of its calls accesses."""
    numbers = {output: k for k, output in enumerate(outputs)}
    uses: list[list[OutputUse]] = [[] for _ in outputs]
    for time, call in enumerate(calls):
        callee = named[call.attributes["callee"].value]
        for position, value in enumerate(call.operands):
            if (k := numbers.get(buffer_root(value))) is not None:
                size = nbytes(outputs[k].type)
                uses[k] += [
                    OutputUse(time, max(low, 0), min(high, size))
                    for low, high in _accessed(callee, position, value, size)
                ]
    return [OutputMemory(nbytes(o.type), tuple(u)) for o, u in zip(outputs, uses, strict=True)]


def _accessed(callee: Any, position: int, value: Any, size: int) -> list[tuple[int, int]]:
    """The byte ranges of an output that a call accesses by one of its operands."""
    if not is_kernel(callee) or _span(value.type) != (0, size):
        return [(0, size)]
    ranges = set(_used_ranges(callee.entry_block.arguments[position]))
    if None in ranges:
        return [(0, size)]
    return [r for r in ranges if r is not None] or [(0, 0)]


def _used_ranges(value: Any) -> Iterator[tuple[int, int] | None]:
    """The bytes that ops use of a buffer, or of views of it; None where that is not known."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in VIEWS:
            yield from _used_ranges(op.results[0])
        else:
            yield _span(value.type)


def _span(type_: Any) -> tuple[int, int] | None:
    """The bytes from the first to the last element of a memref, in its buffer."""
    if not type_.has_static_shape:
        return None
    strides, offset = type_.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    if offset == dynamic or any(s == dynamic or s < 0 for s in strides):
        return None
    size = element_bytes(type_)
    if 0 in type_.shape:
        return offset * size, offset * size
    last = offset + sum((n - 1) * s for n, s in zip(type_.shape, strides, strict=True))
    return offset * size, (last + 1) * size
