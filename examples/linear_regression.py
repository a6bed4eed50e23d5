"""Linear regression by gradient descent: the smallest program that trains.

The gradient is a graph value like any other, so the update is ordinary arithmetic, and the whole
step (loss, gradient, update) is one compiled program.
"""

from __future__ import annotations

import numpy as np

import nova


def main() -> np.ndarray:
    rng = np.random.default_rng(0)
    truth = np.array([2.0, -3.0, 0.5], np.float32)
    x = rng.standard_normal((64, 3), np.float32)
    y = x @ truth + np.float32(0.01) * rng.standard_normal(64, np.float32)

    X, Y = nova.tensor(x, name="X"), nova.tensor(y, name="Y")
    W = nova.tensor(np.zeros(3, np.float32), requires_grad=True, name="W")
    loss = nova.mse_loss(X @ W, Y)
    nova.backward(loss)
    step = nova.compile(loss, inputs=[X, Y], params=[W], updates={W: W - 0.1 * W.grad})

    w = np.zeros(3, np.float32)
    for number in range(100):
        value = step.run([x, y], [w])
        if number % 25 == 0:
            print(f"step {number:3d}  loss {value:.6f}  w {np.round(w, 3)}")
    print(f"found {np.round(w, 3)}, the truth is {truth}")
    return w


if __name__ == "__main__":
    main()
