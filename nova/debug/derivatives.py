"""Checks the vjp columns against finite differences of the numpy columns.

The oracle runs the plan that gradients were built into, so a wrong vjp would agree with itself.
Here the vjp is applied again, in f64, at the values of the program, and its dot product with a
random direction is compared with the central difference of the numpy column in that direction.
Called in the first checked run of a program for every derivation that its plan has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, f64
from nova.debug.plan_transforms import Program
from nova.graph.autodiff import vjp_of
from nova.graph.build import make_node
from nova.graph.interpret import evaluate, op_value
from nova.graph.tensor import Tensor
from nova.ops import OPS, Op
from nova.plan import Argument, Derivation, Input, Plan, Signature, Slot, Step

_ATTEMPTS = 4
_STEP = 1e-5
_JITTER = 1e-3
_RELATIVE = 1e-7
# detach has gradient zero on purpose.
_NOT_A_DERIVATIVE = frozenset({"detach"})


def find_wrong_vjp(
    derivation: Derivation, values: Sequence[np.ndarray | None], rng: np.random.Generator
) -> str | None:
    """A description of how the vjp differs from the finite difference; None if they agree.

    `values` are those of the operands; None if the program does not compute one. The tested
    operand is perturbed a little, away from kinks and ties. A wrong vjp is wrong in
    every attempt; a kink that was hit nevertheless is not.
    """
    op = OPS[derivation.op]
    if op.vjp is None or derivation.op in _NOT_A_DERIVATIVE or "nograd" in op.tags:
        return None
    attempt = _Attempt(op, derivation, values)
    if not attempt.is_possible:
        return None
    problem: str | None = None
    for _ in range(_ATTEMPTS):
        with np.errstate(all="ignore"):  # infinities are excluded below
            problem = attempt.run(rng)
        if problem is None:
            return None
    return problem


class _Attempt:
    """A vjp at f64 copies of the operands."""

    def __init__(self, op: Op, derivation: Derivation, values: Sequence[np.ndarray | None]):
        self.op = op
        self.operand = derivation.operand
        self.values = values
        self.types = tuple(t.with_dtype(f64) if t.dtype.is_float else t for t in derivation.types)
        self.attrs = {k: _wide(v) for k, v in derivation.attrs.items()}
        assert op.infer is not None
        self.out = op.infer(self.types, self.attrs)

    @property
    def is_possible(self) -> bool:
        """Whether a derivative exists: float to float, and not empty."""
        operand_type = self.types[self.operand]
        return (
            self.out.dtype is f64
            and operand_type.dtype is f64
            and self.out.size > 0
            and operand_type.size > 0
        )

    def run(self, rng: np.random.Generator) -> str | None:
        arrays = [
            _sample(rng, self.op, i, t) if a is None else np.asarray(a).astype(t.dtype.numpy)
            for i, (a, t) in enumerate(zip(self.values, self.types, strict=True))
        ]
        x = arrays[self.operand]
        size = _sizes(x)
        sign = rng.choice([-1.0, 1.0], x.shape)
        x = np.asarray(x + _JITTER * size * sign * rng.uniform(0.5, 1.0, x.shape))
        arrays[self.operand] = x
        direction = np.where(np.isfinite(x), size * rng.standard_normal(x.shape), 0.0)
        weights = rng.standard_normal(self.out.shape)
        rise, height = self._rise(arrays, x, direction, _STEP)
        weights = np.where(np.isfinite(rise), weights, 0.0)
        gradient = self._gradient(arrays, weights)
        finite = np.isfinite(gradient)
        if not finite.all():  # infinite slopes: these elements cannot be compared
            gradient, direction = np.where(finite, gradient, 0.0), np.where(finite, direction, 0.0)
            rise, height = self._rise(arrays, x, direction, _STEP)
        half, _ = self._rise(arrays, x, direction, _STEP / 2)
        derivative = float(np.sum(gradient * direction))
        slope = _sum(weights * rise)
        # A difference that changes with the step size is not a slope: kinks between the two points.
        bent = abs(slope - _sum(weights * half))
        scale = float(np.sum(np.abs(gradient * direction))) + _sum(np.abs(weights * rise))
        rounding = _sum(np.abs(weights * height))
        if abs(derivative - slope) <= _RELATIVE * scale + 4 * bent + 1e-9 * rounding:
            return None
        return f"along a random direction it gives {derivative:.9g}, the slope is {slope:.9g}"

    def _rise(
        self, arrays: list[np.ndarray], x: np.ndarray, direction: np.ndarray, step: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The central difference in a direction, and the value there."""
        up, down = (self._forward(arrays, x + s * step * direction) for s in (1.0, -1.0))
        return (up - down) / (2 * step), up

    def _forward(self, arrays: list[np.ndarray], x: np.ndarray) -> np.ndarray:
        moved = [x if i == self.operand else a for i, a in enumerate(arrays)]
        return op_value(self.op, self.types, moved, self.attrs, self.out)

    def _gradient(self, arrays: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
        leaves = [Tensor(t) for t in self.types]
        seed = Tensor(self.out)
        node = make_node(self.op, tuple(leaves), self.attrs, self.out)
        piece = vjp_of(node, seed, node, leaves)[self.operand]
        if piece is None:
            return np.zeros(self.types[self.operand].shape)
        feed = dict(zip(leaves, arrays, strict=True)) | {seed: weights}
        return evaluate([piece], feed)[0].astype(np.float64)


def alone(derivation: Derivation, values: Sequence[np.ndarray | None]) -> Program:
    """A program with only the op, with its operands as inputs."""
    op = OPS[derivation.op]
    rng = np.random.default_rng(0)
    arrays = tuple(
        _sample(rng, op, i, t).astype(t.dtype.numpy) if a is None else a
        for i, (a, t) in enumerate(zip(values, derivation.types, strict=True))
    )
    inputs = tuple(Argument(f"x{i}", t) for i, t in enumerate(derivation.types))
    assert op.infer is not None
    out = op.infer(derivation.types, derivation.attrs)
    args = tuple(Input(i) for i in range(len(inputs)))
    step = Step(derivation.op, args, derivation.attrs, out, 0, derivation.location)
    return Program(Plan(Signature(inputs, ()), (step,), (Slot(0),)), arrays)


def all_derivations(plan: Plan) -> list[Derivation]:
    """A derivation for every float operand of every step with a vjp, differentiated or not."""
    derivations = []
    for step in plan.steps:
        types = tuple(plan.type_of(a) for a in step.args)
        if OPS[step.op].vjp is None or not step.out_type.dtype.is_float:
            continue
        for operand, type_ in enumerate(types):
            if type_.dtype.is_float:
                derivations.append(
                    Derivation(
                        step.op, step.attrs, step.args, types, operand, step.out_slot, step.location
                    )
                )
    return derivations


def _wide(value: Any) -> Any:
    return f64 if isinstance(value, DType) and value.is_float else value


def _sum(array: np.ndarray) -> float:
    """The sum of the finite elements."""
    return float(np.sum(np.where(np.isfinite(array), array, 0.0)))


def _sizes(x: np.ndarray) -> np.ndarray:
    """The perturbation of each element: relative to its size, and absolute if it is zero."""
    magnitude = np.where(np.isfinite(x), np.abs(x), 0.0)
    mean = float(magnitude.mean())
    return np.maximum(magnitude, 1e-3 * mean if mean > 0 else 1.0)


def _sample(rng: np.random.Generator, op: Op, operand: int, type_: TensorType) -> np.ndarray:
    """A value for an operand that the gradient does not depend on."""
    if not type_.dtype.is_float:
        return np.zeros(type_.shape, type_.dtype.numpy)
    domain = op.domain if isinstance(op.domain, str) else op.domain[operand]
    low, high = {"unit": (-0.9, 0.9), "probability": (0.1, 0.9), "ge1": (1.1, 3.0)}.get(
        domain, (0.5, 2.0) if domain in ("positive", "nonzero") else (-2.0, 2.0)
    )
    return rng.uniform(low, high, type_.shape)
