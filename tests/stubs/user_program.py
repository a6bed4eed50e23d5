"""A program of a user: `mypy --strict` has nothing to say about it. Read by test_stubs.py."""

import numpy as np

import nova
from nova import nn, optim


class MLP(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, 1)

    def forward(self, x: nova.Tensor) -> nova.Tensor:
        hidden: nova.Tensor = self.first(x)
        y: nova.Tensor = self.second(hidden.gelu(approximate="tanh"))
        return y


def loss_of(model: MLP, x: nova.Tensor, y: nova.Tensor) -> nova.Tensor:
    return nova.mse_loss(model(x), y, reduction="sum")


def normalise(x: nova.Tensor) -> nova.Tensor:
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = nova.rsqrt(centred.square().mean(axis=(0, 1)) + 1e-5)
    parts = nova.split(centred * scale, 2, axis=0)
    joined = nova.concat([*parts], axis=0)
    flags = joined.isfinite() & (joined > 0.0)
    return nova.where(flags, joined.reshape(-1, 4), 0.0).reshape((4, -1)).T[0:2, None]


def main() -> None:
    x = np.ones((4, 8), np.float32)
    X = nova.tensor(x, name="X")
    W = nova.tensor(np.ones((8, 2)), requires_grad=True, dtype=nova.f32, name="W")
    loss = nova.softmax(X @ W, axis=-1).sum()
    nova.backward(loss)
    program: nova.Compiled = nova.compile(loss, inputs=[X], params=[W], include_backward=True)
    program.save("model.nova")
    print(program.run([x], [W.data]), 2.0 * X, -X, X**2, X.shape, X.dtype, X.numpy().sum())
    model = MLP(8, 16)
    step = nova.train_step(model, loss_of, optim.AdamW(model.parameters(), lr=1e-3))
    print(step, nova.zeros((2, 3)), nova.arange(4), nova.pad(X, (1, 1)), X.sum().item())
    with nova.knobs.override(threads=1), nova.no_grad():
        print(nova.knobs.threads + 1, nova.load("model.nova"))
    try:
        nova.compile(loss)
    except nova.NovaError as error:
        print(error.hint)


if __name__ == "__main__":
    main()
