"""Training steps in bf16 on a device: GEMMs by wgmma, updates, sums of columns, memory."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova import nn, optim

ROWS, INPUTS, HIDDEN = 1024, 64, 128


class _Network(nn.Module):
    def __init__(self) -> None:
        self.up = nn.Linear(INPUTS, HIDDEN)
        self.down = nn.Linear(HIDDEN, INPUTS)
        rng = np.random.default_rng(0)
        for param in self.parameters():
            param.data[...] = 0.05 * rng.standard_normal(param.shape)

    def forward(self, x: nova.Tensor) -> nova.Tensor:
        return self.down(nova.gelu(self.up(x), approximate="tanh"))


def _train(target: str, batches: list[np.ndarray]) -> tuple[list[float], dict[str, np.ndarray]]:
    model = _Network()
    step = nova.train_step(
        model,
        lambda m, x: ((m(x) - x) ** 2).mean(),
        optim.AdamW(model.parameters(), 1e-2),
        precision="bf16",
        target=target,
        run_mode="native" if target == "cpu" else "sim",
    )
    losses = [float(np.asarray(step(x))) for x in batches]
    if target != "cpu":
        assert "wgmma.mma_async" in step.compiled.stages["ptx"]
    return losses, step.state_dict()


@pytest.mark.graph_launch
def test_steps_are_those_of_the_cpu() -> None:
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((ROWS, INPUTS)).astype(np.float32) for _ in range(3)]
    with nova.knobs.override(gpu_gemm="wgmma"):
        losses, state = _train("cuda:sm_90a", batches)
    expected_losses, expected = _train("cpu", batches)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-4)
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=2e-2, atol=2e-3, err_msg=name)


def test_the_gradient_of_scores_is_written_over_them() -> None:
    rows, classes = 4096, 16_384
    scores = nova.tensor(np.zeros((rows, 8), np.float32), requires_grad=True)
    weight = nova.tensor(np.zeros((classes, 8), np.float32), requires_grad=True)
    target = nova.tensor(np.zeros(rows, np.int64))
    loss = nova.cross_entropy(nova.linear(scores, weight), target)
    nova.backward(loss)
    program = nova.compile(
        [loss, scores.grad, weight.grad],
        inputs=[scores, weight, target],
        target="cuda:sm_90a",
        run_mode="sim",
    )
    assert program.workspace_size < 1.1 * rows * classes * 4
