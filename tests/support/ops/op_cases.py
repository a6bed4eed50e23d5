"""What a test sample is, and how its operands are drawn.

Comes in: shapes, attributes and domains from the `samples_*.py` tables. Goes out: numpy arrays,
always the same ones for the same op, case and type. Used by every test of this folder.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nova.core.dtypes import ALL, DType, dtype, f32
from nova.graph import FUNCTIONS, Tensor
from nova.graph.tensor import placeholder
from nova.ops import OPS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Draw:
    """An operand: its shape, its domain (None: the row's) and, for an index, the axis size."""

    shape: Shape
    domain: str | None = None
    size: int = 0


@dataclass(frozen=True)
class Case:
    """One use of an op: operands and attributes."""

    operands: tuple[Draw, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ", ".join(str(list(d.shape)) for d in self.operands)
        return f"({shapes})" + (f" {self.attrs}" if self.attrs else "")


@dataclass(frozen=True)
class Sample:
    """All cases of one row and its reference.

    torch    the same function over torch tensors, differentiable; f64 or i64 tensors come in.
    numpy    instead of it, a reference over f64 or i64 arrays.
    typed    how many of the first cases are run in every type; the others in f32.
    large    cases above the size from which kernels are tiled.
    dtypes   the types that the varying operands may have.
    grad     False: there is no gradient to compare.
    rounds   how often f16 and bf16 results are rounded on their way (composites: more than once).
    """

    cases: tuple[Case, ...]
    torch: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    typed: int = 3
    large: tuple[Case, ...] = ()
    dtypes: tuple[DType, ...] = ALL
    grad: bool = True
    rounds: int = 1

    @property
    def usual(self) -> DType:
        """f32, or the first type of a row of integers."""
        return f32 if f32 in self.dtypes else self.dtypes[0]


def case(*operands: Shape | Draw, **attrs: Any) -> Case:
    """`case((3, 1), (5,), axis=0)`."""
    return Case(tuple(o if isinstance(o, Draw) else Draw(o) for o in operands), attrs)


def index(shape: Shape, size: int) -> Draw:
    """An index operand: positions of an axis of `size`, half of them counted from the end."""
    return Draw(shape, "index", size)


def seed() -> Draw:
    """The seed of a random op."""
    return Draw((), "seed")


def constant(shape: Shape, value: int) -> Draw:
    """Integers that are all `value`."""
    return Draw(shape, "constant", value)


# --- drawing --------------------------------------------------------------------------------------

# Operands with a type of their own, and those that torch has no gradient for.
FIXED = {"index", "constant", "steps", "seed", "bool", "blocks"}
NO_GRADIENT = {*FIXED, "weight", "mask"}

_FLOAT = {
    "real": lambda rng, shape: rng.standard_normal(shape),
    "sorted": lambda rng, shape: np.sort(rng.standard_normal(shape), -1),
    "positive": lambda rng, shape: rng.uniform(0.3, 3.0, shape),
    "unit": lambda rng, shape: rng.uniform(-0.9, 0.9, shape),
    "nonzero": lambda rng, shape: rng.uniform(0.4, 2.5, shape) * rng.choice([-1.0, 1.0], shape),
    "ge1": lambda rng, shape: rng.uniform(1.1, 3.0, shape),
    "probability": lambda rng, shape: rng.uniform(0.05, 0.95, shape),
    "sign": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "weight": lambda rng, shape: rng.uniform(0.3, 3.0, shape),
    "mask": lambda rng, shape: np.where(rng.random(shape) < 0.3, -np.inf, rng.random(shape)),
}
_INTEGER = {
    "real": (-9, 10),
    "sorted": (-9, 10),
    "positive": (1, 7),
    "unit": (-1, 2),
    "nonzero": (1, 10),
    "ge1": (1, 9),
    "probability": (0, 2),
    "sign": (0, 2),
    "weight": (1, 4),
}


def domains(name: str, case: Case) -> list[str]:
    """The domain of every operand of a case."""
    row = OPS[name].domain
    every = [row] * len(case.operands) if isinstance(row, str) else list(row)
    return [d.domain or every[i] for i, d in enumerate(case.operands)]


def varies(name: str, case: Case) -> list[bool]:
    """Which operands take the type under test, rather than one of their own."""
    return [d not in FIXED for d in domains(name, case)]


def draw(name: str, case: Case, type_: DType) -> list[np.ndarray]:
    """The operands of a case, the varying ones as `type_`."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {case}".encode()))
    modes = domains(name, case)
    return [_array(rng, d, k, type_) for d, k in zip(case.operands, modes, strict=True)]


def packed_blocks(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Packed blocks of any format: every pair of bytes is an f16 number of about 0 to 2.

    A byte at an odd offset is the upper one of a scale in all formats that the tests use.
    """
    blocks = rng.integers(0, 256, shape, dtype=np.uint8)
    blocks[..., 1::2] &= 0x3B
    return blocks


def _array(rng: np.random.Generator, spec: Draw, kind: str, type_: DType) -> np.ndarray:
    if kind == "index":
        return rng.integers(-spec.size, max(spec.size, 1), spec.shape).astype(np.int64)
    if kind == "constant":
        return np.full(spec.shape, spec.size, np.int64)
    if kind == "steps":
        counts = rng.integers(0, 6, spec.shape)
        return np.cumsum(counts).astype(np.int64) - counts[:1]
    if kind == "seed":
        return np.asarray(rng.integers(-(2**40), 2**40), np.int64)
    if kind == "bool":
        return np.asarray(rng.random(spec.shape) < 0.6)
    if kind == "blocks":
        return packed_blocks(rng, spec.shape)
    if kind == "mask" and not type_.is_float:
        return np.asarray(_FLOAT[kind](rng, spec.shape)).astype(np.float32)
    if type_.is_float:
        return np.asarray(_FLOAT[kind](rng, spec.shape)).astype(type_.numpy)
    low, high = _INTEGER[kind]
    low = max(low, 0) if type_.kind != "i" else low
    values = np.asarray(rng.integers(low, high, spec.shape))
    if kind == "nonzero" and type_.kind == "i":
        values = np.asarray(values * rng.choice([-1, 1], spec.shape))
    values = np.sort(values, -1) if kind == "sorted" else values
    return values.astype(type_.numpy)


# --- building -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """A case as graph: placeholders, the arrays for them, and the op's results."""

    name: str
    case: Case
    type: DType
    inputs: list[Tensor]
    arrays: list[np.ndarray]
    outputs: list[Tensor]

    @property
    def title(self) -> str:
        return f"{self.name}{self.case} of {self.type}"

    @property
    def sources(self) -> list[int]:
        """Positions of the operands that gradients are taken of."""
        modes = domains(self.name, self.case)
        return [
            i for i, k in enumerate(modes) if k not in NO_GRADIENT and self.inputs[i].dtype.is_float
        ]


def build(name: str, case: Case, type_: DType, arrays: list[np.ndarray] | None = None) -> Built:
    """The case over placeholders of `type_`."""
    arrays = draw(name, case, type_) if arrays is None else arrays
    inputs = [placeholder(a.shape, dtype(a.dtype)) for a in arrays]
    result = FUNCTIONS[name](*inputs, **case.attrs)
    outputs = list(result) if isinstance(result, tuple) else [result]
    return Built(name, case, type_, inputs, arrays, outputs)
