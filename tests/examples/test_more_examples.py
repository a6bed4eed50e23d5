"""The LSTM language model, deep Q-learning and the neural ODE, trained like the same in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import nova
from nova import optim

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 8
RNG = np.random.default_rng(11)


def load(file: str, library: str = "nova") -> SimpleNamespace:
    """The names of an example, over `nova` or over `torch`."""
    path = EXAMPLES / file
    text = path.read_text().replace("nova as lib", f"{library} as lib")
    text = text.replace("from nova import nn", f"from {library} import nn")
    space: dict[str, Any] = {"__name__": f"{path.stem}_of_{library}", "__file__": str(path)}
    exec(compile(text, library, "exec"), space)
    return SimpleNamespace(**space)


def with_same_weights(nova_model: Any, torch_model: Any) -> tuple[Any, Any]:
    assert list(nova_model.state_dict()) == list(torch_model.state_dict())
    nova_model.load_state_dict({n: t.numpy() for n, t in torch_model.state_dict().items()})
    return nova_model, torch_model


def assert_same_weights(nova_model: Any, torch_model: Any) -> None:
    for name, tensor in torch_model.state_dict().items():
        np.testing.assert_allclose(
            nova_model.state_dict()[name], tensor.numpy(), rtol=2e-3, atol=2e-4, err_msg=name
        )


def torch_step(model: Any, optimizer: Any, loss: Callable[[], Any]) -> float:
    optimizer.zero_grad()
    value = loss()
    value.backward()
    optimizer.step()
    return value.item()


def test_lstm_language_model() -> None:
    """The state of each piece of the text is that after the piece before it."""
    torch.manual_seed(0)
    example = load("lstm_lm.py")
    alphabet, data = example.pieces(example.TEXT.read_text(), batch=3, length=5)
    nova_model, torch_model = with_same_weights(
        example.LanguageModel(len(alphabet), 8),
        load("lstm_lm.py", "torch").LanguageModel(len(alphabet), 8),
    )
    count = len(alphabet)

    def loss(m: Any, tokens: Any, following: Any, hidden: Any, cell: Any) -> Any:
        scores, state = m(tokens, hidden, cell)
        return nova.cross_entropy(scores.reshape(-1, count), following.reshape(-1)), state

    step = nova.train_step(nova_model, loss, optim.SGD(nova_model.parameters(), 0.5), has_aux=True)
    optimizer = torch.optim.SGD(torch_model.parameters(), 0.5)
    state = (np.zeros((2, 3, 8), "f4"),) * 2
    torch_state = (torch.zeros(2, 3, 8),) * 2
    for i, piece in enumerate(data[:STEPS]):
        tokens, following = (np.ascontiguousarray(a) for a in (piece[:, :-1], piece[:, 1:]))
        value, state = step(tokens, following, *state)
        scores, after = torch_model(torch.tensor(tokens), *torch_state)
        target = torch.tensor(following).reshape(-1)
        expected = torch_step(
            torch_model,
            optimizer,
            lambda s=scores, t=target: tf.cross_entropy(s.reshape(-1, count), t),
        )
        torch_state = tuple(t.detach() for t in after)
        np.testing.assert_allclose(value, expected, rtol=1e-4, err_msg=f"piece {i}")
        np.testing.assert_allclose(state[1], torch_state[1], rtol=1e-3, atol=1e-5)
    assert_same_weights(nova_model, torch_model)


def test_deep_q_learning() -> None:
    """Two networks of each library over the same transitions; the target follows now and then."""
    torch.manual_seed(1)
    nova_example, torch_example = load("dqn.py"), load("dqn.py", "torch")
    nova_model, torch_model = with_same_weights(
        nova_example.QNetwork(4, 16), torch_example.QNetwork(4, 16)
    )
    target, torch_target = with_same_weights(
        nova_example.QNetwork(4, 16), torch_example.QNetwork(4, 16)
    )
    step = nova.train_step(
        nova_model, nova_example.td_loss, optim.Adam(nova_model.parameters(), 1e-2)
    )
    optimizer = torch.optim.Adam(torch_model.parameters(), 1e-2)
    predict = nova.jit(target)
    game, memory = nova_example.CartPole(RNG), nova_example.Memory(64)
    state = game.reset()
    for _ in range(64):
        action = int(RNG.integers(2))
        after, reward, fallen = game.step(action)
        memory.add(state, action, reward, after, fallen)
        state = game.reset() if fallen else after
    for i in range(STEPS):
        if i % 3 == 2:
            target.load_state_dict(nova_model.state_dict())
            torch_target.load_state_dict(torch_model.state_dict())
        states, actions, rewards, nexts, ends = memory.draw(16, RNG)
        chosen = np.eye(2, dtype="f4")[actions]
        value = step(states, chosen, nova_example.returns_of(rewards, predict(nexts), ends))
        with torch.no_grad():
            best = torch_target(torch.tensor(nexts)).numpy()
        arrays = [
            torch.tensor(a) for a in (states, chosen, nova_example.returns_of(rewards, best, ends))
        ]
        expected = torch_step(
            torch_model, optimizer, lambda a=arrays: torch_example.td_loss(torch_model, *a)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-3, err_msg=f"step {i}")
    assert_same_weights(nova_model, torch_model)


def test_neural_ode() -> None:
    """The gradient through the loop of Runge-Kutta steps is that of the steps written out."""
    torch.manual_seed(2)
    example = load("neural_ode.py")
    torch_model = torch.nn.Module()
    torch_model.layers = torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
    )
    nova_model, torch_model = with_same_weights(example.Dynamics(16), torch_model)
    starts = RNG.uniform(-1, 1, (6, 2)).astype("f4")
    true_states = example.spiral(starts, 5)

    def loss(m: Any, start: Any, states: Any) -> Any:
        return nova.abs(example.trajectory(m, start, 5) - states).mean()

    def torch_loss() -> Any:
        y, states = torch.tensor(starts), []
        for _ in range(5):
            y = example.runge_kutta(lambda z: torch_model.layers(z**3), y)
            states.append(y)
        return (torch.stack(states) - torch.tensor(true_states)).abs().mean()

    step = nova.train_step(nova_model, loss, optim.SGD(nova_model.parameters(), 0.1, momentum=0.9))
    optimizer = torch.optim.SGD(torch_model.parameters(), 0.1, momentum=0.9)
    for i in range(STEPS):
        expected = torch_step(torch_model, optimizer, torch_loss)
        np.testing.assert_allclose(
            step(starts, true_states), expected, rtol=1e-4, err_msg=f"step {i}"
        )
    assert_same_weights(nova_model, torch_model)


@pytest.mark.slow
def test_they_learn(capsys: pytest.CaptureFixture[str]) -> None:
    losses = load("lstm_lm.py").main(epochs=3)
    assert losses[-1] < 0.85 * losses[0]
    losses = load("neural_ode.py").main(iterations=120)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    lengths = load("dqn.py").main(episodes=110)
    assert np.mean(lengths[-10:]) > 2 * np.mean(lengths[:10])
    assert "episode 110" in capsys.readouterr().out
