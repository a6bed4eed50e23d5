"""`nova.gradcheck`: the gradients of a function against central differences, in f64.

In: a function of tensors and arrays to call it with. Out: a report, or GradcheckError at the worst
element. Both the function and its gradients run compiled; a non-scalar result is reduced to a
scalar by a random projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nova.api.compile import compile
from nova.api.compiled import Compiled
from nova.core.dtypes import bool_, f64
from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, GradcheckError, GradientError
from nova.graph.autodiff import gradients
from nova.graph.functions import FUNCTIONS
from nova.graph.tensor import Tensor, as_array, tensor

_MOST_ELEMENTS = 256


@dataclass(frozen=True)
class ArgumentReport:
    """One array among the arguments: its worst element, and the number of compared elements."""

    name: str
    index: tuple[int, ...]
    gradient: float
    slope: float
    error: float
    compared: int
    ok: bool


@dataclass(frozen=True)
class GradcheckReport:
    """The comparisons of `gradcheck`; true if all agreed."""

    order: int
    arguments: tuple[ArgumentReport, ...]

    @property
    def ok(self) -> bool:
        return all(a.ok for a in self.arguments)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"gradients of order {self.order}"]
        for a in self.arguments:
            lines.append(
                f"  {'ok   ' if a.ok else 'WRONG'} {a.name}: largest error {a.error:.3g} at "
                f"{list(a.index)} (gradient {a.gradient:.9g}, slope {a.slope:.9g}; "
                f"{a.compared} compared)"
            )
        return "\n".join(lines)


@user_facing
def gradcheck(
    function: Callable[..., Any],
    args: Any,
    *,
    argnums: Sequence[int] | int | None = None,
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    order: int = 1,
    seed: int = 0,
    raise_error: bool = True,
) -> GradcheckReport:
    """Compare the gradients of `function(*args)` with central differences of step `eps`.

    Float arrays among `args` are converted to f64 and differentiated (only those of `argnums`,
    if it is set); integer and bool arrays and Python numbers are passed unchanged. Of a large
    array, 256 random elements are compared. With `order=2` the gradients of the gradients are
    compared as well. GradcheckError names the worst element; with `raise_error=False` the report
    names it.
    """
    if order not in (1, 2):
        raise AttributeValueError(f"order must be 1 or 2, not {order!r}")
    arguments = tuple(args) if isinstance(args, list | tuple) else (args,)
    problem = _Problem(function, arguments, argnums, np.random.default_rng(seed))
    report = problem.report(problem.loss, 1, eps, atol, rtol)
    if order == 2 and report.ok:
        slope = problem.projected(gradients(problem.loss, problem.sources))
        report = problem.report(slope, 2, eps, atol, rtol)
    if raise_error and not report.ok:
        worst = max((a for a in report.arguments if not a.ok), key=lambda a: a.error)
        error = GradcheckError(
            f"the gradient of {worst.name} at {list(worst.index)} is {worst.gradient:.9g}, the "
            f"slope of the function there is {worst.slope:.9g}",
            where=str(user_location()),
            hint="run it under NOVA_CHECK=1, which names the vjp or the step that is wrong",
        )
        error.report = report
        raise error
    return report


class _Problem:
    """The function traced on f64 placeholders, reduced to a scalar."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: Sequence[int] | int | None,
        rng: np.random.Generator,
    ):
        self.rng = rng
        chosen = {argnums} if isinstance(argnums, int) else set(argnums or range(len(args)))
        self.inputs: list[Tensor] = []
        self.arrays: list[np.ndarray] = []
        self.sources: list[Tensor] = []
        traced = [self._trace(i, a, i in chosen) for i, a in enumerate(args)]
        if not self.sources:
            raise GradientError(
                "nothing to differentiate: no argument is a float array",
                where=str(user_location()),
            )
        outputs = flatten(function(*traced))[0]
        self.loss = self.projected([o for o in outputs if isinstance(o, Tensor)])

    def _trace(self, position: int, arg: Any, differentiate: bool) -> Any:
        leaves, structure = flatten(arg)
        several = len(leaves) > 1
        return unflatten(
            structure,
            [
                self._leaf(f"argument {position}{f'[{i}]' * several}", leaf, differentiate)
                for i, leaf in enumerate(leaves)
            ],
        )

    def _leaf(self, name: str, leaf: Any, differentiate: bool) -> Any:
        if type(leaf) in (bool, int, float):
            return leaf
        array = as_array(leaf)
        leaf_type = tensor(array).type
        if leaf_type.dtype.is_float:
            leaf_type = leaf_type.with_dtype(f64)
        placeholder = Tensor(leaf_type, name=name)
        self.inputs.append(placeholder)
        self.arrays.append(np.array(array, leaf_type.dtype.numpy))
        if differentiate and leaf_type.dtype.is_float:
            self.sources.append(placeholder)
        return placeholder

    def projected(self, outputs: Sequence[Tensor]) -> Tensor:
        """The sum of the float outputs times random weights."""
        total: Tensor | None = None
        for output in outputs:
            if not output.dtype.is_float or output.dtype is bool_:
                continue
            weights = tensor(self.rng.uniform(0.5, 1.5, output.shape))
            piece = FUNCTIONS["sum"](FUNCTIONS["cast"](output, dtype=f64) * weights)
            total = piece if total is None else FUNCTIONS["add"](total, piece)
        if total is None:
            raise GradientError(
                "nothing to differentiate: the function returns no float tensor",
                where=str(user_location()),
            )
        return total

    def report(
        self, value: Tensor, order: int, eps: float, atol: float, rtol: float
    ) -> GradcheckReport:
        compiled = compile(gradients(value, self.sources), inputs=self.inputs)
        forward = compile(value, inputs=self.inputs)
        results = compiled(*self.arrays)
        listed = results if isinstance(results, tuple) else (results,)
        return GradcheckReport(
            order,
            tuple(
                self._argument(forward, source, gradient, eps, atol, rtol)
                for source, gradient in zip(self.sources, listed, strict=True)
            ),
        )

    def _argument(
        self,
        forward: Compiled,
        source: Tensor,
        gradient: np.ndarray,
        eps: float,
        atol: float,
        rtol: float,
    ) -> ArgumentReport:
        number = next(i for i, t in enumerate(self.inputs) if t is source)
        positions = np.arange(source.size)
        if source.size > _MOST_ELEMENTS:
            positions = np.sort(self.rng.choice(source.size, _MOST_ELEMENTS, replace=False))
        worst = ArgumentReport(source.name or "", (), 0.0, 0.0, 0.0, len(positions), True)
        ok = True
        for position in positions:
            index = tuple(int(i) for i in np.unravel_index(position, source.shape))
            slope = self._slope(forward, number, index, eps)
            derivative = float(gradient[index])
            error = abs(derivative - slope)
            fits = error <= atol + rtol * max(abs(slope), abs(derivative))
            ok = ok and fits
            if not error <= worst.error:
                worst = ArgumentReport(
                    worst.name, index, derivative, slope, error, len(positions), fits
                )
        return ArgumentReport(
            worst.name, worst.index, worst.gradient, worst.slope, worst.error, len(positions), ok
        )

    def _slope(self, forward: Compiled, number: int, index: tuple[int, ...], eps: float) -> float:
        arrays = [*self.arrays]
        moved = arrays[number].copy()
        arrays[number] = moved
        at = float(moved[index])
        step = eps * max(1.0, abs(at))
        moved[index] = at + step
        up = float(forward(*arrays))
        moved[index] = at - step
        down = float(forward(*arrays))
        return (up - down) / (2 * step)
