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
        return traced.arguments(traced.pulled(traced.like_result(cotangent)))

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
        return unflatten(traced.structure, traced.pushed(traced.like_arguments(tangents)))

    return traced.result, push


@user_facing
def jacrev(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The Jacobian by reverse mode: of each result with respect to each selected argument.

    Its shape is that of the result, then that of the argument. Better for few results.
    """
    return _jacobian(function, argnums, jacrev, _by_rows)


@user_facing
def jacfwd(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The Jacobian by forward mode; see `jacrev`. Better for few arguments."""
    return _jacobian(function, argnums, jacfwd, _by_columns)


@user_facing
def hessian(function: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The matrix of second derivatives: `jacfwd(jacrev(f))`."""
    return jacfwd(jacrev(function, argnums), argnums)


# --- one trace ------------------------------------------------------------------------------------


class _Traced:
    """A function applied to its primals: leaves of the arguments and of the results."""

    def __init__(self, function: Callable[..., Any], primals: Sequence[Any]):
        nested = [flatten(primal) for primal in primals]
        self.argument_structures = [structure for _, structure in nested]
        # New tensors: an argument that occurs twice has two gradients.
        groups = [[_alias(as_tensor(leaf)) for leaf in leaves] for leaves, _ in nested]
        self.sources = [source for group in groups for source in group]
        for source in self.sources:
            require_float(source, "a tensor differentiated against")
        self.counts = [len(group) for group in groups]
        args = [unflatten(s, g) for (_, s), g in zip(nested, groups, strict=True)]
        self.result = function(*args)
        results, self.structure = flatten(self.result)
        self.outputs = [as_tensor(result) for result in results]
        for output in self.outputs:
            require_float(output, "the differentiated output")

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
        return _checked(leaves, structure, self.outputs, self.structure, "cotangent", "result")

    def like_arguments(self, tangents: Sequence[Any]) -> list[Tensor]:
        if len(tangents) != len(self.argument_structures):
            raise ArgumentCountError(
                f"{len(tangents)} tangents for {len(self.argument_structures)} arguments",
                where=str(user_location()),
            )
        leaves, structure = flatten(tuple(tangents))
        own = TreeDef("tuple", tuple(self.argument_structures))
        return _checked(leaves, structure, self.sources, own, "tangent", "argument")


def _alias(x: Tensor) -> Tensor:
    """A node of its own with the value of x."""
    return make_node(OPS["reshape"], (x,), {"shape": x.shape}, x.type)


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


def _empty_block(output: Tensor, source: Tensor) -> Tensor:
    """The derivative of an output, or with respect to a source, without elements."""
    return F.full(shape=(*output.shape, *source.shape), value=0, dtype=source.dtype)


def _by_rows(traced: _Traced) -> list[list[Tensor]]:
    """For each output, its derivative with respect to each source."""
    rows = []
    for output in traced.outputs:
        if known_equal(output.size, 0):
            rows.append([_empty_block(output, source) for source in traced.sources])
            continue
        seed = Tensor(output.type)
        pulled = gradients(output, traced.sources, seed)
        batch = batched_graph(pulled, {id(seed): _basis(output)}, prod(output.shape))
        rows.append([F.reshape(b, (*output.shape, *b.shape[1:])) for b in batch])
    return rows


def _by_columns(traced: _Traced) -> list[list[Tensor]]:
    columns = []
    for i, source in enumerate(traced.sources):
        if known_equal(source.size, 0):
            columns.append([_empty_block(output, source) for output in traced.outputs])
            continue
        tangents = [
            Tensor(s.type) if s is source else F.full(shape=s.shape, value=0, dtype=s.dtype)
            for s in traced.sources
        ]
        pushed = traced.pushed(tangents)
        batch = batched_graph(pushed, {id(tangents[i]): _basis(source)}, prod(source.shape))
        columns.append(
            [F.reshape(F.moveaxis(b, 0, -1), (*b.shape[1:], *source.shape)) for b in batch]
        )
    return [list(row) for row in zip(*columns, strict=True)]
