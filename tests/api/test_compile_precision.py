"""`nova.compile(..., precision=)` and `Module.to`: inference in 16-bit floats, against torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova import nn

_RANDOM = np.random.default_rng(3)


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.norm = nn.LayerNorm(24)
        self.first = nn.Linear(24, 48)
        self.second = nn.Linear(48, 8)

    def forward(self, x: nova.Tensor) -> nova.Tensor:
        hidden = nova.gelu(self.first(self.norm(x)))
        return nova.softmax(self.second(hidden), axis=-1)


def as_torch(model: Mlp, dtype: Any) -> torch.nn.Module:
    state = {name: torch.from_numpy(np.array(value)) for name, value in model.state_dict().items()}

    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = {name: value.to(dtype) for name, value in state.items()}
            f = torch.nn.functional
            x = f.layer_norm(x.to(dtype), (24,), w["norm.weight"], w["norm.bias"])
            x = f.gelu(f.linear(x, w["first.weight"], w["first.bias"]))
            return f.softmax(f.linear(x, w["second.weight"], w["second.bias"]), -1)

    return Same()


@pytest.mark.parametrize(
    ("name", "dtype", "close"),
    [("bf16", torch.bfloat16, 2e-2), ("f16", torch.float16, 4e-3)],
)
def test_a_program_computes_in_the_precision(name: str, dtype: Any, close: float) -> None:
    model = Mlp()
    x = _RANDOM.standard_normal((16, 24), np.float32)
    X = nova.tensor(x)
    params = model.parameters()
    program = nova.compile(model(X), inputs=[X], params=params, precision=name)
    result = program(x)
    assert result.dtype == np.float32 and program.signature.inputs[0].dtype == "f32"
    expected = as_torch(model, dtype)(torch.from_numpy(x)).float().numpy()
    assert np.abs(result - expected).max() < close
    exact = nova.compile(model(X), inputs=[X], params=params)(x)
    assert np.abs(result - exact).max() > 0
    half = {str(a.dtype) for a in program.signature.params}
    assert half == {name}
    # The model itself keeps its parameters.
    assert all(p.dtype is nova.f32 for p in params)


def test_an_explicit_cast_to_f32_stays() -> None:
    X = nova.tensor(np.zeros((4, 8), np.float32))
    W = nova.tensor(np.zeros((8, 8), np.float32))
    y = nova.softmax((X @ W).astype("f64").astype("f32"), axis=-1)
    program = nova.compile(y, inputs=[X], params=[W], precision="bf16")
    text = program.mlir_source
    assert "tensor<4x8xbf16>" in text and "-> tensor<4x8xf32>" in text


def test_a_frozen_program_has_constants_of_the_precision() -> None:
    model = Mlp()
    x = _RANDOM.standard_normal((4, 24), np.float32)
    X = nova.tensor(x)
    options = {"inputs": [X], "params": model.parameters(), "precision": "bf16"}
    program, frozen = (nova.compile(model(X), **options, freeze=f) for f in (False, True))
    assert not frozen.signature.params
    assert np.array_equal(program(x), frozen(x))


@pytest.mark.parametrize("name", ["f32", "bfloat16", "int8"])
def test_an_unknown_precision(name: str) -> None:
    X = nova.tensor(np.zeros(4, np.float32))
    with pytest.raises(nova.errors.AttributeValueError, match=f"precision '{name}'"):
        nova.compile(X * 2, inputs=[X], precision=name)


def test_precision_does_not_train() -> None:
    X = nova.tensor(np.zeros(4, np.float32))
    W = nova.tensor(np.ones(4, np.float32), requires_grad=True)
    for options in ({"include_backward": True}, {"updates": {W: W * 2}}):
        with pytest.raises(nova.errors.GraphError, match="inference"):
            nova.compile(nova.sum(X * W), inputs=[X], params=[W], precision="bf16", **options)


def test_to_converts_a_model() -> None:
    model = Mlp()
    reference = as_torch(model, torch.bfloat16)
    x = _RANDOM.standard_normal((16, 24), np.float32)
    assert model.to("bf16") is model
    assert {str(p.dtype) for p in model.parameters()} == {"bf16"}
    assert model.state_dict()["first.weight"].dtype == ml_dtypes.bfloat16
    result = model(x.astype(ml_dtypes.bfloat16)).numpy()
    assert result.dtype == ml_dtypes.bfloat16
    expected = reference(torch.from_numpy(x)).float().numpy()
    assert np.abs(result.astype(np.float32) - expected).max() < 2e-2
    assert {str(p.dtype) for p in model.to("f32").parameters()} == {"f32"}


def test_to_keeps_integers_and_needs_a_float() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(np.ones(3, np.float32))
            self.steps = nn.Buffer(np.zeros(3, np.int64))

    model = Counting().to("f16")
    assert model.scale.dtype is nova.f16 and model.steps.dtype is nova.i64
    with pytest.raises(nova.errors.ModuleError, match="not a float type"):
        model.to("i32")
