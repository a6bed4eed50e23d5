"""Matches the matrices of convolutions in the nova dialect: windows, and sums of windows.

Called by `convolve-channels-last`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.dtypes import NARROW_FLOATS
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import full_name, op_type
from nova.ir.types import nova_type
from nova.ops import OPS

Sizes = tuple[int, ...]


@record
class Columns:
    """The windows of images x (batch, channels, ...), padded with zeros, as columns of a matrix."""

    x: Any
    batch: int
    channels: int
    low: Sizes
    high: Sizes
    kernel: Sizes
    stride: Sizes
    dilation: Sizes
    counts: Sizes

    @property
    def depth(self) -> int:
        """Rows of the matrix."""
        return self.channels * prod(self.kernel)


@record
class Overlap:
    """Windows of `transposed weight @ g` that are added; `last` is the sum, or its only slice.

    `weight` is (outputs, channels * taps), g is (batch, outputs, positions). `starts` and `stops`
    are the positions of `last` in the sum.
    """

    last: Any
    weight: Any
    g: Any
    outputs: int
    channels: int
    kernel: Sizes
    counts: Sizes
    stride: Sizes
    dilation: Sizes
    starts: Sizes
    stops: Sizes


def producer(value: Any, name: str) -> Any | None:
    """The nova op of this name that defines `value`, if it does."""
    if isinstance(value, ir.OpResult) and value.owner.operation.name == full_name(name):
        return value.owner.operation
    return None


def narrow_source(value: Any) -> Any:
    """The 16-bit floats that `value` widens; else `value` itself."""
    cast = producer(value, "cast")
    if cast is None or nova_type(cast.operands[0].type).dtype not in NARROW_FLOATS:
        return value
    is_wider = nova_type(value.type).dtype.bits > nova_type(cast.operands[0].type).dtype.bits
    return cast.operands[0] if is_wider else value


def match_columns(value: Any) -> Columns | None:
    """The windows of which `value` (batch, channels * taps, positions) is a reshape."""
    reshape = producer(narrow_source(value), "reshape")
    windows = producer(narrow_source(reshape.operands[0]), "windows") if reshape else None
    if windows is None or not _is_static(windows):
        return None
    shape = nova_type(windows.results[0].type).shape
    _, attrs, _ = op_type(OPS["windows"], windows)
    rank = len(attrs["kernel"])
    if len(shape) != 2 + 2 * rank or not prod(shape):
        return None
    batch, channels = shape[:2]
    kernel, counts = tuple(shape[2 : 2 + rank]), tuple(shape[2 + rank :])
    if nova_type(value.type).shape != (batch, channels * prod(kernel), prod(counts)):
        return None
    x = narrow_source(windows.operands[0])
    low = high = (0,) * rank
    pad = producer(x, "pad")
    if pad is not None:
        _, options, _ = op_type(OPS["pad"], pad)
        ends = tuple(options["low"]), tuple(options["high"])
        if options["value"] == 0 and not any(n for side in ends for n in side[:2]):
            x, (low, high) = narrow_source(pad.operands[0]), (ends[0][2:], ends[1][2:])
    stride, dilation = tuple(attrs["stride"]), tuple(attrs["dilation"])
    return Columns(x, batch, channels, low, high, kernel, stride, dilation, counts)


def match_overlap(op: Any) -> Overlap | None:
    """The sum of overlapping windows of a matmul; dilated windows with stride 1 only."""
    if not _is_static(op):
        return None
    _, attrs, (windows,) = op_type(OPS["overlap_add"], op)
    rank = len(attrs["size"])
    stride, dilation = tuple(attrs["stride"]), tuple(attrs["dilation"])
    if windows.rank != 2 + 2 * rank or not windows.size:
        return None
    if any(s > 1 and d > 1 for s, d in zip(stride, dilation, strict=True)):
        return None
    batch, channels, *sizes = windows.shape
    kernel, counts = tuple(sizes[:rank]), tuple(sizes[rank:])
    reshape = producer(op.operands[0], "reshape")
    matmul = producer(reshape.operands[0], "matmul") if reshape else None
    transposed = producer(matmul.operands[0], "permute") if matmul else None
    if matmul is None or transposed is None:
        return None
    weight, g = transposed.operands[0], matmul.operands[1]
    shape, g_shape = nova_type(weight.type).shape, nova_type(g.type).shape
    if len(shape) != 2 or shape[1] != channels * prod(kernel):
        return None
    if g_shape != (batch, shape[0], prod(counts)):
        return None
    last, starts, stops = _last(op, rank)
    return Overlap(
        last, weight, g, shape[0], channels, kernel, counts, stride, dilation, starts, stops
    )


def _last(op: Any, rank: int) -> tuple[Any, Sizes, Sizes]:
    """The only slice of a sum's last axes, or the sum, with the range of each axis."""
    sizes = nova_type(op.results[0].type).shape
    whole = op, (0,) * rank, tuple(sizes[-rank:])
    users = [use.owner.operation for use in op.results[0].uses]
    if len(users) != 1 or users[0].name != full_name("slice"):
        return whole
    _, attrs, _ = op_type(OPS["slice"], users[0])
    starts, stops = tuple(attrs["starts"]), tuple(attrs["stops"])
    leading = starts[:-rank] == (0,) * (len(sizes) - rank) and stops[:-rank] == sizes[:-rank]
    if not leading or any(step != 1 for step in attrs["steps"]):
        return whole
    return users[0], starts[-rank:], stops[-rank:]


def _is_static(op: Any) -> bool:
    values = [*op.operands, *op.results]
    return all(isinstance(n, int) for v in values for n in nova_type(v.type).shape)


def erase_unused(op: Any) -> None:
    """Erase an op without uses, and those that only it uses."""
    producers = [v.owner.operation for v in op.operands if isinstance(v, ir.OpResult)]
    op.erase()
    for each in dict.fromkeys(producers):
        if not any(True for r in each.results for _ in r.uses):
            erase_unused(each)
