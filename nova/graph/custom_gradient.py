"""`nova.custom_vjp`, `nova.custom_jvp`: functions of tensors with a gradient of the user's own.

A call builds the graph of the function. Each result goes through a `custom_gradient` node, which
has the value of the result and the arguments of the call as further operands: gradients flow from
the node to the arguments by the user's rule, and not into the graph of the function. A plan does
not contain the node. Inside of a loop or branch, tensors from outside that the rule uses are
operands as well: they become parameters of the region like those of other nodes, and the rule is
applied to the operands that the node has then.

A rule for tangents (`custom_jvp`) is linear in them, so the gradient is its transpose: that of the
product of its result with the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any

from nova.core.location import user_location
from nova.core.pytree import TreeDef, flatten, unflatten
from nova.core.user_facing import user_facing, user_facing_class
from nova.errors import GradientError
from nova.graph.build import cast, make_node
from nova.graph.capture import current_region
from nova.graph.control.regions import older_tensors, substitute
from nova.graph.order import topological
from nova.graph.tensor import Tensor, next_serial
from nova.graph.transforms import as_tensor
from nova.ops import F, Op

_capturing: ContextVar[bool] = ContextVar("nova_custom_gradient", default=False)

CUSTOM_GRADIENT = Op(
    name="custom_gradient",
    doc="The value of the first operand; gradients go to the others by the user's rule.",
    operands=("*operands",),
    infer=lambda ins, attrs: ins[0],
    numpy=lambda *operands, rule: operands[0],
    vjp=lambda F, g, out, *operands, rule: (None, *rule(g, operands[1:])),
    tags=frozenset({"view", "structural"}),
)
"""Not a row of the table: no plan and no dialect contains it."""


@user_facing
def custom_vjp(
    function: Callable[..., Any] | None = None, *, nondiff_argnums: tuple[int, ...] = ()
) -> Any:
    """A function whose gradient `defvjp` defines, as `jax.custom_vjp`; use it as a decorator."""
    if function is None:
        return lambda f: CustomVJP(f, nondiff_argnums)
    return CustomVJP(function, nondiff_argnums)


@user_facing_class
class CustomVJP:
    """A function whose gradient `defvjp` defines, by two functions.

    `forward(*args)` returns the result and residuals, any pytree of tensors. `backward(residuals,
    cotangent)` returns a gradient for each argument: a tensor, a pytree like the argument, or None
    for zero. `nondiff_argnums` are arguments that are not tensors; `backward` gets them first.
    """

    def __init__(self, function: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()):
        self._function = function
        self._nondiff = frozenset(nondiff_argnums)
        self._forward: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the two functions of the gradient."""
        self._forward, self._backward = forward, backward

    def __call__(self, *args: Any) -> Any:
        if self._forward is None or self._backward is None:
            raise GradientError(
                f"{self._name} has no gradient yet",
                where=str(user_location()),
                hint="call defvjp(forward, backward) once after the definition",
            )
        tensors = [a for i, a in enumerate(args) if i not in self._nondiff]
        leaves, structure = flatten(tuple(tensors))
        begin = next_serial()
        sources = [as_tensor(leaf) for leaf in leaves]
        replaced = iter(unflatten(structure, list(sources)))
        full = [a if i in self._nondiff else next(replaced) for i, a in enumerate(args)]
        results, shape = flatten(self._function(*full))
        outputs = [as_tensor(result) for result in results]
        call = _Call(self, full, structure, sources, outputs, shape)
        if current_region() is not None and not _capturing.get():
            call.capture(begin)
        return unflatten(shape, [call.node(i) for i in range(len(outputs))])

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "the function")


@user_facing
def custom_jvp(
    function: Callable[..., Any] | None = None, *, nondiff_argnums: tuple[int, ...] = ()
) -> Any:
    """A function whose derivative `defjvp` defines, as `jax.custom_jvp`; use it as a decorator."""
    if function is None:
        return lambda f: CustomJVP(f, nondiff_argnums)
    return CustomJVP(function, nondiff_argnums)


