"""All examples with symbolic batches and sequences, against static programs.

Both train from the same weights: loss and weights of every step agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import attention_block
import char_gpt
import demo
import digits
import dqn
import gpt
import llama
import lstm_lm
import model_zoo
import neural_ode

RNG = np.random.default_rng(3)
BATCHES = (1, 2, 7, 5)
"""Batches of consecutive steps, in which the weights change."""


def images(n: int) -> np.ndarray:
    return RNG.standard_normal((n, 3, 16, 16)).astype("f4")


def labels(n: int) -> np.ndarray:
    return RNG.integers(0, 10, n)


def tokens(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    rows = RNG.integers(0, 32, (n, length + 1))
    return rows[:, :-1], rows[:, 1:]


def cross_entropy(m: Any, x: Any, y: Any) -> Any:
    return nova.cross_entropy(m(x), y)


def train_both(
    make: Callable[[], nn.Module],
    loss: Callable[..., Any],
    dynamic: dict[str, Any],
    batches: list[tuple[np.ndarray, ...]],
    tolerance: float = 1e-4,
    optimize: Callable[[list[Any]], Any] = lambda parameters: optim.SGD(parameters, 0.01),
) -> None:
    """Train a model with symbolic and one with static sizes on the same batches."""
    steps, models = [], []
    for axes in (dynamic, False):
        nn.manual_seed(0)
        model = make()
        optimizer = optimize(model.parameters())
        steps.append(nova.train_step(model, loss, optimizer, dynamic=axes))
        models.append(model)
    for number, arrays in enumerate(batches):
        symbolic, static = (step(*arrays) for step in steps)
        np.testing.assert_allclose(symbolic, static, rtol=tolerance, err_msg=f"step {number}")
    states = [model.state_dict() for model in models]
    for name, value in states[1].items():
        scale = max(1.0, np.abs(value).max())
        assert np.abs(states[0][name] - value).max() <= tolerance * scale, name
    assert [len(step.plan.dims) > 0 for step in steps] == [True, False]


def rows(least: int = 1) -> dict[str, Any]:
    batch = nova.dim("batch", min=least, max=64)
    return {"x": {0: batch}, "y": {0: batch}}


def test_digits() -> None:
    batches = [(RNG.random((n, 64), dtype="f4"), labels(n)) for n in (64, 64, 17)]

    def make() -> nn.Module:
        model = digits.make_model()
        model.eval()  # dropout draws other numbers for other sizes of a program
        return model

    train_both(make, cross_entropy, rows(), batches)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("Discriminator", "ResNet", "MobileNet", "ViT")
    ],
)
def test_classifiers(name: str) -> None:
    sizes = {"ResNet": ((1, 1), 8), "MobileNet": (8, 2), "ViT": (), "Discriminator": ()}[name]

    def loss(m: Any, x: Any, y: Any) -> Any:
        scores = m(x)
        return (
            (scores * scores).mean() if name == "Discriminator" else nova.cross_entropy(scores, y)
        )

    # Batch norms need two images or more.
    channels = 1 if name == "Discriminator" else 3
    batches = [(images(n)[:, :channels], labels(n)) for n in (2, 7, 5)]
    train_both(lambda: getattr(model_zoo, name)(*sizes), loss, rows(2), batches, 2e-3)


@pytest.mark.slow
def test_unet() -> None:
    batches = [(images(n), RNG.integers(0, 2, (n, 16, 16))) for n in (2, 5)]
    train_both(lambda: model_zoo.UNet(width=8), cross_entropy, rows(2), batches, 2e-3)


@pytest.mark.slow
def test_autoencoder() -> None:
    def loss(m: Any, x: Any, y: Any) -> Any:
        out = m(x, y)
        parts = out if isinstance(out, tuple) else (out,)
        return sum(((p * p).mean() for p in parts), start=nova.tensor(0.0))

    batches = [
        (RNG.random((n, 64), dtype="f4"), RNG.standard_normal((n, 4)).astype("f4")) for n in BATCHES
    ]
    train_both(model_zoo.VAE, loss, rows(), batches)


@pytest.mark.slow
def test_generator() -> None:
    batches = [(RNG.standard_normal((n, 8, 1, 1)).astype("f4"), labels(n)) for n in (2, 5)]

    def loss(m: Any, x: Any, y: Any) -> Any:
        made = m(x)
        return (made * made).mean() + 0.0 * y.sum()

    train_both(model_zoo.Generator, loss, rows(2), batches, 2e-3)


@pytest.mark.parametrize(
    "lengths", [(8, 8), pytest.param((1, 7, 16, 31, 32), marks=pytest.mark.slow)]
)
def test_gpt_of_any_batch_and_length(lengths: tuple[int, ...]) -> None:
    config = gpt.Config(vocabulary=32, context=256, width=32, layers=1, heads=2, dropout=0.0)
    batch, length = nova.dim("batch", min=1, max=64), nova.dim("length", min=1, max=256)
    axes = {0: batch, 1: length}
    batches = [tokens(n, t) for n, t in zip((1, 3, 2, 5, 4), lengths, strict=False)]
    train_both(
        lambda: gpt.GPT(config),
        lambda m, x, y: m.loss(x, y),
        {"x": axes, "y": axes},
        batches,
    )


@pytest.mark.parametrize(
    "sizes", [((2, 16), (3, 31)), pytest.param(((1, 1), (1, 65)), marks=pytest.mark.slow)]
)
def test_attention_block(sizes: tuple[tuple[int, int], ...]) -> None:
    params = attention_block.make_parameters(RNG)
    axes = {0: nova.dim("batch", min=1), 1: nova.dim("time", min=1)}
    function = nova.value_and_grad(attention_block.loss)
    symbolic = nova.jit(function, dynamic={"x": axes, "target": axes})
    for batch, time in sizes:
        x, target = (
            RNG.standard_normal((batch, time, attention_block.WIDTH)).astype("f4") for _ in range(2)
        )
        value, gradients = symbolic(params, x, target)
        expected, others = nova.jit(function)(params, x, target)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        for name, gradient in others.items():
            np.testing.assert_allclose(gradients[name], gradient, rtol=1e-3, atol=1e-5)
    assert symbolic.cache_info().misses == 1


def test_linear_regression() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return nova.mse_loss(x @ w, y)

    samples = nova.dim("samples", min=1)
    step = nova.jit(nova.value_and_grad(loss), dynamic={"x": {0: samples}, "y": {0: samples}})
    static = nova.jit(nova.value_and_grad(loss))
    w = np.zeros(3, "f4")
    for n in (64, 1, 17, 129):
        x, y = RNG.standard_normal((n, 3)).astype("f4"), RNG.standard_normal(n).astype("f4")
        for actual, expected in zip(step(w, x, y), static(w, x, y), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        w = w - np.float32(0.1) * np.asarray(step(w, x, y)[1])


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its training and its saved program; the last batch of an epoch is smaller."""
    images, labels, test_images, test_labels = (array[:150] for array in digits.load_data())
    losses, programs = [], []
    for dynamic in (rows(), False):
        batches = nova.data.Batches(images, labels, batch_size=64, drop_last=False, seed=2)
        model = digits.make_model()
        model.eval()  # dropout draws other numbers for other sizes of a program
        step = digits.make_step(model, 15)
        step = nova.train_step(model, cross_entropy, step.optimizer, dynamic=dynamic)
        losses.append(demo.train(step, batches, 5).epoch_losses)
        x = nova.input((nova.dim("n", min=0), 64), name="x")
        x = x if dynamic else nova.tensor(test_images, name="x")
        programs.append(nova.compile(nova.softmax(model(x)), inputs=[x]))
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert "epoch   4" in capsys.readouterr().out
    symbolic, static = programs
    expected = static(test_images)
    symbolic.save(tmp_path / "digits.nova")
    loaded = nova.load(tmp_path / "digits.nova")
    for n in (0, 1, 17, 63, 64, 65, 150):
        actual = symbolic(test_images[:n])
        assert np.array_equal(loaded(test_images[:n]), actual)
        np.testing.assert_allclose(actual, expected[:n], atol=1e-4)
    assert (expected.argmax(1) == test_labels).mean() > 0.5


