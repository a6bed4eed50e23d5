"""What a case of a function is, and how it is compared with torch.

In: the `cases_*.py` tables. A case calls the function of Nova and that of torch with the same
operands and keywords (`axis` is torch's `dim`, `keepdims` its `keepdim`). Used by the tests of
this folder.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import nova
from nova.core.dtypes import DType, bf16, dtype, f16, f32, f64
from nova.graph import FUNCTIONS, Tensor
from nova.graph.autodiff import gradients
from nova.graph.tensor import placeholder

TORCH_KEYWORDS = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}
TOLERANCE = {f64: (1e-11, 1e-12), f32: (1e-5, 5e-6), f16: (4e-3, 2e-3), bf16: (3e-2, 2e-2)}


@dataclass(frozen=True)
class Case:
    """One use of a function.

    operands  shapes, or (shape, domain) pairs; domains: real, positive, probability, sign, bool,
              distinct, and `index:N` for integers below N.
    args      positional arguments after the operands; `attrs` are keywords.
    torch     the function of torch over the same arguments, if it is not found by its name.
    call      how the function of either library is called: call(function, *operands).
    """

    name: str
    operands: tuple[Any, ...]
    args: tuple[Any, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    torch: Callable[..., Any] | None = None
    call: Callable[..., Any] | None = None
    grad: bool = True

    @property
    def title(self) -> str:
        return f"{self.name}{self.operands}{self.args}{self.attrs}"

    def shape(self, position: int) -> tuple[int, ...]:
        spec = self.operands[position]
        return spec[0] if spec and isinstance(spec[0], tuple) else spec

    def domain(self, position: int) -> str:
        spec = self.operands[position]
        return spec[1] if spec and isinstance(spec[0], tuple) else "real"

    def draw(self, type_: DType) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(self.title.encode()))
        return [
            _array(rng, self.shape(i), self.domain(i), type_) for i in range(len(self.operands))
        ]

    def run_nova(self, operands: Sequence[Tensor]) -> list[Tensor]:
        function = FUNCTIONS[self.name]
        if self.call is not None:
            return _listed(self.call(function, *operands))
        return _listed(function(*operands, *self.args, **self.attrs))

    def run_torch(self, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        function = self.torch or torch_function(self.name)
        if self.call is not None:
            return _listed(self.call(function, *operands))
        attrs = self.attrs
        if self.torch is None:
            attrs = {TORCH_KEYWORDS.get(k, k): v for k, v in attrs.items()}
        return _listed(function(*operands, *self.args, **attrs))


def case(name: str, *operands: Any, **attrs: Any) -> Case:
    """`case("glu", (3, 4), axis=0)`; `args`, `torch`, `call` and `grad` are fields of the case."""
    fields = {k: attrs.pop(k) for k in ("args", "torch", "call", "grad") if k in attrs}
    return Case(name, operands, attrs=attrs, **fields)


def torch_function(name: str) -> Callable[..., Any]:
    for home in (torch.nn.functional, torch, torch.linalg, torch.special, torch.Tensor):
        if hasattr(home, name):
            return getattr(home, name)
    raise AssertionError(f"torch has no {name}: give the case a reference")


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _array(
    rng: np.random.Generator, shape: tuple[int, ...], domain: str, type_: DType
) -> np.ndarray:
    if domain.startswith("index:"):
        return np.asarray(rng.integers(0, int(domain[6:]), shape), np.int64)
    if domain == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if domain == "distinct":
        count = int(np.prod(shape))
        return (rng.permutation(count).reshape(shape) - count // 2).astype(type_.numpy)
    draws = {
        "real": lambda: rng.standard_normal(shape),
        "positive": lambda: rng.uniform(0.3, 3.0, shape),
        "probability": lambda: rng.uniform(0.05, 0.95, shape),
        "sign": lambda: rng.choice([-1.0, 1.0], shape),
    }
    values = np.asarray(draws[domain]())
    return (values if type_.is_float else values * 5).astype(type_.numpy)


@dataclass(frozen=True)
class Built:
    """A case as graph, with the gradients of its float operands for random weights."""

    case: Case
    inputs: list[Tensor]
    arrays: list[np.ndarray]
    outputs: list[Tensor]
    weights: list[np.ndarray]
    grads: dict[int, Tensor]

    @property
    def results(self) -> list[Tensor]:
        return [*self.outputs, *self.grads.values()]


def build(case: Case, type_: DType, grad: bool = True) -> Built:
    arrays = case.draw(type_)
    inputs = [placeholder(a.shape, dtype(a.dtype)) for a in arrays]
    outputs = case.run_nova(inputs)
    rng = np.random.default_rng(7)
    weights = [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in outputs]
    floats = [i for i, t in enumerate(inputs) if t.dtype.is_float and case.domain(i) != "sign"]
    grads: dict[int, Tensor] = {}
    terms = [
        nova.sum(t * nova.tensor(w))
        for t, w in zip(outputs, weights, strict=True)
        if t.dtype.is_float
    ]
    if grad and case.grad and floats and terms:
        loss = terms[0]
        for term in terms[1:]:
            loss = loss + term
        grads = dict(zip(floats, gradients(loss, [inputs[i] for i in floats]), strict=True))
    return Built(case, inputs, arrays, outputs, weights, grads)


def expected(built: Built) -> list[np.ndarray]:
    """What the results should be: torch in f64, from the same rounded operands."""
    tensors = []
    for i, array in enumerate(built.arrays):
        wide = array.astype(np.float64) if built.inputs[i].dtype.is_float else array
        tensors.append(torch.tensor(wide, requires_grad=i in built.grads))
    outputs = built.case.run_torch(tensors)
    results = [o.detach().numpy() for o in outputs]
    if built.grads:
        floats = [
            (o * torch.tensor(w.astype(np.float64))).sum()
            for o, w in zip(outputs, built.weights, strict=True)
            if o.dtype.is_floating_point
        ]
        result = torch.autograd.grad(sum(floats), [tensors[i] for i in built.grads])
        results += [g.detach().numpy() for g in result]
    return results


def check_cases(cases: Sequence[Case], type_: DType, grad: bool = True, **options: Any) -> None:
    """Compile the cases together, run them, and compare all results with torch."""
    built = [build(c, type_, grad) for c in cases]
    program = nova.compile(
        [t for b in built for t in b.results],
        inputs=[t for b in built for t in b.inputs],
        **options,
    )
    values = program.run([a for b in built for a in b.arrays])
    actual = iter(values if isinstance(values, tuple) else [values])
    for b in built:
        for position, want in enumerate(expected(b)):
            _compare(next(actual), want, f"result {position} of {b.case.title} in {type_}")


def _compare(actual: np.ndarray, want: np.ndarray, title: str) -> None:
    assert actual.shape == want.shape, f"{title}: shape {actual.shape}, not {want.shape}"
    mode = dtype(actual.dtype)
    if not mode.is_float:
        assert np.array_equal(actual, want.astype(actual.dtype)), f"{title}: {actual} != {want}"
        return
    relative, absolute = TOLERANCE[mode]
    scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)))
    assert np.allclose(
        actual.astype(np.float64), want, rtol=relative, atol=absolute * scale, equal_nan=True
    ), f"{title}:\n{actual}\n!=\n{want}"