@user_facing_class
class CustomJVP:
    """A function whose derivative `defjvp` defines, by one function.

    `rule(primals, tangents)` returns the result and its tangent, which is linear in the tangents.
    Both arguments are tuples with an entry for each argument of the function; integers have None
    as tangents. `nondiff_argnums` are arguments that are not tensors; the rule gets them first.
    """

    def __init__(self, function: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()):
        self._function = function
        self._nondiff = tuple(sorted(nondiff_argnums))
        self._rule: Callable[..., Any] | None = None
        self._pulled = CustomVJP(function, self._nondiff)
        self._pulled.defvjp(self._forward, self._backward)
        update_wrapper(self, function)

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; returns it, so that it is a decorator."""
        self._rule = rule
        return rule

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set a rule for each argument: `rule(tangent, result, *primals)`; None is zero."""

        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
            result = self(*primals)
            total = None
            for each, tangent in zip(rules, tangents, strict=True):
                if each is not None and tangent is not None:
                    term = each(tangent, result, *primals)
                    total = term if total is None else F.add(total, term)
            return result, F.zeros_like(result) if total is None else total

        if self._nondiff:
            raise GradientError(
                f"{self._name}: defjvps with nondiff_argnums",
                where=str(user_location()),
                hint="define one rule with defjvp",
            )
        self._rule = rule

    def __call__(self, *args: Any) -> Any:
        if self._rule is None:
            raise GradientError(
                f"{self._name} has no derivative yet",
                where=str(user_location()),
                hint="call defjvp(rule) once after the definition",
            )
        return self._pulled(*args)

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "the function")

    def _forward(self, *args: Any) -> tuple[Any, Any]:
        primals = tuple(a for i, a in enumerate(args) if i not in self._nondiff)
        return self._function(*args), primals

    def _backward(self, *constants_residuals_gradient: Any) -> tuple[Any, ...]:
        *constants, primals, gradient = constants_residuals_gradient
        leaves, structure = flatten(primals)
        sources = [as_tensor(leaf) for leaf in leaves]
        tangents = [Tensor(s.type) if s.dtype.is_differentiable else None for s in sources]
        pieces = iter(self._transposed(constants, primals, structure, tangents, gradient))
        flat = [None if t is None else next(pieces) for t in tangents]
        return tuple(unflatten(structure, flat))

    def _transposed(
        self,
        constants: list[Any],
        primals: Any,
        structure: TreeDef,
        tangents: list[Tensor | None],
        gradient: Any,
    ) -> list[Tensor]:
        """The gradients of the tangents, for a gradient of the tangent of the result."""
        from nova.graph.autodiff import gradients

        assert self._rule is not None
        result = self._rule(*constants, primals, tuple(unflatten(structure, list(tangents))))
        if not isinstance(result, tuple) or len(result) != 2:
            raise GradientError(
                f"the rule of {self._name} returned a {type(result).__name__}",
                hint="it returns a pair: the result, and its tangent",
            )
        seeds, expected = flatten(gradient)
        outputs, own = flatten(result[1])
        if own != expected:
            raise GradientError(
                f"the tangent of {self._name} is nested as {own}, its result as {expected}"
            )
        sources = [t for t in tangents if t is not None]
        totals: list[Tensor] | None = None
        for output, seed in zip(outputs, seeds, strict=True):
            value = as_tensor(output)
            if value.shape != seed.shape:
                raise GradientError(
                    f"the tangent of {self._name} has shape {value.shape}, its result {seed.shape}"
                )
            pieces = gradients(cast(value, seed.dtype), sources, seed)
            totals = pieces if totals is None else list(map(F.add, totals, pieces))
        totals = totals or []
        used = {id(node) for node in topological(totals)}
        if any(id(source) in used for source in sources):
            raise GradientError(
                f"the rule of {self._name} is not linear in the tangents",
                hint="the tangent of the result is a sum of tangents times factors",
            )
        return totals


