"""Products and norms: einsum, tensordot, norm, trace, diag, kron, cross, cdist, ..."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from nova.core.dtypes import accumulator
from nova.core.sizes import known_equal
from nova.errors import ArgumentCountError, AttributeValueError, AxisError, ShapeError
from nova.ops.functional.common import (
    as_common,
    as_floats,
    as_inexact,
    as_tensor,
    function,
    number,
    require_rank,
    require_tensors,
    to_dtype,
)
from nova.ops.rules import (
    broadcast_shapes,
    int_tuple,
    int_value,
    is_unit,
    resolve_axes,
    resolve_axis,
)
from nova.ops.table import Op, register

# --- einsum ---------------------------------------------------------------------------------------


def _einsum(F: Any, equation: str, *operands: Any) -> Any:
    """Contract operands from left to right, each pair by one matmul."""
    if not isinstance(equation, str):
        raise AttributeValueError(f"einsum: the equation is a str, not {equation!r}")
    if not operands:
        raise ArgumentCountError(
            f"einsum: {equation!r} without an operand",
            hint="give one for each part before '->': nova.einsum('ij,jk->ik', x, y)",
        )
    tensors = as_common(F, *require_tensors("einsum", operands))
    inputs, output = _parse(equation, [len(t.shape) for t in tensors])
    sizes: dict[str, int] = {}
    for letters, t in zip(inputs, tensors, strict=True):
        for letter, n in zip(letters, t.shape, strict=True):
            if is_unit(sizes.setdefault(letter, n)):
                sizes[letter] = n
            elif not is_unit(n) and not known_equal(n, sizes[letter]):
                raise ShapeError(f"einsum: {letter!r} is {sizes[letter]} and {n} in {equation!r}")
    terms = [_without_repeats(F, t, s, sizes) for t, s in zip(tensors, inputs, strict=True)]
    result, letters = terms[0]
    for i, (t, own) in enumerate(terms[1:], 1):
        later = {*output, *(c for _, s in terms[i + 1 :] for c in s)}
        result, letters = _contract(F, result, letters, t, own, later, sizes)
    result, letters = _sum_out(F, result, letters, {*output})
    return F.permute(result, [letters.index(c) for c in output]) if len(output) > 1 else result


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes capital letters."""
    text = equation.replace(" ", "")
    source, arrow, target = text.partition("->")
    parts = source.split(",")
    if len(parts) != len(ranks):
        raise AttributeValueError(
            f"einsum: {equation!r} has {len(parts)} operands, not {len(ranks)}"
        )
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    widths = [r - len(p.replace("...", "")) for p, r in zip(parts, ranks, strict=True)]
    widest = max([w for p, w in zip(parts, widths, strict=True) if "..." in p], default=0)
    dots = "".join(spare[: max(widest, 0)])
    inputs = []
    for part, width, rank in zip(parts, widths, ranks, strict=True):
        if width < 0 or (width and "..." not in part):
            raise ShapeError(f"einsum: {part!r} for an operand of rank {rank}")
        inputs.append(part.replace("...", dots[len(dots) - width :] if width else ""))
    joined = "".join(inputs)
    if arrow:
        output = target.replace("...", dots)
    else:
        output = dots + "".join(
            sorted(c for c in {*joined} if joined.count(c) == 1 and c not in dots)
        )
    bad = [c for c in joined + output if not (c.isascii() and c.isalpha())]
    if bad or len({*output}) != len(output) or not {*output} <= {*joined}:
        raise AttributeValueError(
            f"einsum: {equation!r} is not an equation",
            hint="letters of the result occur once there and in an operand: 'ij,jk->ik'",
        )
    return inputs, output