@pytest.mark.parametrize(
    "sizes", [((3, 16), (1, 31)), pytest.param(((1, 1), (2, 65), (4, 8)), marks=pytest.mark.slow)]
)
def test_char_gpt(sizes: tuple[tuple[int, int], ...]) -> None:
    """AdamW with a schedule and clipped gradients, then windows that grow to the context."""
    characters = char_gpt.Characters(char_gpt.TEXT.read_text())
    data = characters.encode(char_gpt.TEXT.read_text())
    config = gpt.Config(len(characters.alphabet), 256, 24, 2, 1)

    def adamw(parameters: list[Any]) -> optim.Optimizer:
        rate = optim.LinearWarmup(optim.CosineAnnealing(3e-3, 8), 2)
        return optim.AdamW(parameters, lr=rate, clip_norm=1.0)

    axes = {0: nova.dim("batch", min=1, max=64), 1: nova.dim("length", min=1, max=256)}
    batches = [char_gpt.random_windows(data, length, batch, RNG) for batch, length in sizes]
    train_both(
        lambda: gpt.GPT(config),
        lambda m, x, y: m.loss(x, y),
        {"x": axes, "y": axes},
        batches,
        5e-4,  # AdamW divides small gradients by themselves
        optimize=adamw,
    )

    nn.manual_seed(0)
    model = gpt.GPT(config)
    scores = nova.jit(model, dynamic={"tokens": {1: axes[1]}})
    static, window = nova.jit(model), np.zeros((1, 32), np.int64)
    for length in (1, 2, 17, 31, 32):
        window[0, :length] = data[:length]
        expected = static(window)[:, :length]  # attention is causal: the rest changes nothing
        np.testing.assert_allclose(scores(window[:, :length]), expected, atol=1e-5)
    assert scores.cache_info().misses == 1