class _Call:
    """One call: what the gradient of its results needs."""

    def __init__(
        self,
        owner: CustomVJP,
        args: list[Any],
        structure: TreeDef,
        sources: list[Tensor],
        outputs: list[Tensor],
        shape: TreeDef,
    ):
        self.owner, self.args, self.structure = owner, args, structure
        self.sources, self.outputs, self.shape = sources, outputs, shape
        self._residuals: tuple[Any] | None = None
        self._captured: tuple[Tensor, ...] = ()
        """Tensors from outside of the call that the rule uses: further operands of the nodes."""

    def capture(self, begin: int) -> None:
        """Find the tensors from before `begin` that the rule uses: apply it to any gradient."""
        pieces: list[Tensor | None] = []
        inner = list(self.sources)
        token = _capturing.set(True)  # the forward function may call the function itself
        try:
            self._pull_all(inner, pieces)
        except Exception:
            return  # the rule is applied again, and fails again, when a gradient is computed
        finally:
            _capturing.reset(token)
        present = [piece for piece in pieces if piece is not None]
        self._captured = tuple(older_tensors(present, begin, inner))

    def _pull_all(self, inner: list[Tensor], pieces: list[Tensor | None]) -> None:
        """Add the gradients of the sources for a new gradient of each result."""
        for position, output in enumerate(self.outputs):
            if output.dtype.is_differentiable:
                seed = Tensor(output.type)
                inner.append(seed)
                pieces += self.pull(position, seed)

    def node(self, position: int) -> Tensor:
        output = self.outputs[position]
        operands = (output, *self.sources, *self._captured)
        attrs = {"rule": _Rule(self, position)}
        return make_node(CUSTOM_GRADIENT, operands, attrs, output.type)

    def apply(self, position: int, grad: Tensor, operands: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the operands after the first one of a node, which may be a copy."""
        before = (*self.sources, *self._captured)
        pieces = self.pull(position, grad)
        changed = {id(a): b for a, b in zip(before, operands, strict=True) if a is not b}
        present = [piece for piece in pieces if piece is not None]
        if changed:
            moved = iter(substitute(present, {**changed, id(grad): grad}))
            pieces = [None if piece is None else next(moved) for piece in pieces]
        return [*pieces, *[None] * len(self._captured)]

    def residuals(self) -> Any:
        """Those of the forward function; its graph is built when a gradient needs it."""
        if self._residuals is None:
            assert self.owner._forward is not None
            result = self.owner._forward(*self.args)
            if not isinstance(result, tuple) or len(result) != 2:
                raise GradientError(
                    f"the forward function of {self.owner._name} returned a "
                    f"{type(result).__name__}",
                    hint="it returns a pair: the result, and the residuals",
                )
            self._residuals = (result[1],)
        return self._residuals[0]

    def pull(self, position: int, grad: Tensor) -> list[Tensor | None]:
        """The gradient of each source, for a gradient of one result and zeros of the others."""
        owner = self.owner
        assert owner._backward is not None
        cotangents = [
            grad if i == position else F.full(shape=o.shape, value=0, dtype=o.dtype)
            for i, o in enumerate(self.outputs)
        ]
        constants = [self.args[i] for i in sorted(owner._nondiff)]
        cotangent = unflatten(self.shape, cotangents)
        pieces = owner._backward(*constants, self.residuals(), cotangent)
        pieces = pieces if isinstance(pieces, tuple) else (pieces,)
        if len(pieces) != len(self.structure.children):
            raise GradientError(
                f"the backward function of {owner._name} returned {len(pieces)} gradients for "
                f"{len(self.structure.children)} arguments",
                hint="it returns a tuple with a gradient or None for each argument",
            )
        gradients: list[Tensor | None] = []
        for piece, child in zip(pieces, self.structure.children, strict=True):
            leaves, own = flatten(piece)
            if piece is None:
                gradients += [None] * _count(child)
            elif own != child:
                raise GradientError(
                    f"a gradient of {owner._name} is nested as {own}, its argument as {child}"
                )
            else:
                gradients += [as_tensor(leaf) for leaf in leaves]
        return [self._checked(g, s) for g, s in zip(gradients, self.sources, strict=True)]

    def _checked(self, gradient: Tensor | None, source: Tensor) -> Tensor | None:
        if gradient is None:
            return None
        if gradient.shape != source.shape:
            raise GradientError(
                f"a gradient of {self.owner._name} has shape {gradient.shape}, its argument "
                f"{source.shape}",
                hint="sum over the axes that were broadcast",
            )
        return cast(gradient, source.dtype)


class _Rule:
    """The gradient rule of one result of a call: the attribute of its node."""

    def __init__(self, call: _Call, position: int):
        self._call, self._position = call, position

    def __call__(self, grad: Tensor, operands: Sequence[Tensor]) -> Sequence[Tensor | None]:
        return self._call.apply(self._position, grad, operands)


def _count(structure: TreeDef) -> int:
    if structure.container == "leaf":
        return 1
    return sum(_count(child) for child in structure.children)


def batch_custom_gradient(
    node: Tensor,
    operands: Sequence[Tensor],
    flags: Sequence[bool],
    size: int,
    batched: Callable[[Sequence[Tensor], dict[int, Tensor], int], list[Tensor]],
) -> Tensor:
    """The node of a batch of examples: its rule is the batched rule of one example."""
    value, *sources = operands
    examples = node.inputs[1:]
    if not flags[0]:
        value = F.expand(F.unsqueeze(value, 0), (size, *value.shape))

    def rule(grad: Tensor, operands: Sequence[Tensor]) -> list[Tensor | None]:
        seed = Tensor(node.type)
        pieces = node.attrs["rule"](seed, examples)
        batch = {id(seed): grad}
        batch |= {id(e): s for e, s, f in zip(examples, operands, flags[1:], strict=True) if f}
        present = [piece for piece in pieces if piece is not None]
        rows = iter(batched(present, batch, size))
        results: list[Tensor | None] = []
        for piece, is_batched in zip(pieces, flags[1:], strict=True):
            row = None if piece is None else next(rows)
            # The gradient of a shared argument is the sum over the examples.
            results.append(row if row is None or is_batched else F.sum(row, axis=0))
        return results

    return make_node(CUSTOM_GRADIENT, (value, *sources), {"rule": rule}, value.type)
