"""`vjp`, `jvp`, `linearize`, `jacrev`, `jacfwd` and `hessian`, with the signatures of jax.

Reverse mode is the only mode of the graph. A Jacobian-vector product is the transpose of a
vector-Jacobian product: `u -> vjp(u)` is linear, and its gradient in the direction v is the jvp
(Townsend, "A new trick for calculating Jacobian vector products", 2017). What depends on u alone
cancels, so a program has no trace of it. Jacobians batch one product over the unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

from nova.core.location import user_location
from nova.core.pytree import TreeDef, flatten, unflatten
from nova.core.sizes import known_equal
from nova.core.user_facing import user_facing
from nova.errors import ArgumentCountError, GradientError, ShapeError
from nova.graph.autodiff import gradients
from nova.graph.batching import batched_graph
from nova.graph.build import make_node, require_float
from nova.graph.tensor import Tensor
from nova.graph.transforms import as_tensor, rejit
from nova.ops import OPS, F


@user_facing
def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """`(f(*primals), pullback)`: `pullback(cotangent)` gives a gradient for each primal."""
    traced = _Traced(function, primals)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        pulled = traced.pulled(traced.like_result(cotangent))
        return traced.arguments(_packed(pulled, traced.operands))

    return traced.result, pullback


@user_facing
def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """`(f(*primals), the derivative of f in the direction of the tangents)`."""
    result, push = linearize(function, *primals)
    return result, push(*tangents)


@user_facing
def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`(f(*primals), push)`: `push(*tangents)` is the derivative in their direction."""
    traced = _Traced(function, primals)

    def push(*tangents: Any) -> Any:
        pushed = traced.pushed(traced.like_arguments(tangents))
        return unflatten(traced.structure, _packed(pushed, traced.results))

    return traced.result, push