def _without_repeats(F: Any, x: Any, letters: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """The operand with a letter that repeats on its diagonal, and broadcast axes of size 1 gone."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            order = [i for i in range(len(letters)) if i not in (first, second)]
            x = F.diagonal(F.permute(x, [*order, first, second]))
            letters = "".join(letters[i] for i in order) + letter
    dropped = [i for i, c in enumerate(letters) if is_unit(x.shape[i]) and not is_unit(sizes[c])]
    if dropped:
        x = F.squeeze(x, axis=tuple(dropped))
        letters = "".join(c for i, c in enumerate(letters) if i not in dropped)
    return x, letters


def _sum_out(F: Any, x: Any, letters: str, needed: set[str]) -> tuple[Any, str]:
    axes = tuple(i for i, c in enumerate(letters) if c not in needed)
    if not axes:
        return x, letters
    return F.cast(F.sum(x, axis=axes), dtype=x.dtype), "".join(c for c in letters if c in needed)


def _contract(
    F: Any, x: Any, a: str, y: Any, b: str, later: set[str], sizes: dict[str, int]
) -> tuple[Any, str]:
    """One product of two operands: letters in `later` stay, the others are summed."""
    x, a = _sum_out(F, x, a, later | {*b})
    y, b = _sum_out(F, y, b, later | {*a})
    batch = [c for c in a if c in b and c in later]
    summed = [c for c in a if c in b and c not in later]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    if not summed:
        aligned = [*batch, *rows, *columns]
        result = _aligned(F, x, a, aligned) * _aligned(F, y, b, aligned)
        return result, "".join(aligned)
    left = F.permute(x, [a.index(c) for c in (*batch, *rows, *summed)])
    right = F.permute(y, [b.index(c) for c in (*batch, *summed, *columns)])
    lead = [sizes[c] for c in batch]
    inner = prod(sizes[c] for c in summed)
    left = F.reshape(left, (*lead, prod(sizes[c] for c in rows), inner))
    right = F.reshape(right, (*lead, inner, prod(sizes[c] for c in columns)))
    letters = [*batch, *rows, *columns]
    return F.reshape(F.matmul(left, right), [sizes[c] for c in letters]), "".join(letters)


def _aligned(F: Any, x: Any, letters: str, order: list[str]) -> Any:
    present = [c for c in order if c in letters]
    x = F.permute(x, [letters.index(c) for c in present])
    sizes = dict(zip(present, x.shape, strict=True))
    return F.reshape(x, [sizes.get(c, 1) for c in order])


# --- products -------------------------------------------------------------------------------------


def _tensordot(F: Any, x: Any, y: Any, axes: Any = 2) -> Any:
    x, y = as_common(F, x, y)
    if isinstance(axes, tuple | list):
        if len(axes) != 2:
            raise AttributeValueError(f"tensordot: axes {axes} are not a pair")
        first, second = (int_tuple(a, "tensordot: axes") for a in axes)
    else:
        count = int_value(axes, "tensordot: axes")
        if not 0 <= count <= min(len(x.shape), len(y.shape)):
            raise ShapeError(f"tensordot: {count} axes of {x.shape} and {y.shape}")
        first = tuple(range(len(x.shape) - count, len(x.shape)))
        second = tuple(range(count))
    left = [resolve_axis(a, len(x.shape)) for a in first]
    right = [resolve_axis(a, len(y.shape)) for a in second]
    if [x.shape[a] for a in left] != [y.shape[a] for a in right]:
        raise ShapeError(f"tensordot: axes {left} of {x.shape} and {right} of {y.shape} differ")
    rows = [i for i in range(len(x.shape)) if i not in left]
    columns = [i for i in range(len(y.shape)) if i not in right]
    inner = prod(x.shape[a] for a in left)
    a = F.reshape(F.permute(x, [*rows, *left]), (prod(x.shape[i] for i in rows), inner))
    b = F.reshape(F.permute(y, [*right, *columns]), (inner, prod(y.shape[i] for i in columns)))
    return F.reshape(F.matmul(a, b), [*(x.shape[i] for i in rows), *(y.shape[i] for i in columns)])


def _matrices(name: str, rank: int) -> Any:
    def build(F: Any, x: Any, y: Any) -> Any:
        x, y = as_common(F, x, y)
        require_rank(name, x, rank, rank)
        require_rank(name, y, rank if name != "mv" else 1, rank if name != "mv" else 1)
        if name == "bmm" and x.shape[0] != y.shape[0]:
            raise ShapeError(f"bmm: batches of {x.shape[0]} and {y.shape[0]}")
        return F.matmul(x, y)

    return build


def _addmm(F: Any, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    require_rank("addmm", as_tensor(F, a), 2, 2)
    product = F.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    return F.add(as_tensor(F, x) if beta == 1 else F.mul(x, beta), product)


def _inner(F: Any, x: Any, y: Any) -> Any:
    x, y = as_common(F, x, y)
    if not x.shape or not y.shape:
        return x * y
    return _tensordot(F, x, y, axes=((-1,), (-1,)))


def _vecdot(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
    x, y = as_common(F, x, y)
    return F.sum(F.conj(x) * y, axis=axis)


def _kron(F: Any, x: Any, y: Any) -> Any:
    x, y = as_common(F, x, y)
    rank = max(len(x.shape), len(y.shape))
    a = (1,) * (rank - len(x.shape)) + tuple(x.shape)
    b = (1,) * (rank - len(y.shape)) + tuple(y.shape)
    left = F.reshape(x, [n for size in a for n in (size, 1)])
    right = F.reshape(y, [n for size in b for n in (1, size)])
    return F.reshape(left * right, [m * n for m, n in zip(a, b, strict=True)])


def _cross(F: Any, x: Any, y: Any, axis: int = -1) -> Any:
    x, y = as_common(F, x, y)
    shape = broadcast_shapes(x.shape, y.shape)
    axis = resolve_axis(axis, len(shape))
    if shape[axis] != 3 or len(x.shape) != len(y.shape):
        raise ShapeError(f"cross: axis {axis} of {x.shape} and {y.shape} is not of size 3")
    x, y = F.expand(x, shape), F.expand(y, shape)
    one, two = ([F.roll(t, -k, axis) for t in (x, y)] for k in (1, 2))
    return one[0] * two[1] - two[0] * one[1]


# --- diagonals ------------------------------------------------------------------------------------


def _trace(F: Any, x: Any) -> Any:
    x = as_tensor(F, x)
    require_rank("trace", x, 2, 2)
    return F.sum(F.diagonal(x))


def _diag(F: Any, x: Any, diagonal: int = 0) -> Any:
    x = as_tensor(F, x)
    require_rank("diag", x, 1, 2)
    return F.diagonal(x, diagonal) if len(x.shape) == 2 else _diag_embed(F, x, diagonal)


def _diag_embed(F: Any, x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    x = as_tensor(F, x)
    require_rank("diag_embed", x, 1)
    shift = int_value(offset, "diag_embed: offset")
    *lead, n = x.shape
    size = n + abs(shift)
    # Element i is at i * (size + 1) of the flattened matrix, plus the start of its diagonal.
    start = shift if shift >= 0 else -shift * size
    flat = F.unslice(
        x, (*lead, size * size), (*(0,) * len(lead), start), (*(1,) * len(lead), size + 1)
    )
    matrices = F.reshape(flat, (*lead, size, size))
    rank = len(lead) + 2
    rows, columns = resolve_axis(axis1, rank), resolve_axis(axis2, rank)
    if rows == columns:
        raise AxisError(f"diag_embed: axes {axis1} and {axis2} are the same")
    if (rows, columns) == (rank - 2, rank - 1):
        return matrices
    return F.movedim(matrices, (-2, -1), (rows, columns))


# --- norms and distances --------------------------------------------------------------------------


def vector_norm(F: Any, x: Any, p: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """The p-norm over the axes; its gradient at 0 is 0."""
    x = F.abs(x) if F.is_complex(x) else x
    (x,) = as_floats(F, x)
    if p == "fro":
        p = 2
    order = number("norm", "p", p)
    wide = to_dtype(F, x, accumulator(x.dtype))
    return to_dtype(F, _norm_of(F, wide, order, axis, keepdims), x.dtype)


def _norm_of(F: Any, x: Any, order: float, axis: Any, keepdims: bool) -> Any:
    if order == inf:
        return F.max(F.abs(x), axis=axis, keepdims=keepdims)
    if order == -inf:
        return F.min(F.abs(x), axis=axis, keepdims=keepdims)
    if order == 0:
        return F.sum(F.cast(F.ne(x, 0), dtype=x.dtype), axis=axis, keepdims=keepdims)
    if order == 1:
        return F.sum(F.abs(x), axis=axis, keepdims=keepdims)
    if order == 2:
        total = F.sum(F.square(x), axis=axis, keepdims=keepdims)
        return _root(F, total, 0.5)
    powers = F.pow(F.abs(x), order)
    if order < 0:  # the power of 0 is infinite: the norm is 0, and so is its gradient
        zero = F.eq(x, 0.0)
        powers = F.where(zero, inf, F.pow(F.where(zero, 1.0, F.abs(x)), order))
    total = F.sum(powers, axis=axis, keepdims=keepdims)
    return _root(F, total, 1.0 / order)


def _root(F: Any, total: Any, exponent: float) -> Any:
    """total to a power, with gradient 0 at 0, where the derivative is infinite."""
    zero = F.eq(total, 0.0)
    safe = F.where(zero, 1.0, total)
    power = F.sqrt(safe) if exponent == 0.5 else F.pow(safe, exponent)
    return F.where(zero, 0.0 if exponent > 0 else inf, power)


def _normalize(F: Any, x: Any, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Any:
    (x,) = as_inexact(F, x)
    axes = resolve_axes(axis, len(x.shape))
    wide = to_dtype(F, x, accumulator(x.dtype))
    length = vector_norm(F, wide, p, axes, keepdims=True)
    return to_dtype(F, wide / F.clamp(length, min=number("normalize", "eps", eps, 0)), x.dtype)


def _cosine_similarity(F: Any, x: Any, y: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    x, y = as_floats(F, x, y)
    shape, narrow = broadcast_shapes(x.shape, y.shape), x.dtype
    axis = resolve_axis(axis, len(shape))
    x, y = (to_dtype(F, F.expand(t, shape), accumulator(narrow)) for t in (x, y))
    low = number("cosine_similarity", "eps", eps, 0)
    lengths = [F.clamp(vector_norm(F, t, 2, axis, keepdims=True), min=low) for t in (x, y)]
    return to_dtype(F, F.sum((x / lengths[0]) * (y / lengths[1]), axis=axis), narrow)


def _pairwise_distance(
    F: Any, x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Any:
    x, y = as_inexact(F, x, y)
    return vector_norm(F, x - y + number("pairwise_distance", "eps", eps), p, -1, keepdims)


def _cdist(F: Any, x: Any, y: Any, p: float = 2.0) -> Any:
    x, y = as_floats(F, x, y)
    require_rank("cdist", x, 2)
    require_rank("cdist", y, 2)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"cdist: vectors of {x.shape[-1]} and of {y.shape[-1]} elements")
    return vector_norm(F, F.unsqueeze(x, -2) - F.unsqueeze(y, -3), p, -1)


PAIR = ("x", "y")
ROWS: tuple[Op, ...] = (
    function(
        "einsum",
        "A sum of products by Einstein's notation: einsum('bij,bjk->bik', x, y), with ellipses, "
        "repeated letters and implicit results; operands are contracted from left to right.",
        _einsum,
        operands=("*operands",),
    ),
    function(
        "tensordot",
        "The sum of products over axes of both (an int: the last, the first).",
        _tensordot,
        operands=PAIR,
    ),
    function("mm", "The product of two matrices.", _matrices("mm", 2), method=True, operands=PAIR),
    function(
        "bmm",
        "The products of two batches of matrices.",
        _matrices("bmm", 3),
        method=True,
        operands=PAIR,
    ),
    function(
        "mv",
        "The product of a matrix and a vector.",
        _matrices("mv", 2),
        method=True,
        operands=PAIR,
    ),
    function("addmm", "beta * x + alpha * (a @ b).", _addmm, operands=("x", "a", "b")),
    function("inner", "The sum of products over the last axes.", _inner, operands=PAIR),
    function(
        "vecdot",
        "The sum of products along an axis, which broadcasts elsewhere.",
        _vecdot,
        operands=PAIR,
    ),
    function("kron", "The Kronecker product.", _kron, operands=PAIR),
    function(
        "cross", "The vector product along an axis of size 3.", _cross, method=True, operands=PAIR
    ),
    # `nova.trace` records timelines.
    Op(
        "matrix_trace",
        "The sum of the main diagonal of a matrix.",
        build=_trace,
        methods=("trace",),
    ),
    function(
        "diag",
        "The diagonal of a matrix, or a matrix with a vector on its diagonal.",
        _diag,
        method=True,
    ),
    function(
        "diag_embed",
        "Matrices with the last axis on their diagonal, as axes axis1 and axis2 of the result.",
        _diag_embed,
        method=True,
    ),
    function(
        "norm",
        "The p-norm over the axes (2, inf, -inf, 0 or any number); its gradient at 0 is 0.",
        vector_norm,
        method=True,
    ),
    function(
        "normalize", "x divided by its p-norm along an axis, which is at least eps.", _normalize
    ),
    function(
        "cosine_similarity",
        "The cosine of the angle of x and y along an axis.",
        _cosine_similarity,
        operands=PAIR,
    ),
    function(
        "pairwise_distance",
        "The p-norm of x - y + eps along the last axis.",
        _pairwise_distance,
        operands=PAIR,
    ),
    function(
        "cdist", "The p-norm distances of the rows of x from those of y.", _cdist, operands=PAIR
    ),
)


def register_rows() -> None:
    register(*ROWS)
