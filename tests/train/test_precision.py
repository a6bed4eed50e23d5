"""Mixed precision: f32 weights, bf16 or f16 arithmetic, and the loss scaler inside of the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim

RNG = np.random.default_rng(11)
X = RNG.standard_normal((16, 6)).astype("f4")
Y = RNG.standard_normal((16, 4)).astype("f4")
HALF = {"bf16": torch.bfloat16, "f16": torch.float16}


def make_model() -> nn.Sequential:
    nn.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4))


def loss_of(model: Any, x: Any, y: Any, factor: Any) -> Any:
    return nova.mse_loss(model(x), y) * factor


def torch_loss(params: list[Any], half: torch.dtype, factor: float) -> torch.Tensor:
    """The same: casts at the parameters, the input and the output."""
    w0, b0, w1, b1 = (p.to(half) for p in params)
    linear = torch.nn.functional.linear
    out = linear(torch.tanh(linear(torch.tensor(X).to(half), w0, b0)), w1, b1)
    return torch.nn.functional.mse_loss(out.float(), torch.tensor(Y)) * factor


class Reference:
    """GradScaler and SGD with momentum, by the book."""

    def __init__(self, params: list[torch.Tensor], scaler: optim.LossScaler):
        self.params = params
        self.options = scaler
        self.scale, self.tracker, self.steps = scaler.init_scale, 0, 0
        self.sgd = torch.optim.SGD(params, 0.1, momentum=0.9)

    def step(self, factor: float) -> float:
        self.sgd.zero_grad()
        loss = torch_loss(self.params, torch.float16, factor)
        (loss * self.scale).backward()
        for p in self.params:
            p.grad /= self.scale
        if all(torch.isfinite(p.grad).all() for p in self.params):
            self.sgd.step()
            self.steps += 1
            self.tracker += 1
            if self.tracker == self.options.growth_interval:
                self.scale *= self.options.growth_factor
                self.tracker = 0
        else:
            self.scale *= self.options.backoff_factor
            self.tracker = 0
        return loss.item()


def test_f16_with_a_dynamic_scaler() -> None:
    """Overflows skip the update and halve the scale; it grows again after an interval."""
    model = make_model()
    scaler = optim.LossScaler(init_scale=2.0**13, growth_interval=4)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = nova.train_step(model, loss_of, optimizer, precision="f16", scaler=scaler)
    params = [torch.tensor(p.data.copy(), requires_grad=True) for p in model.parameters()]
    reference = Reference(params, scaler)
    skipped, scales = 0, []
    for i in range(40):
        factor = 500.0 if i in (7, 8, 20) else 1.0
        before = {name: a.copy() for name, a in step.state_dict().items()}
        completed, state = reference.steps, step.state
        loss = step(X, Y, np.float32(factor))
        np.testing.assert_allclose(loss, reference.step(factor), rtol=4e-3)
        assert loss.dtype == np.float32
        assert state["scaler.scale"] == reference.scale
        assert state["scaler.growth_tracker"] == reference.tracker
        assert state["optimizer.step"] == reference.steps
        scales.append(float(state["scaler.scale"]))
        if reference.steps == completed:
            skipped += 1
            changed = {n for n, a in step.state_dict().items() if (a != before[n]).any()}
            assert changed <= {"seed", "scaler.scale", "scaler.growth_tracker"}
    assert skipped >= 3 and max(scales) > 2.0**13 > min(scales)
    for p, q in zip(model.parameters(), params, strict=True):
        expected = q.detach().numpy()
        assert p.data.dtype == np.float32
        assert np.abs(p.data - expected).max() < 5e-3 * np.abs(expected).max()
    assert {str(s.out_type.dtype) for s in step.plan.steps if s.op == "linear"} <= {"f16"}


def test_f16_scaler_with_accumulation() -> None:
    """One overflow among the accumulated gradients skips the update they are for."""
    model = make_model()
    step = nova.train_step(
        model,
        loss_of,
        optim.SGD(model.parameters(), 0.1),
        precision="f16",
        accumulate=2,
        scaler=optim.LossScaler(init_scale=2.0**10),
    )
    start = model.parameters()[0].data.copy()
    scales = []
    for factor in (1e6, 1.0, 1.0, 1.0):
        step(X, Y, np.float32(factor))
        scales.append(float(step.state["scaler.scale"]))
        if len(scales) == 2:
            np.testing.assert_array_equal(model.parameters()[0].data, start)
    assert scales == [1024.0, 512.0, 512.0, 512.0]
    assert (model.parameters()[0].data != start).all()
    assert step.state["optimizer.step"] == 1 and step.state["scaler.growth_tracker"] == 1


def test_bf16_tracks_torch() -> None:
    model = make_model()
    step = nova.train_step(model, loss_of, optim.Adam(model.parameters(), 0.01), precision="bf16")
    params = [torch.tensor(p.data.copy(), requires_grad=True) for p in model.parameters()]
    reference = torch.optim.Adam(params, 0.01)
    for _ in range(50):
        reference.zero_grad()
        loss = torch_loss(params, torch.bfloat16, 1.0)
        loss.backward()
        reference.step()
        np.testing.assert_allclose(step(X, Y, np.float32(1)), loss.item(), rtol=2e-2)
    assert "scaler.scale" not in step.state
    assert all(p.data.dtype == np.float32 for p in model.parameters())
    # The model is as it was: in f32 outside of the step.
    assert model(X).dtype is nova.f32 and "forward" not in vars(model)
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_failed_trace_leaves_the_model_alone(precision: str) -> None:
    model = make_model()
    before = model.parameters()

    def broken(model: Any, x: Any) -> Any:
        raise RuntimeError("not today")

    step = nova.train_step(model, broken, optim.SGD(before, 0.1), precision=precision)
    with pytest.raises(RuntimeError):
        step(X)
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True))
    assert model(X).dtype is nova.f32
