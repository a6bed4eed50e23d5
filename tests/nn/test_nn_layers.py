"""Every layer against torch's from the same weights: values, gradients and 50 steps of training.

The layers of one type are one compiled program, so that each test compiles once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.graph.autodiff import gradients
from nova.graph.interpret import evaluate

TOLERANCE = {"f32": 1e-5, "f64": 1e-10}
RATE = 0.002
TORCH_TYPE = {"f32": torch.float32, "f64": torch.float64}


@dataclass(frozen=True)
class Case:
    """A layer of ours, torch's, the shapes of the inputs, and how each is called."""

    name: str
    ours: Callable[[str], nn.Module]
    theirs: Callable[[], torch.nn.Module]
    shapes: tuple[tuple[int, ...], ...] = ((6, 8),)
    call: Callable[..., Any] = lambda layer, *xs: layer(*xs)
    torch_call: Callable[..., Any] = lambda layer, *xs: layer(*xs)


INDEX = np.array([[0, 4, 4], [2, 0, 1]])
MASK = np.random.default_rng(1).random((5, 5)) > 0.4
MASK[:, 0] = True
BIAS_MASK = np.random.default_rng(2).standard_normal((5, 5))


def attend(**options: Any) -> Callable[..., Any]:
    def call(layer: torch.nn.MultiheadAttention, q: Any, *kv: Any) -> Any:
        k, v = (kv * 2)[:2] if kv else (q, q)
        mask = options.get("mask")
        if options.get("causal"):
            mask = ~torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
        return layer(q, k, v, attn_mask=mask, need_weights=False)[0]

    return call


def mha(**options: Any) -> Callable[[], torch.nn.Module]:
    return lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True, **options)


CASES = [
    Case("linear", lambda d: nn.Linear(8, 5, dtype=d), lambda: torch.nn.Linear(8, 5)),
    Case(
        "linear of a batch, without bias",
        lambda d: nn.Linear(8, 5, bias=False, dtype=d),
        lambda: torch.nn.Linear(8, 5, bias=False),
        ((2, 3, 8),),
    ),
    Case(
        "embedding",
        lambda d: nn.Embedding(5, 4, dtype=d),
        lambda: torch.nn.Embedding(5, 4),
        (),
        lambda layer: layer(INDEX),
        lambda layer: layer(torch.from_numpy(INDEX)),
    ),
    Case("layer norm", lambda d: nn.LayerNorm(8, dtype=d), lambda: torch.nn.LayerNorm(8)),
    Case(
        "layer norm over two axes",
        lambda d: nn.LayerNorm((3, 8), eps=1e-3, dtype=d),
        lambda: torch.nn.LayerNorm((3, 8), eps=1e-3),
        ((2, 3, 8),),
    ),
    Case(
        "layer norm without bias",
        lambda d: nn.LayerNorm(8, bias=False, dtype=d),
        lambda: torch.nn.LayerNorm(8, bias=False),
    ),
    Case("rms norm", lambda d: nn.RMSNorm(8, dtype=d), lambda: torch.nn.RMSNorm(8)),
    Case(
        "rms norm with eps",
        lambda d: nn.RMSNorm((3, 8), eps=1e-2, elementwise_affine=False, dtype=d),
        lambda: torch.nn.RMSNorm((3, 8), eps=1e-2, elementwise_affine=False),
        ((2, 3, 8),),
    ),
    Case("gelu", lambda d: nn.GELU(), torch.nn.GELU),
    Case("gelu by tanh", lambda d: nn.GELU("tanh"), lambda: torch.nn.GELU("tanh")),
    Case("relu", lambda d: nn.ReLU(), torch.nn.ReLU),
    Case("silu", lambda d: nn.SiLU(), torch.nn.SiLU),
    Case("tanh", lambda d: nn.Tanh(), torch.nn.Tanh),
    Case(
        "sequential",
        lambda d: nn.Sequential(
            nn.Linear(8, 9, dtype=d), nn.GELU(), nn.Dropout(0.0), nn.Linear(9, 3, dtype=d)
        ),
        lambda: torch.nn.Sequential(
            torch.nn.Linear(8, 9), torch.nn.GELU(), torch.nn.Dropout(0.0), torch.nn.Linear(9, 3)
        ),
    ),
    Case(
        "causal attention",
        lambda d: nn.MultiheadAttention(8, 2, causal=True, dtype=d),
        mha(),
        ((3, 5, 8),),
        torch_call=attend(causal=True),
    ),
    Case(
        "attention without a batch and without bias",
        lambda d: nn.MultiheadAttention(8, 2, bias=False, dtype=d),
        mha(bias=False),
        ((5, 8),),
        torch_call=attend(),
    ),
    Case(
        "attention with a bool mask",
        lambda d: nn.MultiheadAttention(8, 2, dtype=d),
        mha(),
        ((3, 5, 8),),
        lambda layer, x: layer(x, mask=MASK),
        attend(mask=~torch.from_numpy(MASK)),
    ),
    Case(
        "attention with a float mask",
        lambda d: nn.MultiheadAttention(8, 2, dtype=d),
        mha(),
        ((3, 5, 8),),
        lambda layer, x: layer(x, mask=BIAS_MASK.astype(x.dtype.numpy)),
        attend(mask=torch.from_numpy(BIAS_MASK)),
    ),
    Case(
        "attention with keys and values of their own",
        lambda d: nn.MultiheadAttention(8, 2, dtype=d),
        mha(),
        ((3, 5, 8), (3, 4, 8), (3, 4, 8)),
        torch_call=attend(),
    ),
]