@pytest.mark.parametrize(
    "sizes",
    [((3, (5, 5)), (1, (2,))), pytest.param(((2, (17, 1)), (8, (16,))), marks=pytest.mark.slow)],
)
def test_lstm_language_model(sizes: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    """The scan is over an axis of symbolic size; the state is that after the last piece."""
    width, alphabet = 8, 20
    axes = {0: nova.dim("batch", min=1, max=64), 1: nova.dim("length", min=1, max=256)}
    state_axes = {1: axes[0]}
    dynamic = {"tokens": axes, "following": axes, "hidden": state_axes, "cell": state_axes}

    def loss(m: Any, tokens: Any, following: Any, hidden: Any, cell: Any) -> Any:
        scores, state = m(tokens, hidden, cell)
        return nova.cross_entropy(scores.reshape(-1, alphabet), following.reshape(-1)), state

    steps, models = [], []
    for marks in (dynamic, False):
        nn.manual_seed(0)
        models.append(lstm_lm.LanguageModel(alphabet, width))
        optimizer = optim.Adam(models[-1].parameters(), 1e-2)
        steps.append(nova.train_step(models[-1], loss, optimizer, has_aux=True, dynamic=marks))
    for batch, lengths in sizes:
        states = [(np.zeros((2, batch, width), "f4"),) * 2 for _ in steps]
        for length in lengths:
            data = RNG.integers(0, alphabet, (batch, length + 1))
            pieces = [np.ascontiguousarray(part) for part in (data[:, :-1], data[:, 1:])]
            values = []
            for i, step in enumerate(steps):
                value, states[i] = step(*pieces, *states[i])
                values.append(value)
            np.testing.assert_allclose(*values, rtol=1e-4)
            np.testing.assert_allclose(*states, rtol=1e-3, atol=1e-5)
    for name, value in models[1].state_dict().items():
        np.testing.assert_allclose(models[0].state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_deep_q_learning() -> None:
    """Any number of transitions, and the policy for any number of states."""
    game, memory = dqn.CartPole(np.random.default_rng(1)), dqn.Memory(64)
    state = game.reset()
    for number in range(64):
        after, reward, fallen = game.step(number % 3 % 2)
        memory.add(state, number % 3 % 2, reward, after, fallen)
        state = game.reset() if fallen else after
    nn.manual_seed(1)
    target = dqn.QNetwork(width=16)
    predict = nova.jit(target, dynamic={"state": {0: nova.dim("n", min=0)}})
    static, batches = nova.jit(target), []
    for n in (16, 1, 7, 33):
        states, actions, rewards, nexts, ends = memory.draw(n, RNG)
        np.testing.assert_allclose(predict(nexts), static(nexts), rtol=1e-5, atol=1e-6)
        returns = dqn.returns_of(rewards, predict(nexts), ends)
        batches.append((states, np.eye(2, dtype="f4")[actions], returns))
    assert predict(states[:0]).shape == (0, 2) and predict.cache_info().misses == 1
    batch = {0: nova.dim("batch", min=1)}
    train_both(
        lambda: dqn.QNetwork(width=16),
        dqn.td_loss,
        dict.fromkeys(("states", "chosen", "returns"), batch),
        batches,
        optimize=lambda parameters: optim.Adam(parameters, 1e-3),
    )


def test_neural_ode() -> None:
    """Batch and number of Runge-Kutta steps are symbolic, and so is the gradient of the loop."""
    batch, count = nova.dim("batch", min=1), nova.dim("steps", min=1)

    def loss(m: Any, start: Any, states: Any) -> Any:
        return nova.abs(neural_ode.trajectory(m, start, states.shape[0]) - states).mean()

    batches = []
    for n, steps in ((6, 5), (1, 2), (7, 1), (3, 11)):
        starts = RNG.uniform(-1, 1, (n, 2)).astype("f4")
        batches.append((starts, neural_ode.spiral(starts, steps)))
    train_both(
        lambda: neural_ode.Dynamics(16),
        loss,
        {"start": {0: batch}, "states": {0: count, 1: batch}},
        batches,
        optimize=lambda parameters: optim.Adam(parameters, 1e-2),
    )


@pytest.mark.parametrize(
    "lengths", [(2, 33), pytest.param((1, 13, 31, 32, 64), marks=pytest.mark.slow)]
)
def test_llama(lengths: tuple[int, ...]) -> None:
    """Scores of a prompt of any length, without a cache and through one of any context."""
    config = llama.Config(vocab_size=32)
    model = llama.Llama(config, llama.random_weights(config))
    length = nova.dim("length", min=1, max=64)

    def scores(tokens: Any) -> Any:
        return model.scores(model.rows(tokens, 0, None)[0])

    def cached(tokens: Any, table: Any) -> Any:
        return model.scores(model.rows(tokens, 0, model.caches(table.shape[0]))[0])

    context = nova.dim("more", min=1, max=64) + length
    dynamic = {"tokens": {0: length}, "table": {0: context}}
    programs = [
        nova.jit(scores, dynamic={"tokens": {0: length}}),
        nova.jit(cached, dynamic=dynamic),
        nova.jit(scores),
    ]
    for n in lengths:
        tokens, table = RNG.integers(0, 32, n), np.zeros(n + 7, "f4")
        symbolic, through_cache, static = (
            program(tokens, *([table] if i == 1 else [])) for i, program in enumerate(programs)
        )
        np.testing.assert_allclose(symbolic, static, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(through_cache, static, rtol=1e-4, atol=1e-4)
    assert [program.cache_info().misses for program in programs] == [1, 1, len(lengths)]
