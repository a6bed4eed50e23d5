"""Gradient accumulation: the sum of all gradients that reach one value.

In: the gradient accumulated so far and the next contribution; out: their sum. Called by
`autodiff.py`. Contributions of slices are padded with zeros to the whole value. Those of the same
slice are added before padding. Adjacent slices, such as those of `split`, are joined instead:
this needs no addition and no zeros. A gradient of rows that were selected, such as that of an
embedding, is added to the rows of the other one: this needs no zeros either.
"""

from __future__ import annotations

from nova.core.sizes import known_equal, same_shape
from nova.graph.tensor import Tensor
from nova.ops import F

_MOST_PARTS = 4
"""Operands of `join`."""


def add_gradients(before: Tensor, piece: Tensor) -> Tensor:
    """`before + piece`, without zeros if one is of slices or selected rows of the value."""
    for scattered, other in ((piece, before), (before, piece)):
        if _adds_to_zeros(scattered):
            assert scattered.op is not None
            add = F.index_add if scattered.op.name == "index_add" else F.scatter_add
            return add(other, *scattered.inputs[1:], **scattered.attrs)
    if not (_is_zero_padded(before) and _is_zero_padded(piece)):
        return F.add(before, piece)
    if all(same_shape(before.attrs[end], piece.attrs[end]) for end in ("low", "high")):
        return F.pad(
            F.add(before.inputs[0], piece.inputs[0]), piece.attrs["low"], piece.attrs["high"]
        )
    for first, second in ((before, piece), (piece, before)):
        joined = _join(first, second)
        if joined is not None:
            return joined
    return F.add(before, piece)


def _join(first: Tensor, second: Tensor) -> Tensor | None:
    """Both joined, if `second` begins where `first` ends on one axis and all other axes agree."""
    lows, highs = ([t.attrs[end] for t in (first, second)] for end in ("low", "high"))
    axes = [
        i
        for i in range(first.ndim)
        if not same_shape((lows[0][i], highs[0][i]), (lows[1][i], highs[1][i]))
    ]
    if len(axes) != 1:
        return None
    axis = axes[0]
    if not known_equal(lows[0][axis] + first.inputs[0].shape[axis], lows[1][axis]):
        return None
    parts = [part for t in (first, second) for part in _parts(t.inputs[0], axis)]
    if len(parts) > _MOST_PARTS:
        parts = [t.inputs[0] for t in (first, second)]
    joined = F.join(*parts, axis=axis)
    low = lows[0]
    high = (*highs[0][:axis], highs[1][axis], *highs[0][axis + 1 :])
    return F.pad(joined, low, high) if not all(known_equal(n, 0) for n in (*low, *high)) else joined


def _is_zero_padded(value: Tensor) -> bool:
    return value.op is not None and value.op.name == "pad" and value.attrs["value"] == 0


def _adds_to_zeros(value: Tensor) -> bool:
    """Whether a value is a sum at computed positions of zeros."""
    if value.op is None or value.op.name not in ("index_add", "scatter_add"):
        return False
    start = value.inputs[0]
    return start.op is not None and start.op.name == "full" and start.attrs["value"] == 0


def _parts(value: Tensor, axis: int) -> tuple[Tensor, ...]:
    """The parts that a value was joined from along an axis."""
    if value.op is not None and value.op.name == "join" and value.attrs["axis"] == axis:
        return tuple(value.inputs)
    return (value,)