@dataclass
class Pair:
    """A case made ready: both layers with the same weights, and the same inputs."""

    case: Case
    ours: nn.Module
    theirs: torch.nn.Module
    inputs: list[np.ndarray]
    weight: np.ndarray | None = None


def pairs(dtype: str) -> Iterator[Pair]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for case in CASES:
        reference = case.theirs().to(TORCH_TYPE[dtype])
        with torch.no_grad():
            for parameter in reference.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        actual = case.ours(dtype)
        actual.load_state_dict(reference.state_dict())
        numpy_type = nova.core.dtypes.dtype(dtype).numpy
        inputs = [rng.standard_normal(s).astype(numpy_type) for s in case.shapes]
        pair = Pair(case, actual, reference, inputs)
        with torch.no_grad():
            shape = case.torch_call(reference, *map(torch.from_numpy, inputs)).shape
        pair.weight = rng.standard_normal(tuple(shape)).astype(numpy_type)
        yield pair


def assert_close(actual: np.ndarray, wanted: Any, dtype: str, label: str) -> None:
    wanted = wanted.detach().numpy()
    assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, label
    scale = np.abs(wanted).max(initial=0)
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=TOLERANCE[dtype] * scale, err_msg=label)


def loss_of(out: Any, weight: Any, tanh: Any) -> Any:
    return tanh(out * weight).sum()


@pytest.mark.parametrize("dtype", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_fifty_steps(dtype: str) -> None:
    """Plain gradient descent on all layers at once; the first step's gradients are compared too."""
    created, inputs, params, outputs = list(pairs(dtype)), [], [], []
    updates: dict[nova.Tensor, nova.Tensor] = {}
    for pair in created:
        xs = [nova.tensor(x, requires_grad=True) for x in pair.inputs]
        private = pair.ours.parameters()
        out = pair.case.call(pair.ours, *xs)
        loss = loss_of(out, pair.weight, nova.tanh)
        grads = gradients(loss, [*xs, *private])
        outputs += [out, *grads]
        updates |= {p: p - RATE * g for p, g in zip(private, grads[len(xs) :], strict=True)}
        inputs += xs
        params += private
    program = nova.compile(outputs, inputs=inputs, params=params, updates=updates)
    positions = [p.data.ctypes.data for p in params]
    optimizer = torch.optim.SGD([p for m in created for p in m.theirs.parameters()], lr=RATE)
    for step in range(50):
        results = iter(program.run([x.data for x in inputs], [p.data for p in params]))
        expected = torch_step(created, optimizer)
        for (label, value), actual in zip(expected, results, strict=True):
            assert_close(actual, value, dtype, f"{label}, step {step}")
    assert [p.data.ctypes.data for p in params] == positions
    for pair in created:
        for name, value in pair.theirs.named_parameters():
            actual = pair.ours.state_dict()[name]
            assert_close(actual, value, dtype, f"{pair.case.name}: {name} after 50 steps")


def torch_step(created: list[Pair], optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Outputs and gradients in the order of our program; the step is done at the end."""
    optimizer.zero_grad()
    total, values = 0.0, []
    for pair in created:
        xs = [torch.from_numpy(x).requires_grad_() for x in pair.inputs]
        out = pair.case.torch_call(pair.theirs, *xs)
        total = total + loss_of(out, torch.from_numpy(pair.weight), torch.tanh)
        names = [*(f"input {i}" for i in range(len(xs))), *dict(pair.theirs.named_parameters())]
        values.append((pair.case.name, out, names, [*xs, *pair.theirs.parameters()]))
    total.backward()
    for name, out, names, leaves in values:
        yield name, out
        for leaf_name, leaf in zip(names, leaves, strict=True):
            yield f"{name}: gradient of {leaf_name}", leaf.grad
    optimizer.step()


def test_parameters_are_named_as_torchs() -> None:
    for pair in pairs("f32"):
        reference = [n for n, _ in pair.theirs.named_parameters()]
        assert [n for n, _ in pair.ours.named_parameters()] == reference, pair.case.name


def test_attention_takes_keys_for_values() -> None:
    layer = nn.MultiheadAttention(8, 2)
    x, y = np.random.default_rng(0).standard_normal((2, 5, 8)).astype("f4")
    second, both, private, plain = evaluate([layer(x, y), layer(x, y, y), layer(x, x, x), layer(x)])
    np.testing.assert_array_equal(second, both)
    np.testing.assert_allclose(private, plain, atol=1e-6)


def test_wrong_sizes_are_refused() -> None:
    for make, message in [
        (lambda: nn.Linear(-1, 2), "Linear: a size of -1"),
        (lambda: nn.Embedding(2.5, 2), "Embedding: a size of 2.5"),
        (lambda: nn.LayerNorm((2, True)), "LayerNorm: a size of True"),
        (lambda: nn.Dropout(1.5), "Dropout: a probability of 1.5"),
        (lambda: nn.MultiheadAttention(8, 3), "8 features for 3 heads"),
        (lambda: nn.MultiheadAttention(8, 2, dropout=-1), "a probability of -1"),
    ]:
        with pytest.raises(nova.errors.AttributeValueError, match=message) as caught:
            make()
        assert __file__ in caught.value.where
    with pytest.raises(nova.errors.ShapeError, match="linear"):
        nn.Linear(3, 2)(np.ones((2, 4), "f4"))
    with pytest.raises(nova.errors.DTypeError, match="i32"):
        nn.Linear(3, 2, dtype="i32")
