"""The cross entropy of a linear layer, in chunks of rows: the scores never exist as a whole.

A chunk has its scores, the loss and the gradient of the scores, which takes their place, and with
it the gradients of its rows and its part of the gradient of the weight. So the scores are computed
once, as in Liger Kernel (Hsu et al., 2024), and the backward pass only multiplies by the gradient
of the loss. A program without gradients has the losses of the chunks only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from nova.core.dtypes import DType, accumulator, bf16, f16, i32, i64, promote_all
from nova.core.sizes import Size, bounds, ceildiv
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph import Tensor
from nova.graph.custom_gradient import CustomVJP
from nova.ops import F
from nova.ops.functional.common import as_tensor

_MOST_CHUNKS = 16
"""Chunks of a symbolic number of rows: the program has code for each."""
_TILE = 128
"""Rows of a chunk are a multiple of those of a tile of a matmul."""
_MOST_ROUNDINGS = 8
"""Chunks whose parts of the gradient of a bf16 weight are added in bf16: the sum of more of them
is f32, with twice the memory."""


@user_facing
def linear_cross_entropy(
    x: Any,
    weight: Any,
    target: Any,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    chunk_bytes: int = 197 << 20,
) -> Tensor:
    """The cross entropy of the scores x @ weight.T, of which only a part is stored at a time.

    `x` is (..., features), `weight` (classes, features), `target` (...) has class indices. The rows
    of x are divided into chunks whose scores take at most `chunk_bytes` each. Gradients are
    computed chunk by chunk with the loss, so that neither the scores nor their gradient exist as a
    whole. The gradient of a bf16 weight is rounded once for each of up to 8 chunks, and that of
    more is f32 until the end. If the number of rows is symbolic, its upper bound decides the number
    of chunks, which is at most 16.
    """
    if reduction not in ("mean", "sum"):
        raise AttributeValueError(
            f"reduction {reduction!r} of linear_cross_entropy", hint="it is 'mean' or 'sum'"
        )
    x, weight, target = (as_tensor(F, operand) for operand in (x, weight, target))
    rows, features = prod(x.shape[:-1]), x.shape[-1]
    x, target = F.reshape(x, (rows, features)), F.reshape(target, (rows,))
    dtype = promote_all([x.dtype, weight.dtype])
    score_bytes = max(1, weight.shape[0] * dtype.bits // 8)
    parts = _chunks_of(rows, score_bytes, max(chunk_bytes, score_bytes))
    if target.dtype.is_integer:
        target = F.cast(target, dtype=i64)
    if len(parts) == 1 or target.dtype is not i64:
        return F.cross_entropy(
            F.linear(x, weight),
            target,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
    loss = _Loss(parts, ignore_index, label_smoothing, reduction == "mean", accumulator(dtype))
    return F.cast(loss.function()(x, weight, target), dtype=dtype)


def _chunks_of(rows: Size, score_bytes: int, chunk_bytes: int) -> list[slice]:
    """Rows in chunks whose scores have at most `chunk_bytes`."""
    chunks = max(1, ceildiv(bounds(rows)[1] * score_bytes, chunk_bytes))
    if isinstance(rows, int):
        size = max(1, ceildiv(rows, chunks))
        # As many whole tiles as fit: each chunk is a pass over the weight, which takes as long as
        # its busiest multiprocessor; the last one, of the rest, is shorter.
        whole = chunk_bytes // score_bytes // _TILE * _TILE
        size = whole if size <= whole < rows else size
        return [slice(start, min(start + size, rows)) for start in range(0, max(rows, 1), size)]
    count = min(chunks, _MOST_CHUNKS)
    ends = [*(rows // count * k for k in range(count)), rows]
    return [slice(start, stop) for start, stop in pairwise(ends)]


@dataclass(frozen=True)
class _Chunk:
    """Some rows: the scores, and what the loss and its gradient need of each row."""

    rows: Tensor
    scores: Tensor
    shift: Tensor
    log_sum: Tensor
    index: Tensor
    """The class of each row (rows, 1), -1 where it is ignored."""


@dataclass
class _Loss:
    """The loss of one call; `wide` is the type of sums."""

    parts: list[slice]
    ignore_index: int
    smoothing: float
    is_mean: bool
    wide: DType
    chunks: list[_Chunk] | None = None
    """Those of the call: the loss and its gradient have them in common."""

    def function(self) -> CustomVJP:
        function = CustomVJP(self._value)
        function.defvjp(self._with_gradients, self._backward)
        return function

    def _value(self, x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        if self.chunks is None:
            self.chunks = self._make_chunks(x, weight, target)
        total = sum(map(self._chunk_loss, self.chunks[1:]), start=self._chunk_loss(self.chunks[0]))
        # The factor first: the kernels of all chunks read it, where they compute gradients too.
        return self._scale(target) * total if self.is_mean else total

    def _scale(self, target: Tensor) -> Tensor:
        """The reciprocal of the number of targets that count."""
        return 1.0 / F.sum(F.cast(F.ne(target, self.ignore_index), dtype=self.wide))

    def _make_chunks(self, x: Tensor, weight: Tensor, target: Tensor) -> list[_Chunk]:
        """Each chunk waits until the memory of the one before is free."""
        chunks: list[_Chunk] = []
        for part in self.parts:
            source, classes = x, target
            if chunks:
                source, classes = (
                    F.barrier(tensor, chunks[-1].scores, region=0, released=True)
                    for tensor in (x, target)
                )
            rows, index = source[part], self._class_index(classes[part], weight.shape[0])
            scores = F.linear(rows, weight)
            wide = F.cast(scores, dtype=self.wide)
            top = F.detach(F.max(wide, axis=1, keepdims=True))
            # An infinite maximum would give inf - inf; unshifted, exp and log have the right limits
            shift = F.where(F.isfinite(top), top, 0.0)
            log_sum = F.log(F.sum(F.exp(wide - shift), axis=1, keepdims=True))
            chunks.append(_Chunk(rows, scores, shift, log_sum, index))
        return chunks

    def _class_index(self, target: Tensor, classes: int) -> Tensor:
        """The class of each target as a column, from 0; -1 where it is ignored."""
        index = F.where(F.lt(target, 0), target + classes, target)
        index = F.clamp(index, min=0, max=classes - 1)
        index = F.where(F.ne(target, self.ignore_index), index, -1)
        return F.cast(F.unsqueeze(index, 1), dtype=i32)

    def _chunk_loss(self, chunk: _Chunk) -> Tensor:
        """The sum of the losses of the rows of a chunk.

        The scores of targets are read first, before the gradient overwrites all: the barrier
        keeps them from being read by the sum.
        """
        index = F.cast(F.maximum(chunk.index, 0), dtype=i64)
        score = F.gather(chunk.scores, index, axis=1)
        score = F.cast(F.barrier(score, score, region=0), dtype=self.wide)
        term = -score + chunk.shift
        if self.smoothing:
            wide = F.cast(chunk.scores, dtype=self.wide)
            mean = F.mean(wide - chunk.shift, axis=1, keepdims=True)
            term = term * (1.0 - self.smoothing) - mean * self.smoothing
        return F.sum(F.where(F.ge(chunk.index, 0), term + chunk.log_sum, 0.0))

    def _with_gradients(self, x: Tensor, weight: Tensor, target: Tensor) -> tuple[Tensor, Any]:
        """The loss, and as residuals its gradients and a factor that they still need."""
        loss = self._value(x, weight, target)
        assert self.chunks is not None
        factor = self._scale(target) if self.is_mean else F.full((), 1.0, dtype=self.wide)
        one = F.full((), 1.0, dtype=self.wide)
        # The range of f16 is too small for gradients of a mean: those of a sum are multiplied last.
        inside, after = (one, factor) if x.dtype is f16 else (factor, one)
        narrow = weight.dtype is bf16 and len(self.parts) <= _MOST_ROUNDINGS
        row_gradients = []
        total: Tensor | None = None
        for chunk in self.chunks:
            gradient = self._score_gradient(chunk, inside)
            row_gradients.append(F.matmul(gradient, weight))
            piece = F.cast(F.matmul(F.swapaxes(gradient, 0, 1), chunk.rows), dtype=self.wide)
            if total is not None:
                # A barrier: fused with later additions, all pieces would be stored until then.
                total = F.barrier(total, total, region=0)
                piece = F.cast(total, dtype=self.wide) + piece
            total = F.cast(piece, dtype=weight.dtype) if narrow else piece
        return loss, (F.concat(*row_gradients, axis=0), total, after)

    def _score_gradient(self, chunk: _Chunk, factor: Tensor) -> Tensor:
        """softmax(scores) minus the target distribution, times a factor: one op of the scores.

        The factor of the target distribution is that of its two values. The terms differ from those
        of the loss, whose common ops would be stored for both.
        """
        wide = F.cast(chunk.scores, dtype=self.wide)
        other = F.ne(F.arange(wide.shape[1], dtype=i32), chunk.index)
        each = F.where(F.lt(chunk.index, 0), 0.0, factor)
        rest: Tensor | float = 0.0
        whole = each
        if self.smoothing:
            rest = each * (self.smoothing / wide.shape[1])
            whole = each * (1.0 - self.smoothing) + rest
        expected = F.where(other, rest, whole)
        probabilities = F.exp(-(chunk.shift - wide) - chunk.log_sum)
        return F.cast(probabilities * each - expected, dtype=chunk.scores.dtype)

    def _backward(self, residuals: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        row_gradients, total, factor = residuals
        g = g * factor

        def scaled(gradient: Tensor, dtype: DType) -> Tensor:
            return F.cast(F.cast(gradient, dtype=self.wide) * g, dtype=dtype)

        rows = scaled(row_gradients, row_gradients.dtype)
        return rows, scaled(total, row_gradients.dtype), None