@user_facing
def jacrev(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The Jacobian by reverse mode: of each result with respect to each selected argument.

    Its shape is that of the result, then that of the argument. Better for few results. Of a complex
    result f is taken as holomorphic, and this is f'; of a real one it is d/d(re) + i d/d(im).
    """
    return _jacobian(function, argnums, jacrev, _by_rows)


@user_facing
def jacfwd(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The Jacobian by forward mode; see `jacrev`. Better for few arguments.

    With respect to a complex argument f is taken as holomorphic, and this is f'.
    """
    return _jacobian(function, argnums, jacfwd, _by_columns)


@user_facing
def hessian(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The matrix of second derivatives: `jacfwd(jacrev(f))`."""
    return jacfwd(jacrev(function, argnums), argnums)


# --- one trace ------------------------------------------------------------------------------------


class _Traced:
    """A function applied to its primals: leaves of the arguments and of the results.

    `sources` and `outputs` are their real tensors: a complex leaf is its two parts.
    """

    def __init__(self, function: Callable[..., Any], primals: Sequence[Any]):
        nested = [flatten(primal) for primal in primals]
        self.argument_structures = [structure for _, structure in nested]
        # New tensors: an argument that occurs twice has two gradients.
        groups = [[_alias(as_tensor(leaf)) for leaf in leaves] for leaves, _ in nested]
        self.operands = [operand for group in groups for operand in group]
        for operand in self.operands:
            require_float(operand, "a tensor differentiated against")
        self.sources = _parts(self.operands)
        self.counts = [len(group) for group in groups]
        args = [unflatten(s, g) for (_, s), g in zip(nested, groups, strict=True)]
        self.result = function(*args)
        results, self.structure = flatten(self.result)
        self.results = [as_tensor(result) for result in results]
        for output in self.results:
            require_float(output, "the differentiated output")
        self.outputs = _parts(self.results)

    def pulled(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """The gradient of each source: the sum over the outputs."""
        totals: list[Tensor] | None = None
        for output, cotangent in zip(self.outputs, cotangents, strict=True):
            pieces = gradients(output, self.sources, cotangent)
            totals = pieces if totals is None else list(map(F.add, totals, pieces))
        if totals is None:
            raise GradientError("the function returns no tensor", where=str(user_location()))
        return totals

    def pushed(self, tangents: Sequence[Tensor]) -> list[Tensor]:
        """The derivative of each output: the transpose of `pulled`."""
        probes = [F.full(shape=o.shape, value=0, dtype=o.dtype) for o in self.outputs]
        pulled = self.pulled(probes)
        totals: list[Tensor] | None = None
        for gradient, tangent in zip(pulled, tangents, strict=True):
            pieces = gradients(gradient, probes, tangent)
            totals = pieces if totals is None else list(map(F.add, totals, pieces))
        assert totals is not None
        return totals

    def arguments(self, leaves: Sequence[Tensor]) -> tuple[Any, ...]:
        """Leaves in the structure of the arguments."""
        rest = iter(leaves)
        return tuple(
            unflatten(structure, [next(rest) for _ in range(count)])
            for structure, count in zip(self.argument_structures, self.counts, strict=True)
        )

    def like_result(self, cotangent: Any) -> list[Tensor]:
        leaves, structure = flatten(cotangent)
        values = _checked(leaves, structure, self.results, self.structure, "cotangent", "result")
        return _parts(values)

    def like_arguments(self, tangents: Sequence[Any]) -> list[Tensor]:
        if len(tangents) != len(self.argument_structures):
            raise ArgumentCountError(
                f"{len(tangents)} tangents for {len(self.argument_structures)} arguments",
                where=str(user_location()),
            )
        leaves, structure = flatten(tuple(tangents))
        own = TreeDef("tuple", tuple(self.argument_structures))
        return _parts(_checked(leaves, structure, self.operands, own, "tangent", "argument"))


def _alias(x: Tensor) -> Tensor:
    """A node of its own with the value of x; for a complex x, a pair of such nodes."""
    if x.dtype.is_complex:
        return F.complex(_alias(F.real(x)), _alias(F.imag(x)))
    return make_node(OPS["reshape"], (x,), {"shape": x.shape}, x.type)


def _parts(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Real tensors: each real leaf, and both parts of each complex one."""
    return [
        part
        for leaf in leaves
        for part in ((F.real(leaf), F.imag(leaf)) if leaf.dtype.is_complex else (leaf,))
    ]


def _packed(parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """The inverse of `_parts`, for leaves of the types of `like`."""
    real = iter(parts)
    return [
        F.complex(next(real), next(real)) if leaf.dtype.is_complex else next(real) for leaf in like
    ]


def _checked(
    leaves: Sequence[Any],
    structure: TreeDef,
    tensors: Sequence[Tensor],
    expected: TreeDef,
    name: str,
    of: str,
) -> list[Tensor]:
    if structure != expected:
        raise ShapeError(
            f"the {name} is nested as {structure}, the {of} as {expected}",
            where=str(user_location()),
        )
    values = [as_tensor(leaf) for leaf in leaves]
    for value, like in zip(values, tensors, strict=True):
        if value.shape != like.shape:
            raise ShapeError(
                f"a {name} of shape {value.shape} for a {of} of shape {like.shape}",
                where=str(user_location()),
            )
    return [F.cast(v, dtype=like.dtype) for v, like in zip(values, tensors, strict=True)]


# --- Jacobians ------------------------------------------------------------------------------------


def _jacobian(
    function: Callable[..., Any],
    argnums: int | tuple[int, ...],
    transform: Callable[..., Any],
    rows_of: Callable[[_Traced], list[list[Tensor]]],
) -> Callable[..., Any]:
    if (jitted := rejit(function, lambda f: transform(f, argnums))) is not None:
        return jitted
    positions = argnums if isinstance(argnums, tuple) else (argnums,)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if any(not -len(args) <= i < len(args) for i in positions):
            raise ArgumentCountError(
                f"argnums {argnums} with {len(args)} positional arguments",
                where=str(user_location()),
            )
        chosen = [i % len(args) for i in positions]

        def of_chosen(*values: Any) -> Any:
            full = list(args)
            for i, value in zip(chosen, values, strict=True):
                full[i] = value
            return function(*full, **kwargs)

        traced = _Traced(of_chosen, [args[i] for i in chosen])
        blocks = [traced.arguments(row) for row in rows_of(traced)]
        several = isinstance(argnums, tuple)
        return unflatten(traced.structure, [b if several else b[0] for b in blocks])

    return wrapped


def _basis(like: Tensor) -> Tensor:
    """The unit vectors of a tensor's shape, stacked."""
    count = prod(like.shape)
    places = F.one_hot(F.arange(count), num_classes=count)
    return F.cast(F.reshape(places, (count, *like.shape)), dtype=like.dtype)


def _empty_block(result: Tensor, operand: Tensor) -> Tensor:
    """The derivative of a result, or with respect to an operand, without elements."""
    dtype = (result if result.dtype.is_complex else operand).dtype
    return F.full(shape=(*result.shape, *operand.shape), value=0, dtype=dtype)


def _require_complex(leaves: Sequence[Tensor], name: str, of: str, other: str) -> None:
    """GradientError for a real leaf: the block would have half of the derivatives."""
    for leaf in leaves:
        if not leaf.dtype.is_complex:
            raise GradientError(
                f"{name} of complex numbers with a real {of}, {leaf.type}",
                where=str(user_location()),
                hint=f"take {other} instead, or nova.view_as_real of the complex tensor",
            )


def _by_rows(traced: _Traced) -> list[list[Tensor]]:
    """For each result, its derivative with respect to each operand."""
    rows = []
    for result in traced.results:
        if result.dtype.is_complex:
            _require_complex(traced.operands, "jacrev", "argument", "jacfwd")
        if known_equal(result.size, 0):
            rows.append([_empty_block(result, operand) for operand in traced.operands])
            continue
        output = _parts([result])[0]  # the imaginary part of a cotangent is 0
        seed = Tensor(output.type)
        pulled = gradients(output, traced.sources, seed)
        batch = batched_graph(pulled, {id(seed): _basis(output)}, prod(output.shape))
        blocks = [F.reshape(b, (*output.shape, *b.shape[1:])) for b in batch]
        row = _packed(blocks, traced.operands)
        # A holomorphic function pulls 1 back to the conjugate of its derivative.
        rows.append([F.conj(b) for b in row] if result.dtype.is_complex else row)
    return rows


def _by_columns(traced: _Traced) -> list[list[Tensor]]:
    """For each result, its derivative with respect to each operand."""
    columns = []
    for operand in traced.operands:
        if operand.dtype.is_complex:
            _require_complex(traced.results, "jacfwd", "result", "jacrev")
        if known_equal(operand.size, 0):
            columns.append([_empty_block(result, operand) for result in traced.results])
            continue
        source = _parts([operand])[0]  # the imaginary part of a tangent is 0
        seed = Tensor(source.type)
        tangents = [
            seed if s is source else F.full(shape=s.shape, value=0, dtype=s.dtype)
            for s in traced.sources
        ]
        pushed = traced.pushed(tangents)
        batch = batched_graph(pushed, {id(seed): _basis(source)}, prod(source.shape))
        blocks = [F.reshape(F.moveaxis(b, 0, -1), (*b.shape[1:], *source.shape)) for b in batch]
        columns.append(_packed(blocks, traced.results))
    return [list(row) for row in zip(*columns, strict=True)]
