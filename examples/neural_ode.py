"""A neural ordinary differential equation (Chen et al., 2018) that learns a spiral.

A network is the right side of dy/dt = f(y). The trajectory is one `nova.scan` of Runge-Kutta steps
(of fourth order), and the gradient is that of the loop.

    python examples/neural_ode.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nova
from nova import nn, optim

STEP = 0.1


class Dynamics(nn.Module):
    """dy/dt, from the cubes of y as in the equation of the spiral."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, y: Any) -> Any:
        return self.layers(y * y * y)


def runge_kutta(f: Any, y: Any, step: float = STEP) -> Any:
    """y after one step of the classical method of fourth order."""
    k1 = f(y)
    k2 = f(y + k1 * (step / 2))
    k3 = f(y + k2 * (step / 2))
    k4 = f(y + k3 * step)
    return y + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (step / 6)


def trajectory(f: Any, start: Any, steps: int) -> Any:
    """The states after each step, (steps, batch, 2)."""

    def advance(y: Any, _: Any) -> Any:
        after = runge_kutta(f, y)
        return after, after

    return nova.scan(advance, start, length=steps)[1]


def spiral(starts: np.ndarray, steps: int) -> np.ndarray:
    """The true states: dy/dt = A y^3."""
    matrix = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    y, states = starts.astype("f8"), []
    for _ in range(steps):
        y = runge_kutta(lambda z: z**3 @ matrix, y)
        states.append(y)
    return np.array(states, "f4")


def main(iterations: int = 300, steps: int = 10, batch: int = 16) -> list[float]:
    """Train on pieces of the spiral; returns the losses."""
    rng = np.random.default_rng(0)
    nn.manual_seed(0)
    model = Dynamics()
    points = np.concatenate([np.array([[[2.0, 0.0]]]), spiral(np.array([[2.0, 0.0]]), 250)])[:, 0]

    def loss(m: Any, start: Any, wanted: Any) -> Any:
        return nova.abs(trajectory(m, start, steps) - wanted).mean()

    step = nova.train_step(model, loss, optim.Adam(model.parameters(), 1e-2))
    losses = []
    for i in range(iterations):
        at = rng.integers(0, len(points) - steps, batch)
        wanted = np.stack([points[at + k] for k in range(1, steps + 1)]).astype("f4")
        losses.append(float(step(points[at].astype("f4"), wanted)))
        if i % 50 == 0:
            print(f"step {i}: loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
