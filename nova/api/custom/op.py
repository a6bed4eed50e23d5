"""`nova.custom_op`: an op of the user's own, with its type rule, body, reference and gradient.

The body is one of three. A function of Nova ops is traced like any other. A function of loops is a
node of the row `loop_kernel`, and MLIR text one of `mlir_kernel`: the text is an attribute of the
node, so it is in the plan, in cache keys and in `.nova` files (docs/custom-ops.md).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any, Literal

import numpy as np

from nova.api.compile import compile as compile_graph
from nova.api.custom.mlir import kernel_of_text
from nova.api.custom.source import bind_constants, input_names, kernel_text, positional_names
from nova.core.dtypes import TensorType
from nova.core.location import user_location
from nova.core.pytree import flatten
from nova.core.sizes import is_static
from nova.core.user_facing import check_call, user_facing, user_facing_class
from nova.errors import CheckError, KernelError, OptionTypeError
from nova.graph.build import apply
from nova.graph.custom_gradient import CustomVJP
from nova.graph.interpret import evaluate
from nova.graph.tensor import Tensor
from nova.graph.tensor import input as make_input
from nova.graph.transforms import as_tensor
from nova.ops import OPS
from nova.ops.kernels.definite import check_assigned
from nova.ops.kernels.language import parse_program
from nova.ops.kernels.rows import MOST_OPERANDS, REFERENCES, type_attrs

Body = Literal["ops", "loops", "mlir"]
_BODIES = ("ops", "loops", "mlir")
_TARGETS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "sim": {"target": "cuda:sm_90", "run_mode": "sim"},
    "cuda": {"target": "cuda"},
}


@user_facing
def custom_op(
    function: Callable[..., Any] | None = None,
    *,
    body: Body = "ops",
    out: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
) -> Any:
    """An op of the user's own; use it as a decorator.

    `body` says how the function defines it. With "ops" it is a function of tensors. With "loops" it
    writes its last parameters, element by element, in loops over `range` (docs/custom-ops.md): Nova
    compiles them for CPUs and GPUs. With "mlir" it gets the types of the operands and returns MLIR
    text. Keyword-only parameters are numbers, and constants of the op.

    `out` is the type rule: from the types of the operands (and the constants) to the type of the
    result, or a tuple of types. Without it, a kernel of loops has results like its first operand.
    `reference` is the op in numpy; `check` compares with it. The op has the gradient of its body,
    or the one that `defvjp` sets.
    """
    if body not in _BODIES:
        raise OptionTypeError(
            f"custom_op: body {body!r}",
            where=str(user_location()),
            hint='one of "ops", "loops" and "mlir"',
        )
    if function is None:
        return partial(_make, body=body, out=out, reference=reference)
    return _make(function, body=body, out=out, reference=reference)


def _make(function: Any, **options: Any) -> CustomOp:
    if not callable(function):
        raise OptionTypeError(
            f"custom_op of a {type(function).__name__}", where=str(user_location())
        )
    for keyword in ("out", "reference"):
        if options[keyword] is not None and not callable(options[keyword]):
            raise OptionTypeError(
                f"custom_op: {keyword} is a {type(options[keyword]).__name__}",
                where=str(user_location()),
                hint="out is a function of types: out=lambda x, y: x"
                if keyword == "out"
                else "reference is a function of numpy arrays",
            )
    return CustomOp(function, **options)


@user_facing_class
class CustomOp:
    """An op that a user has defined; call it on tensors."""

    def __init__(
        self,
        function: Callable[..., Any],
        body: Body = "ops",
        out: Callable[..., Any] | None = None,
        reference: Callable[..., Any] | None = None,
    ):
        self._function, self._body, self._rule, self._reference = function, body, out, reference
        self._gradient: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self._function, "__name__", "the op")

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the gradient by two functions, as `nova.custom_vjp` has them.

        Both get the constants of the call as keywords.
        """
        self._gradient = forward, backward

    def __call__(self, *args: Any, **constants: Any) -> Any:
        if self._body != "ops":
            constants = bind_constants(self._function, constants)
        if self._gradient is None:
            return self._results(constants, *args)
        forward, backward = (partial(f, **constants) for f in self._gradient)
        call = CustomVJP(update_wrapper(partial(self._results, constants), self._function))
        call.defvjp(forward, backward)
        return call(*args)

    def source(self, *args: Any, **constants: Any) -> str:
        """The text of the kernel for these operands, as files and cache keys have it."""
        if self._body != "ops":
            constants = bind_constants(self._function, constants)
        if self._body == "loops":
            return kernel_text(self._function, constants)
        if self._body == "mlir":
            types = [as_tensor(a).type for a in args]
            check_call(self._function, self.name, types, constants)
            return kernel_of_text(self._function(*types, **constants), self.name, types)[0]
        raise KernelError(f"{self.name}: its body is in Nova ops", where=str(user_location()))

    def check(
        self,
        *args: Any,
        targets: Sequence[str] = ("cpu",),
        rtol: float = 1e-5,
        atol: float = 1e-6,
        **constants: Any,
    ) -> None:
        """Compare compiled results with the reference, or else with the interpreted kernel.

        `targets` are among "cpu", "sim" (the GPU simulator) and "cuda". Raises CheckError.
        """
        tensors = [as_tensor(a) for a in args]
        inputs = [make_input(t.shape, t.dtype, name=f"x{i}") for i, t in enumerate(tensors)]
        outputs = [as_tensor(o) for o in flatten(self(*inputs, **constants))[0]]
        arrays = [t.numpy() for t in tensors]
        if self._reference is None:
            expected = evaluate(outputs, dict(zip(inputs, arrays, strict=True)))
        else:
            self._check_parameters("reference", self._reference, arrays, constants)
            expected = flatten(self._reference(*arrays, **constants))[0]
        for target in targets:
            if target not in _TARGETS:
                raise OptionTypeError(f"check: target {target!r}", hint=f"one of {[*_TARGETS]}")
            results = compile_graph(outputs, inputs=inputs, **_TARGETS[target]).run(arrays)
            results = results if isinstance(results, list | tuple) else [results]
            for number, (actual, right) in enumerate(zip(results, expected, strict=True)):
                self._compare(np.asarray(actual), np.asarray(right), number, target, (rtol, atol))

    def _compare(
        self,
        actual: np.ndarray,
        right: np.ndarray,
        number: int,
        target: str,
        bounds: tuple[float, float],
    ) -> None:
        if actual.shape != right.shape:
            raise CheckError(
                f"{self.name}: result {number} has shape {actual.shape}, its reference "
                f"{right.shape}",
                where=str(user_location()),
            )
        a, b = actual.astype(np.float64), right.astype(np.float64)
        wrong = ~np.isclose(a, b, rtol=bounds[0], atol=bounds[1], equal_nan=True)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise CheckError(
                f"{self.name} on {target}: result {number} is {actual[first]} at {first}, its "
                f"reference {right[first]}; {wrong.sum()} of {wrong.size} elements differ",
                where=str(user_location()),
                hint=f"the tolerances are rtol={bounds[0]:g} and atol={bounds[1]:g}: arguments of "
                "check",
            )

    # --- bodies ---------------------------------------------------------------------------------

    def _results(self, constants: dict[str, Any], *args: Any) -> Any:
        if self._body == "ops":
            args = tuple(as_tensor(a) if isinstance(a, np.ndarray) else a for a in args)
            check_call(self._function, self.name, args, constants)
            result = self._call_body(args, constants)
            self._check_rule(args, constants, result)
            return result
        tensors = [as_tensor(a) for a in args]
        if not 1 <= len(tensors) <= MOST_OPERANDS:
            raise KernelError(
                f"{self.name} has {len(tensors)} operands",
                where=str(user_location()),
                hint=f"a kernel has 1 to {MOST_OPERANDS}",
            )
        types = [t.type for t in tensors]
        if self._body == "loops":
            source, row = kernel_text(self._function, constants), "loop_kernel"
            results = self._loop_types(source, types, constants)
        else:
            check_call(self._function, self.name, types, constants)
            text = self._function(*types, **constants)
            source, results = kernel_of_text(text, self.name, types)
            self._same_types(self._ruled(types, constants), results)
            row = "mlir_kernel"
            if self._reference is not None:
                REFERENCES[source] = partial(self._reference, **constants)
        attrs = {"source": source, **type_attrs(results)}
        nodes = [apply(OPS[row], tensors, {**attrs, "result": i}) for i in range(len(results))]
        if self._body == "loops":
            check_assigned(parse_program(source, len(results)))
        return nodes[0] if len(nodes) == 1 else tuple(nodes)

    def _call_body(self, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
        """The results of a function of tensors; it may call the op with other constants."""
        try:
            return self._function(*args, **constants)
        except RecursionError:
            raise KernelError(
                f"{self.name} calls itself, or another function, without end",
                where=str(user_location()),
                hint="only Python numbers, such as a constant of the op, can end a recursion; "
                "nova.while_loop and nova.fori_loop repeat until a tensor says so",
            ) from None

    def _loop_types(
        self, source: str, types: Sequence[TensorType], constants: dict[str, Any]
    ) -> tuple[TensorType, ...]:
        names = positional_names(self._function)
        count = len(names) - len(types)
        if count < 1:
            raise KernelError(
                f"{self.name} is called with {len(types)} tensors, and has the parameters "
                f"({', '.join(names)})",
                where=str(user_location()),
                hint="pass the inputs; the outputs are the last parameters and are returned",
            )
        inputs = input_names(source)
        for name in names[len(types) :]:
            if name in inputs:
                raise KernelError(
                    f"{self.name} is called with {len(types)} tensors, so {name!r} is an output; "
                    "it is read, and nothing writes it",
                    where=str(user_location()),
                    hint=f"pass all inputs: {self.name}({', '.join(inputs)})",
                )
        results = self._ruled(types, constants) or (types[0],) * count
        if len(results) != count:
            raise KernelError(
                f"{self.name} has {count} outputs, and its type rule {len(results)} types",
                where=str(user_location()),
            )
        return results

    def _ruled(
        self, types: Sequence[TensorType], constants: dict[str, Any]
    ) -> tuple[TensorType, ...]:
        """The types that the rule returns; none without a rule."""
        if self._rule is None:
            return ()
        self._check_parameters("type rule", self._rule, types, constants)
        result = self._rule(*types, **constants)
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        for item in results:
            if not isinstance(item, TensorType):
                raise KernelError(
                    f"the type rule of {self.name} returned a {type(item).__name__}",
                    where=str(user_location()),
                    hint="nova.TensorType(shape, dtype), or the type of an operand",
                )
            if any(is_static(size) and size < 0 for size in item.shape):
                raise KernelError(
                    f"the type rule of {self.name} returned {item}, which has a negative size",
                    where=str(user_location()),
                )
        return results

    def _check_parameters(
        self,
        title: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        constants: dict[str, Any],
    ) -> None:
        """KernelError at the definition of the user's `function` if it takes other arguments."""
        try:
            inspect.signature(function).bind(*args, **constants)
        except TypeError as error:
            code = getattr(function, "__code__", None)
            names = [*positional_names(self._function)[: len(args)], *constants]
            raise KernelError(
                f"the {title} of {self.name} cannot be called for {len(args)} operands and the "
                f"constants ({', '.join(constants)}): {error}",
                where=f"{code.co_filename}:{code.co_firstlineno}" if code else None,
                hint=f"it takes ({', '.join(names)})",
            ) from None
        except ValueError:  # a function of C without a signature
            return

    def _check_rule(self, args: Sequence[Any], constants: dict[str, Any], result: Any) -> None:
        if self._rule is not None:
            types = [as_tensor(a).type for a in args]
            actual = tuple(t.type for t in flatten(result)[0] if isinstance(t, Tensor))
            self._same_types(self._ruled(types, constants), actual)

    def _same_types(self, ruled: tuple[TensorType, ...], actual: tuple[TensorType, ...]) -> None:
        if ruled and ruled != actual:
            right, wrong = (", ".join(map(str, t)) for t in (ruled, actual))
            raise KernelError(
                f"{self.name} returns ({wrong}), and its type rule says ({right})",
                where=str(user_location()),
            )
