"""`associative_scan`: running combinations by a tree, with the signature of jax.lax.

log2(n) levels combine neighbors (Blelloch 1990): the pairs are scanned, and the elements between
them follow from the scan by one more combination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.core.sizes import is_static
from nova.core.user_facing import user_facing
from nova.errors import ControlFlowError, ShapeError, SymbolicSizeError
from nova.graph.tensor import Tensor
from nova.graph.transforms import as_tensor
from nova.ops import F
from nova.ops.rules import resolve_axis


@user_facing
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """The running combinations of `elems` along an axis: x[0], fn(x[0], x[1]), and so on.

    `fn(a, b)` combines slices of any length along the axis, element by element, and is associative.
    `elems` is a tensor or a pytree of tensors; with `reverse` it starts from the end.
    """
    leaves, structure = flatten(elems)
    tensors = [as_tensor(leaf) for leaf in leaves]
    sizes = {t.shape[resolve_axis(axis, len(t.shape))] for t in tensors}
    if len(sizes) != 1:
        raise ShapeError(
            f"associative_scan: tensors of {[t.shape for t in tensors]} along axis {axis}",
            where=str(user_location()),
            hint="all have the same size there",
        )
    if not all(is_static(n) for n in sizes):
        raise SymbolicSizeError(
            "associative_scan along an axis of symbolic size",
            where=str(user_location()),
            hint="nova.scan takes symbolic sizes",
        )

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        first, second = (unflatten(structure, list(part)) for part in (a, b))
        results, own = flatten(fn(first, second))
        values = [as_tensor(result) for result in results]
        if own != structure or [v.type for v in values] != [x.type for x in a]:
            raise ControlFlowError(
                "associative_scan: fn does not return what it takes",
                where=str(user_location()),
                hint="its result has the structure, the shapes and the dtypes of its arguments",
            )
        return values

    axes = [resolve_axis(axis, len(t.shape)) for t in tensors]
    if reverse:
        tensors = [F.flip(t, (a,)) for t, a in zip(tensors, axes, strict=True)]
    scanned = _scan(combine, tensors, axes)
    if reverse:
        scanned = [F.flip(t, (a,)) for t, a in zip(scanned, axes, strict=True)]
    return unflatten(structure, scanned)


def _scan(combine: Any, tensors: list[Tensor], axes: list[int]) -> list[Tensor]:
    n = tensors[0].shape[axes[0]]
    if n < 2:
        return tensors

    def strided(parts: list[Tensor], start: int, stop: int, step: int) -> list[Tensor]:
        return [
            F.getitem(t, (*(slice(None),) * a, slice(start, stop, step)))
            for t, a in zip(parts, axes, strict=True)
        ]

    pairs = combine(strided(tensors, 0, n - 1, 2), strided(tensors, 1, n, 2))
    odd = _scan(combine, pairs, axes)
    first = strided(tensors, 0, 1, 1)
    if n > 2:
        later = strided(tensors, 2, n, 2)
        even = combine(strided(odd, 0, (n - 1) // 2, 1), later)
        even = [F.concat([a, b], axis=x) for a, b, x in zip(first, even, axes, strict=True)]
    else:
        even = first
    return [_interleaved(a, b, x, n) for a, b, x in zip(even, odd, axes, strict=True)]


def _interleaved(even: Tensor, odd: Tensor, axis: int, n: int) -> Tensor:
    """even[0], odd[0], even[1], ...: n elements."""
    missing = even.shape[axis] - odd.shape[axis]
    if missing:
        high = tuple(missing if i == axis else 0 for i in range(len(odd.shape)))
        odd = F.pad(odd, (0,) * len(odd.shape), high)
    shape = (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :])
    joined: Tensor = F.reshape(F.stack([even, odd], axis=axis + 1), shape)
    return F.narrow(joined, axis, 0, n) if missing else joined
