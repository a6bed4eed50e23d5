"""`convolve-overlaps`: sums of overlapping windows of a matmul become a convolution."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.dtypes import f32, f64
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import CONSTANT, create_op, full_name, op_type
from nova.ir.types import nova_type
from nova.ir.walk import function_ops
from nova.ops import OPS
from nova.passes.base import Pass

_LEAST_CHANNELS = 16
"""Rows of the convolution's matmul: with fewer, the matmul before the sum is faster."""

Sizes = tuple[int, ...]


@record
class ConvolveOverlaps(Pass):
    """Compute the data gradient of a convolution with stride 1 as a convolution.

    `overlap_add(weight.T @ g)` multiplies, writes a value for every tap, and sums them (col2im). It
    becomes `flipped_weight @ windows(pad(g))`: as many multiply-adds, and the sum over the taps is
    inside the matmul. A slice of the sum, which removes the padding of the forward pass, makes the
    padding of g smaller. Transposed convolutions with stride 1 have the same form. Larger strides
    stay, because most windows of a spread g would be zeros; so do constant weights, which are
    packed by the compiler and would have to be flipped in each run.
    """

    name: ClassVar[str] = "convolve-overlaps"

    def run(self, module: ir.Module) -> None:
        for op in function_ops(module, "nova."):
            overlap = _match(op) if op.name == full_name("overlap_add") else None
            if overlap is not None:
                with ir.InsertionPoint(overlap.last), overlap.last.location:
                    value = _convolution(overlap)
                overlap.last.results[0].replace_all_uses_with(value)
                _erase_unused(overlap.last)

    def concerns(self, text: str) -> bool:
        return full_name("overlap_add") in text


@record
class _Overlap:
    """`last` is a slice of the sum, or the sum; g is (batch, outputs, positions).

    `weight` is (outputs, channels * taps). `low` and `high` pad g so that its windows are the
    positions of `last`.
    """

    last: Any
    weight: Any
    g: Any
    channels: int
    kernel: Sizes
    counts: Sizes
    dilation: Sizes
    low: Sizes
    high: Sizes


def _match(op: Any) -> _Overlap | None:
    attrs = op_type(OPS["overlap_add"], op)[1]
    windows = nova_type(op.operands[0].type)
    rank = len(attrs["size"])
    if windows.rank != 2 + 2 * rank or windows.dtype not in (f32, f64):
        return None
    if any(s != 1 for s in attrs["stride"]) or not all(isinstance(n, int) for n in windows.shape):
        return None
    batch, channels, *sizes = windows.shape
    kernel, counts = tuple(sizes[:rank]), tuple(sizes[rank:])
    reshape = _producer(op.operands[0], "reshape")
    matmul = _producer(reshape.operands[0] if reshape else op.operands[0], "matmul")
    transposed = _producer(matmul.operands[0], "permute") if matmul else None
    if matmul is None or transposed is None or not windows.size or channels < _LEAST_CHANNELS:
        return None
    weight, g = transposed.operands[0], matmul.operands[1]
    taps, positions = channels * prod(kernel), prod(counts)
    (outputs, *others), g_shape = nova_type(weight.type).shape, nova_type(g.type).shape
    if others != [taps] or g_shape != (batch, outputs, positions) or _is_constant(weight):
        return None
    last, starts, stops = _last(op, rank)
    reach = [d * (k - 1) for k, d in zip(kernel, attrs["dilation"], strict=True)]
    low = tuple(r - start for r, start in zip(reach, starts, strict=True))
    high = tuple(stop - c for stop, c in zip(stops, counts, strict=True))
    if any(p < 0 for p in (*low, *high)):
        return None
    return _Overlap(last, weight, g, channels, kernel, counts, attrs["dilation"], low, high)


def _last(op: Any, rank: int) -> tuple[Any, Sizes, Sizes]:
    """The only slice of a sum's last axes, or the sum, with the range of each axis."""
    sizes = nova_type(op.results[0].type).shape
    whole = op, (0,) * rank, tuple(sizes[-rank:])
    users = [use.owner.operation for use in op.results[0].uses]
    if len(users) != 1 or users[0].name != full_name("slice"):
        return whole
    attrs = op_type(OPS["slice"], users[0])[1]
    starts, stops = tuple(attrs["starts"]), tuple(attrs["stops"])
    leading = starts[:-rank] == (0,) * (len(sizes) - rank) and stops[:-rank] == sizes[:-rank]
    if not leading or any(step != 1 for step in attrs["steps"]):
        return whole
    return users[0], starts[-rank:], stops[-rank:]


def _erase_unused(op: Any) -> None:
    """Erase an op without uses, and those that only it uses."""
    producers = [v.owner.operation for v in op.operands if isinstance(v, ir.OpResult)]
    op.erase()
    for producer in producers:
        if not any(True for r in producer.results for _ in r.uses):
            _erase_unused(producer)


def _is_constant(value: Any) -> bool:
    """Whether a value is a constant, perhaps in another shape."""
    while (reshape := _producer(value, "reshape")) is not None:
        value = reshape.operands[0]
    return isinstance(value, ir.OpResult) and value.owner.operation.name == CONSTANT


def _producer(value: Any, name: str) -> Any | None:
    if isinstance(value, ir.OpResult) and value.owner.operation.name == full_name(name):
        return value.owner.operation
    return None


def _convolution(overlap: _Overlap) -> Any:
    rank, kernel = len(overlap.kernel), overlap.kernel
    batch, outputs, _ = nova_type(overlap.g.type).shape
    taps = outputs * prod(kernel)
    weight = _emit("reshape", overlap.weight, shape=(outputs, overlap.channels, *kernel))
    weight = _emit("permute", weight, axes=(1, 0, *range(2, 2 + rank)))
    weight = _emit("flip", weight, axes=tuple(range(2, 2 + rank)))
    weight = _emit("reshape", weight, shape=(overlap.channels, taps))
    g = _emit("reshape", overlap.g, shape=(batch, outputs, *overlap.counts))
    g = _emit("pad", g, low=(0, 0, *overlap.low), high=(0, 0, *overlap.high), value=0.0)
    windows = _emit("windows", g, kernel=kernel, stride=(1,) * rank, dilation=overlap.dilation)
    result = nova_type(overlap.last.results[0].type)
    columns = _emit("reshape", windows, shape=(batch, taps, prod(result.shape[2:])))
    product = create_op(
        OPS["matmul"],
        [weight, columns],
        result.with_shape((batch, overlap.channels, prod(result.shape[2:]))),
        {},
    )
    return _emit("reshape", product, shape=result.shape)


def _emit(name: str, operand: Any, **attrs: Any) -> Any:
    """An op with one operand."""
    row, type_ = OPS[name], nova_type(operand.type)
    attrs = row.canon((type_,), attrs) if row.canon else attrs
    assert row.infer is not None
    return create_op(row, [operand], row.infer((type_,), attrs), attrs)
