"""`nova.optim.LBFGS`: the limited-memory quasi-Newton method, with torch's options and results.

A step evaluates the loss many times, at points that depend on the losses before: so the vectors of
the method are numpy arrays on the host, and loss and gradients are one compiled function. The
direction is Nocedal's two-loop recursion ("Updating quasi-Newton matrices with limited storage",
1980); the line search finds a step with the strong Wolfe conditions by cubic interpolation (Nocedal
and Wright, "Numerical Optimization", algorithms 3.5 and 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from nova.api.jit import jit
from nova.core.location import user_location
from nova.core.records import record
from nova.core.user_facing import user_facing_class
from nova.errors import AttributeValueError, GraphError, OptionTypeError
from nova.graph.autodiff import gradients
from nova.graph.capture import Holder
from nova.graph.tensor import Tensor
from nova.nn.parameter import Parameter

_CURVATURE = 1e-10
"""Pairs of steps whose curvature is not larger are not remembered."""
_SUFFICIENT, _WOLFE = 1e-4, 0.9


@record
class _Point:
    """A place on the search line: the step, the loss, the gradient, and the slope of the line."""

    step: float
    loss: float
    gradient: np.ndarray
    slope: float


@user_facing_class
class LBFGS(Holder):
    """L-BFGS as torch.optim.LBFGS: `optimizer.step(loss, *batch)` runs up to max_iter iterations.

    `loss(*batch)` returns a scalar tensor of the parameters. It is compiled once for each signature
    of the batch; arrays that it closes over are constants. A step returns the loss before it.
    `line_search_fn` is None (a fixed step `lr`) or "strong_wolfe".
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        items = [p[1] if isinstance(p, tuple) else p for p in params]
        if not items or not all(isinstance(p, Parameter) for p in items):
            raise OptionTypeError("LBFGS: params are parameters", where=str(user_location()))
        if len({p.dtype for p in items}) > 1:
            raise OptionTypeError("LBFGS: parameters have one dtype", where=str(user_location()))
        if line_search_fn not in (None, "strong_wolfe"):
            raise AttributeValueError(
                f"LBFGS: line_search_fn {line_search_fn!r}",
                where=str(user_location()),
                hint='it is None or "strong_wolfe"',
            )
        if not lr > 0 or max_iter < 1 or history_size < 1:
            raise AttributeValueError(
                f"LBFGS: lr {lr!r}, max_iter {max_iter!r}, history_size {history_size!r}",
                where=str(user_location()),
                hint="all are positive",
            )
        self.params: list[Parameter] = items
        self.lr, self.max_iter, self.history_size = lr, max_iter, history_size
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self.line_search_fn = line_search_fn
        self._functions: dict[Any, Callable[..., Any]] = {}
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []
        """Steps and changes of the gradient, oldest first."""
        self._scale = 1.0
        self._iterations = 0
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        """Direction, step and gradient of the iteration before."""

    def step(self, loss: Callable[..., Any], *batch: Any) -> float:
        """One step: the loss before it."""
        evaluations = 0

        def evaluate() -> tuple[float, np.ndarray]:
            nonlocal evaluations
            evaluations += 1
            return self._evaluate(loss, batch)

        first, gradient = evaluate()
        value = first
        if np.abs(gradient).max() <= self.tolerance_grad:
            return first
        for iteration in range(self.max_iter):
            direction = self._direction(gradient)
            previous, before = value, gradient
            fresh = self._iterations == 1
            step = min(1.0, 1.0 / float(np.abs(gradient).sum())) * self.lr if fresh else self.lr
            slope = float(gradient @ direction)
            if slope > -self.tolerance_change:
                self._last = direction, step, before
                break
            start = self._vector()
            if self.line_search_fn is None:
                self._move(start + step * direction)
                if iteration + 1 < self.max_iter:
                    value, gradient = evaluate()
            else:
                left = max(0, self.max_eval - evaluations)
                search = _LineSearch(
                    start, direction, self._move, evaluate, self.tolerance_change, left
                )
                end = search.run(_Point(0.0, value, gradient, slope), step)
                step, value, gradient = end.step, end.loss, end.gradient
                self._move(start + step * direction)
            self._last = direction, step, before
            if (
                evaluations >= self.max_eval
                or np.abs(gradient).max() <= self.tolerance_grad
                or np.abs(step * direction).max() <= self.tolerance_change
                or abs(value - previous) < self.tolerance_change
            ):
                break
        return first

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """The negative gradient times the approximate inverse Hessian."""
        self._iterations += 1
        if self._last is None:
            return -gradient
        direction, step, before = self._last
        change, moved = gradient - before, step * direction
        curvature = float(change @ moved)
        if curvature > _CURVATURE:
            self._pairs = [*self._pairs, (moved, change)][-self.history_size :]
            self._scale = curvature / float(change @ change)
        result = -gradient
        weights = []
        for moved, change in reversed(self._pairs):
            weight = float(moved @ result) / float(change @ moved)
            result = result - weight * change
            weights.append(weight)
        result = result * self._scale
        for (moved, change), weight in zip(self._pairs, reversed(weights), strict=True):
            result = result + moved * (weight - float(change @ result) / float(change @ moved))
        return result

    # --- parameters -----------------------------------------------------------------------------

    def _evaluate(self, loss: Callable[..., Any], batch: tuple[Any, ...]) -> tuple[float, Any]:
        function = self._functions.get(loss)
        if function is None:
            if len(self._functions) >= 8:
                self._functions.clear()  # a new function for each call
            function = self._functions[loss] = jit(self._with_gradients(loss))
        value, slopes = function(*batch)
        flat = [np.asarray(s).reshape(-1) for s in slopes]
        return float(value), np.concatenate(flat)

    def _with_gradients(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        def run(*batch: Any) -> Any:
            value = loss(*batch)
            if not isinstance(value, Tensor) or value.shape:
                raise GraphError("LBFGS: the loss is not a scalar tensor")
            return value, gradients(value, self.params)

        return run

    def _vector(self) -> np.ndarray:
        return np.concatenate([p.data.reshape(-1) for p in self.params])

    def _move(self, vector: np.ndarray) -> None:
        start = 0
        for parameter in self.params:
            count = parameter.data.size
            parameter.data[...] = vector[start : start + count].reshape(parameter.data.shape)
            start += count


class _LineSearch:
    """Searches a step along a line with the strong Wolfe conditions."""

    def __init__(
        self,
        start: np.ndarray,
        direction: np.ndarray,
        move: Callable[[np.ndarray], None],
        evaluate: Callable[[], tuple[float, np.ndarray]],
        least_change: float,
        most: int,
    ):
        self.start, self.direction, self.move, self.evaluate = start, direction, move, evaluate
        self.least, self.most = least_change, most
        self.size = float(np.abs(direction).max())

    def at(self, step: float) -> _Point:
        self.move(self.start + step * self.direction)
        loss, gradient = self.evaluate()
        return _Point(step, loss, gradient, float(gradient @ self.direction))

    def run(self, origin: _Point, step: float) -> _Point:
        before, point = origin, self.at(step)
        for number in range(self.most):
            if self._is_high(origin, point) or (number > 1 and point.loss >= before.loss):
                return self._zoom(origin, before, point, number)
            if abs(point.slope) <= -_WOLFE * origin.slope:
                return point
            if point.slope >= 0:
                return self._zoom(origin, before, point, number)
            low, high = point.step + 0.01 * (point.step - before.step), point.step * 10
            step = _minimum(before, point, (low, high))
            before, point = point, self.at(step)
        return self._zoom(origin, origin, point, self.most)

    def _is_high(self, origin: _Point, point: _Point) -> bool:
        """Whether the loss does not decrease enough (Armijo)."""
        return point.loss > origin.loss + _SUFFICIENT * point.step * origin.slope

    def _zoom(self, origin: _Point, first: _Point, second: _Point, number: int) -> _Point:
        """Narrow the bracket of two points until one has the conditions."""
        low, high = (first, second) if first.loss <= second.loss else (second, first)
        is_stuck = False
        for _ in range(number, self.most):
            width = abs(high.step - low.step)
            if width * self.size < self.least:
                break
            left, right = min(low.step, high.step), max(low.step, high.step)
            step = _minimum(first, second, (left, right))
            margin = 0.1 * width
            if min(right - step, step - left) < margin:
                if is_stuck or step >= right or step <= left:
                    nearer = abs(step - right) < abs(step - left)
                    step, is_stuck = (right - margin if nearer else left + margin), False
                else:
                    is_stuck = True
            else:
                is_stuck = False
            point = self.at(step)
            if self._is_high(origin, point) or point.loss >= low.loss:
                first, second = (low, point) if first is low else (point, low)
                low, high = (low, point) if low.loss <= point.loss else (point, low)
                continue
            if abs(point.slope) <= -_WOLFE * origin.slope:
                return point
            if point.slope * (high.step - low.step) >= 0:
                first, second = (point, low) if first is low else (low, point)
                high = low
            else:
                first, second = (point, second) if first is low else (first, point)
            low = point
        return low


def _minimum(a: _Point, b: _Point, bounds: tuple[float, float]) -> float:
    """The minimum of the cubic through two points with their slopes, inside of the bounds."""
    a, b = (a, b) if a.step <= b.step else (b, a)
    d = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = d * d - a.slope * b.slope
    if square < 0:
        return (bounds[0] + bounds[1]) / 2
    root = float(np.sqrt(square))
    step = b.step - (b.step - a.step) * ((b.slope + root - d) / (b.slope - a.slope + 2 * root))
    return min(max(step, bounds[0]), bounds[1])
