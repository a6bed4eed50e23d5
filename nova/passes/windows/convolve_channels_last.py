"""`convolve-channels-last`: convolutions of 16-bit floats as matmuls of tensors (N, ..., C)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, ClassVar

from nova.core.dtypes import DType, bf16, f16, i32
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import full_name, op_type
from nova.ir.types import nova_type
from nova.ir.walk import function_ops
from nova.ops import OPS, F
from nova.passes.base import Pass
from nova.passes.tensor.canonicalize_nova import CanonicalizeNova
from nova.passes.tensor.decompose_composites import emit_graph
from nova.passes.windows.match_convolution import (
    Columns,
    Overlap,
    erase_unused,
    match_columns,
    match_overlap,
    narrow_source,
    producer,
)
from nova.passes.windows.sink_permutes import SinkPermutes

_NARROW = (bf16, f16)
_ALIGNED = 8
"""Elements of 16 bits in the 16 bytes of which the copy engine takes a multiple."""
_LEAST_ROWS, _LEAST_DEPTH = 8, 16
"""Output channels, and channels times taps, of a matmul on tensor cores."""

Sizes = tuple[int, ...]


@record
class ConvolveChannelsLast(Pass):
    """Compute convolutions and their gradients as matmuls with the channels last.

    A convolution is `weight @ windows` for each image, with positions along the rows of all
    matrices. On a device it becomes one contraction over taps and channels, which reads the windows
    where they are (implicit GEMM): `nova.conv_channels_last`, or a matmul where the kernel has one
    tap. The gradient of the weight is one contraction over the positions of all images,
    `nova.conv_channels_last_weight_gradient`. The gradient of the data sums in the contraction too:
    it is a convolution of g for each residue of a position modulo the stride, with the taps that
    reach it. Paddings are separate: they are written to memory, by the op before where it can. With
    `sink`, the ops between convolutions have channels last too:
    `sink-permutes` and `canonicalize-nova` then move the permutations out of the way.

    Only 16-bit floats, or f32 that is widened from them and rounded to them; only static sizes and
    one group.
    """

    name: ClassVar[str] = "convolve-channels-last"
    sink: bool = True

    def run(self, module: ir.Module) -> None:
        ops = function_ops(module, "nova.")
        overlaps = [op for op in ops if op.name == full_name("overlap_add")]
        changed = [_rewrite_data_gradient(op) for op in overlaps]
        for op in function_ops(module, "nova."):
            if op.name == full_name("matmul"):
                changed.append(_rewrite_forward(op))
            elif op.name == full_name("sum"):
                changed.append(_rewrite_weight_gradient(op))
        if self.sink and any(changed):
            # Permutations that meet are merged before and after they are moved.
            for step in (CanonicalizeNova(), SinkPermutes(), CanonicalizeNova()):
                step.run(module)

    def concerns(self, text: str) -> bool:
        return full_name("windows") in text or full_name("overlap_add") in text


# --- the three forms ------------------------------------------------------------------------------


def _rewrite_forward(op: Any) -> bool:
    """`matmul(weight, columns)`."""
    columns = match_columns(op.operands[1])
    weight = narrow_source(op.operands[0])
    if columns is None or len(nova_type(weight.type).shape) != 2:
        return False
    outputs, _ = nova_type(weight.type).shape
    if not _is_worth(op, (weight, columns.x), outputs, columns.depth):
        return False

    def build(w: Any, x: Any) -> Any:
        kernel = columns.kernel
        taps = F.reshape(w, (outputs, columns.channels, *kernel))
        taps = F.permute(taps, _channels_last(len(kernel)))
        images = _with_channels_last(_padded(x, columns))
        y = _convolution(images, taps, columns.stride, columns.dilation)
        y = F.permute(y, _channels_first(len(kernel)))
        return _as(F.reshape(y, (columns.batch, outputs, prod(columns.counts))), op)

    return _replace(op, build, weight, columns.x)


def _rewrite_weight_gradient(op: Any) -> bool:
    """`sum(matmul(g, transposed columns))` over the images."""
    _, attrs, _ = op_type(OPS["sum"], op)
    matmul = producer(op.operands[0], "matmul")
    if matmul is None or tuple(attrs["axis"]) != (0,) or attrs["keepdims"]:
        return False
    transposed = producer(matmul.operands[1], "permute")
    if transposed is None or _axes(transposed) != (0, 2, 1) or not _has_one_use(matmul):
        return False
    columns = match_columns(transposed.operands[0])
    g = narrow_source(matmul.operands[0])
    if columns is None or len(nova_type(g.type).shape) != 3:
        return False
    batch, outputs, _ = nova_type(g.type).shape
    if batch != columns.batch or not _is_worth(op, (g, columns.x), outputs, columns.depth):
        return False

    def build(g: Any, x: Any) -> Any:
        kernel, channels = columns.kernel, columns.channels
        by_place = F.permute(_positions(g, columns.counts), _channels_last(len(kernel)))
        images = _aligned(_with_channels_last(_padded(x, columns)))
        if _is_plain(kernel, columns.stride):
            rows = F.reshape(images, (-1, images.shape[-1]))
            total = F.matmul(F.permute(F.reshape(by_place, (-1, outputs)), (1, 0)), rows)
        else:
            total = F.conv_channels_last_weight_gradient(
                images, by_place, kernel=kernel, stride=columns.stride, dilation=columns.dilation
            )
        total = F.reshape(total, (outputs, *kernel, images.shape[-1]))
        if images.shape[-1] != channels:
            total = F.slice(total, (0,) * len(total.shape), (outputs, *kernel, channels))
        total = F.permute(total, _channels_first(len(kernel)))
        return _as(F.reshape(total, (outputs, columns.depth)), op)

    return _replace(op, build, g, columns.x)


def _rewrite_data_gradient(op: Any) -> bool:
    """`overlap_add(transposed weight @ g)`, and a slice of it."""
    overlap = match_overlap(op)
    if overlap is None:
        return False
    weight, g = narrow_source(overlap.weight), narrow_source(overlap.g)
    taps = prod(overlap.kernel) * overlap.outputs
    if not _is_worth(overlap.last, (weight, g), overlap.channels, taps):
        return False

    def build(w: Any, g: Any) -> Any:
        rank = len(overlap.kernel)
        taps = F.reshape(w, (overlap.outputs, overlap.channels, *overlap.kernel))
        taps = F.permute(taps, (1, *range(2, 2 + rank), 0))
        flipped = tuple(1 + i for i, k in enumerate(overlap.kernel) if k > 1)
        taps = F.flip(taps, flipped) if flipped else taps
        images = F.permute(_positions(g, overlap.counts), _channels_last(rank))
        return _as(
            F.permute(_overlapped(images, taps, overlap), _channels_first(rank)), overlap.last
        )

    return _replace(overlap.last, build, weight, g)


def _overlapped(g: Any, taps: Any, overlap: Overlap) -> Any:
    """The sum of overlapping windows, (N, ..., C); `taps` is the flipped weight (C, taps, O)."""
    axes = list(zip(overlap.starts, overlap.stops, overlap.stride, strict=True))
    counts = tuple(-(-(stop - start) // s) for start, stop, s in axes)
    batch, channels = g.shape[0], overlap.channels
    parts: dict[Sizes, Any] = {}
    for offset in product(*(range(s) for s in overlap.stride)):
        # From the first position on, so that all parts of an even size are equal ones.
        first = [divmod(start + o, s) for o, (start, _, s) in zip(offset, axes, strict=True)]
        ranges = [(low, low + n) for (low, _), n in zip(first, counts, strict=True)]
        part = _of_residue(g, taps, overlap, tuple(residue for _, residue in first), ranges)
        if part is not None:
            parts[offset] = part
    whole = _interleaved(parts, overlap.stride, counts)
    sizes = [stop - start for start, stop, _ in axes]
    if list(whole.shape[1:-1]) == sizes:
        return whole
    return F.slice(whole, (0,) * len(whole.shape), (batch, *sizes, channels))


def _of_residue(
    g: Any, taps: Any, overlap: Overlap, residue: Sizes, ranges: list[tuple[int, int]]
) -> Any | None:
    """The positions `stride * i + residue`, for i in `ranges`; None if no tap reaches them."""
    kernel = tuple(
        -(-(k - a) // s) if a < k else 0
        for k, a, s in zip(overlap.kernel, residue, overlap.stride, strict=True)
    )
    if 0 in kernel:
        return None
    # The last tap of a residue comes first: taps are flipped.
    first = [
        k - 1 - a - (n - 1) * s
        for k, a, n, s in zip(overlap.kernel, residue, kernel, overlap.stride, strict=True)
    ]
    last = [k - a for k, a in zip(overlap.kernel, residue, strict=True)]
    channels, outputs = overlap.channels, overlap.outputs
    if kernel != overlap.kernel:
        taps = F.slice(taps, (0, *first, 0), (channels, *last, outputs), (1, *overlap.stride, 1))
    low = [d * (n - 1) - a for d, n, (a, _) in zip(overlap.dilation, kernel, ranges, strict=True)]
    high = [b - c for (_, b), c in zip(ranges, overlap.counts, strict=True)]
    starts = [max(0, -p) for p in low]
    stops = [c + min(0, p) for c, p in zip(overlap.counts, high, strict=True)]
    if any(starts) or stops != list(overlap.counts):
        g = F.slice(g, (0, *starts, 0), (g.shape[0], *stops, outputs))
    low, high = [max(0, p) for p in low], [max(0, p) for p in high]
    if any(low) or any(high):
        g = F.pad(g, (0, *low, 0), (0, *high, 0), value=0.0)
    return _convolution(g, taps, (1,) * len(kernel), overlap.dilation)


def _interleaved(parts: dict[Sizes, Any], stride: Sizes, counts: Sizes) -> Any:
    """(N, ..., C) of all parts: position `stride * i + offset` is position i of its part.

    Each position selects its part: one op, which fuses with its reader. Parts that are not there
    are zeros.
    """
    rank = len(stride)
    batch, *_, channels = next(iter(parts.values())).shape
    divided = tuple(size for count in counts for size in (count, 1))
    whole = tuple(size for pair in zip(counts, stride, strict=True) for size in pair)

    def select(offset: Sizes) -> Any:
        axis = len(offset)
        if axis == rank:
            part = parts.get(offset)
            if part is None:
                return 0.0
            part = F.reshape(part, (batch, *divided, channels))
            return F.expand(part, shape=(batch, *whole, channels))
        value = select((*offset, 0))
        for k in range(1, stride[axis]):
            other = select((*offset, k))
            if isinstance(value, float) and isinstance(other, float):
                continue
            number = F.arange(start=0, stop=stride[axis], step=1, dtype=i32)
            number = F.reshape(number, tuple(stride[axis] if i == axis else 1 for i in places))
            value = F.where(F.eq(number, k), other, value)
        return value

    # For each axis of the divided shape (N, ..., C), the axis of positions whose offsets it counts.
    places = [None, *(i for axis in range(rank) for i in (None, axis)), None]
    sizes = tuple(count * s for count, s in zip(counts, stride, strict=True))
    return F.reshape(select(()), (batch, *sizes, channels))


# --- matrices -------------------------------------------------------------------------------------


def _convolution(x: Any, taps: Any, stride: Sizes, dilation: Sizes) -> Any:
    """The convolution of x (N, ..., C) with `taps` (outputs, ..., C): (N, ..., outputs)."""
    x, taps = _aligned(x), _aligned(taps)
    kernel, depth = tuple(taps.shape[1:-1]), x.shape[-1]
    if not _is_plain(kernel, stride):
        return F.conv_channels_last(x, taps, stride=stride, dilation=dilation)
    y = F.matmul(F.reshape(x, (-1, depth)), F.permute(F.reshape(taps, (-1, depth)), (1, 0)))
    return F.reshape(y, (*x.shape[:-1], taps.shape[0]))


def _is_plain(kernel: Sizes, stride: Sizes) -> bool:
    """Whether the windows are the positions themselves: a matmul of matrices."""
    return all(n == 1 for n in (*kernel, *stride))


def _aligned(x: Any) -> Any:
    """x (..., C) with rows of a multiple of 16 bytes."""
    extra = -x.shape[-1] % _ALIGNED
    if not extra:
        return x
    before = (0,) * len(x.shape)
    return F.pad(x, before, (*before[1:], extra), value=0.0)


def _padded(x: Any, columns: Columns) -> Any:
    """x (N, C, ...) with its padding, to multiples of the stride where that makes no new window.

    In the same op, channels are padded to rows of a multiple of 16 bytes.
    """
    high = list(columns.high)
    for axis, (low, k, s, d, count) in enumerate(
        zip(
            columns.low,
            columns.kernel,
            columns.stride,
            columns.dilation,
            columns.counts,
            strict=True,
        )
    ):
        size = low + x.shape[2 + axis] + high[axis]
        extra = -size % s
        if (size + extra - d * (k - 1) - 1) // s + 1 == count and (extra == 0 or any(columns.low)):
            high[axis] += extra
    if not any(columns.low) and not any(high):
        return x
    channels = -columns.channels % _ALIGNED
    return F.pad(x, (0, 0, *columns.low), (0, channels, *high), value=0.0)


def _positions(g: Any, counts: Sizes) -> Any:
    return F.reshape(g, (*g.shape[:2], *counts))


def _with_channels_last(x: Any) -> Any:
    return F.permute(x, _channels_last(len(x.shape) - 2))


def _channels_last(rank: int) -> Sizes:
    return (0, *range(2, 2 + rank), 1)


def _channels_first(rank: int) -> Sizes:
    return (0, 1 + rank, *range(1, 1 + rank))


# --- the IR ---------------------------------------------------------------------------------------


def _axes(permute: Any) -> Sizes:
    return tuple(op_type(OPS["permute"], permute)[1]["axes"])


def _has_one_use(op: Any) -> bool:
    return len(list(op.results[0].uses)) == 1


def _is_worth(op: Any, operands: tuple[Any, Any], outputs: int, depth: int) -> bool:
    """Whether the matmul runs on tensor cores, with results of the type of its operands."""
    types = [nova_type(v.type) for v in operands]
    dtype = types[0].dtype
    if dtype not in _NARROW or types[1].dtype != dtype:
        return False
    if outputs < _LEAST_ROWS or depth < _LEAST_DEPTH:
        return False
    return nova_type(op.results[0].type).dtype == dtype or _is_rounded(op.results[0], dtype)


_MOVES = ("reshape", "permute", "slice")


def _is_rounded(value: Any, dtype: DType) -> bool:
    """Whether all users round a value to `dtype`, perhaps after they move its elements."""
    users = [use.owner.operation for use in value.uses]
    return bool(users) and all(
        (user.name == full_name("cast") and nova_type(user.results[0].type).dtype == dtype)
        or (user.name in map(full_name, _MOVES) and _is_rounded(user.results[0], dtype))
        for user in users
    )


def _as(value: Any, op: Any) -> Any:
    dtype = nova_type(op.results[0].type).dtype
    return value if value.dtype == dtype else F.cast(value, dtype=dtype)


def _replace(op: Any, build: Any, *operands: Any) -> bool:
    with ir.InsertionPoint(op), op.location:
        value = emit_graph(build, operands)
    op.results[0].replace_all_uses_with(value)
    erase_unused(op)
    return True
