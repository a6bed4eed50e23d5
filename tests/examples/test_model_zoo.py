"""The models of `examples/model_zoo.py`, trained like the same source run with torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import nova
from nova import optim

SOURCE = Path(__file__).parents[2] / "examples" / "model_zoo.py"
STEPS = 5
RNG = np.random.default_rng(7)
IMAGES = RNG.standard_normal((4, 3, 16, 16)).astype("f4")
LABELS = RNG.integers(0, 10, 4)


def load(library: str) -> SimpleNamespace:
    """The classes of the example, over `nova` or over `torch`."""
    text = SOURCE.read_text().replace("nova as lib", f"{library} as lib")
    space: dict[str, Any] = {"__name__": f"zoo_of_{library}"}
    exec(
        compile(text.replace("from nova import nn", f"from {library} import nn"), library, "exec"),
        space,
    )
    return SimpleNamespace(**space)


OURS, THEIRS = load("nova"), load("torch")


def pair(name: str, *args: Any) -> tuple[Any, Any]:
    """A model of each library with the same weights."""
    theirs, ours = getattr(THEIRS, name)(*args), getattr(OURS, name)(*args)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({n: t.numpy() for n, t in theirs.state_dict().items()})
    return ours, theirs


def train_beside(
    ours: Any, theirs: Any, loss: Any, torch_loss: Any, arrays: tuple[Any, ...]
) -> None:
    step = nova.train_step(ours, loss, optim.SGD(ours.parameters(), 0.05, momentum=0.9))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.05, momentum=0.9)
    tensors = [torch.tensor(a) for a in arrays]
    for i in range(STEPS):
        optimizer.zero_grad()
        expected = torch_loss(theirs, *tensors)
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(step(*arrays), expected.item(), rtol=2e-3, err_msg=f"step {i}")
    for name, tensor in theirs.state_dict().items():
        actual, want = ours.state_dict()[name], tensor.numpy()
        assert np.abs(actual - want).max() <= 2e-2 * max(1.0, np.abs(want).max()), name


def classify(m: Any, x: Any, y: Any) -> Any:
    return nova.cross_entropy(m(x), y)


def torch_classify(m: Any, x: Any, y: Any) -> Any:
    return tf.cross_entropy(m(x), y)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("ResNet", ((1, 1), 8)),
        pytest.param("MobileNet", (8, 1), marks=pytest.mark.slow),
        ("ViT", (8, 16, 2, 1)),
        pytest.param("ResNet", ((2, 2, 2, 2), 16), marks=pytest.mark.slow),
        pytest.param("ResNet", ((3, 4, 6, 3), 4, 10, True), marks=pytest.mark.slow),
        pytest.param("MobileNet", (16, 3), marks=pytest.mark.slow),
        pytest.param("ViT", (4, 32, 4, 3), marks=pytest.mark.slow),
    ],
)
def test_classifiers(name: str, args: Any) -> None:
    torch.manual_seed(0)
    train_beside(*pair(name, *args), classify, torch_classify, (IMAGES, LABELS))


@pytest.mark.slow
def test_segmentation() -> None:
    torch.manual_seed(1)
    classes = RNG.integers(0, 2, (2, 8, 8))

    def loss(m: Any, x: Any, y: Any) -> Any:
        return nova.cross_entropy(m(x).permute(0, 2, 3, 1).reshape(-1, 2), y.reshape(-1))

    train_beside(
        *pair("UNet", 3, 4),
        loss,
        lambda m, x, y: tf.cross_entropy(m(x), y),
        (IMAGES[:2, :, :8, :8].copy(), classes),
    )


def test_autoencoder() -> None:
    torch.manual_seed(2)
    x = RNG.uniform(0, 1, (6, 64)).astype("f4")
    noise = RNG.standard_normal((6, 4)).astype("f4")
    train_beside(
        *pair("VAE"), lambda m, x, z: m(x, z) * 0.1, lambda m, x, z: m(x, z) * 0.1, (x, noise)
    )


@pytest.mark.slow
def test_adversaries() -> None:
    """A DCGAN: the two models train in turns, each with its own compiled step."""
    torch.manual_seed(3)
    maker, torch_maker = pair("Generator", 4, 4)
    judge, torch_judge = pair("Discriminator", 4)
    noise = RNG.standard_normal((3, 4, 1, 1)).astype("f4")
    real = RNG.standard_normal((3, 1, 16, 16)).astype("f4")
    judge_step = nova.train_step(
        judge,
        lambda m, fake, x: nova.softplus(m(fake)).mean() + nova.softplus(-m(x)).mean(),
        optim.SGD(judge.parameters(), 0.02),
    )
    maker_step = nova.train_step(
        maker,
        lambda m, z: nova.softplus(-judge(m(z))).mean(),
        optim.SGD(maker.parameters(), 0.02),
    )
    make = nova.jit(maker)
    optimizers = [torch.optim.SGD(m.parameters(), 0.02) for m in (torch_judge, torch_maker)]
    z, x = torch.tensor(noise), torch.tensor(real)
    for i in range(3):
        losses = [float(judge_step(make(noise), real)), float(maker_step(noise))]
        fake = torch_maker(z).detach()
        expected = []
        for k, optimizer in enumerate(optimizers):
            torch_judge.zero_grad(), torch_maker.zero_grad()
            if k == 0:
                loss = tf.softplus(torch_judge(fake)).mean() + tf.softplus(-torch_judge(x)).mean()
            else:
                loss = tf.softplus(-torch_judge(torch_maker(z))).mean()
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
        np.testing.assert_allclose(losses, expected, rtol=2e-3, err_msg=f"step {i}")
    running, want = maker.state_dict()["layers.1.running_mean"], torch_maker.layers[1].running_mean
    np.testing.assert_allclose(running, want.numpy(), rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    losses = OURS.main(4)
    assert all(each[-1] < each[0] for each in losses.values())
    assert "ResNet" in capsys.readouterr().out
