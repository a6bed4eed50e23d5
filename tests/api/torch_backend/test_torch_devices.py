"""`torch.compile(backend="nova")` on devices: the simulator, and CUDA tensors in place."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from nova.errors import FallbackWarning

torch = pytest.importorskip("torch")
nn = torch.nn

# torch's own: dynamo imports modules that still use TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

PLACES = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        q, k, v = self.projection(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).flatten(2)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        return self.norm(self.convolution(x)).relu().mean((2, 3))


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 5)), (7, 12)),
    "attention": (Attention, (2, 9, 16)),
    "convolution": (Convolution, (2, 3, 6, 6)),
}


def on(place: str) -> tuple[str, dict[str, Any]]:
    """The device of the tensors, and options."""
    return ("cpu", {"device": "sim"}) if place == "sim" else ("cuda", {})


def compiled(model: Any, place: str, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend="nova", options={**on(place)[1], **options})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step(name: str, place: str) -> None:
    """Results, gradients and buffers are those of eager torch, and nothing falls back."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    device = on(place)[0]
    model = make().to(device)
    expected = copy.deepcopy(model)
    x = torch.randn(shape, device=device)
    step = compiled(model, place, fallback=False)
    for _ in range(2):
        y, y0 = step(x), expected(x)
        assert y.device == x.device
        torch.testing.assert_close(y, y0, rtol=2e-4, atol=2e-5)
        y.square().sum().backward()
        y0.square().sum().backward()
    for p, p0 in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p.grad, p0.grad, rtol=2e-3, atol=2e-4)
    for b, b0 in zip(model.buffers(), expected.buffers(), strict=True):
        torch.testing.assert_close(b, b0, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("place", PLACES)
def test_layouts_and_updates(place: str) -> None:
    device = on(place)[0]

    def change(x: Any, state: Any) -> Any:
        state.mul_(0.5).add_(x.transpose(0, 1))
        return state * 2, x[:, ::2] + torch.arange(2, device=x.device)

    x = torch.arange(12.0, device=device).reshape(4, 3).t()  # 3x4 in the order of columns
    states = [torch.ones(4, 3, device=device) for _ in range(2)]
    step = compiled(change, place, fallback=False)
    for _ in range(3):
        results, expected = step(x, states[0]), change(x, states[1])
        for result, value in zip(results, expected, strict=True):
            torch.testing.assert_close(result, value)
            assert result.stride() == value.stride()
    torch.testing.assert_close(states[0], states[1])


@pytest.mark.parametrize("place", PLACES)
def test_an_optimizer_in_the_region(place: str) -> None:
    device = on(place)[0]
    torch.manual_seed(0)
    model = nn.Linear(6, 3).to(device)
    expected = copy.deepcopy(model)
    x = torch.randn(5, 6, device=device)
    losses: list[list[float]] = [[], []]
    for number, net in enumerate((model, expected)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        forward = compiled(net, place) if number == 0 else net
        update = compiled(optimizer.step, place) if number == 0 else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            loss = forward(x).square().mean()
            loss.backward()
            update()
            losses[number].append(float(loss.detach()))
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_torch_computes_what_nova_does_not(place: str) -> None:
    device = on(place)[0]

    def mixed(x: Any) -> Any:
        y = x * 2 + 1
        z = torch.special.airy_ai(y)
        return z.sin() + y

    x = torch.linspace(-1, 1, 9, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = compiled(mixed, place)(x)
    torch.testing.assert_close(result, mixed(x), rtol=1e-5, atol=1e-6)
    assert any(issubclass(w.category, FallbackWarning) for w in caught)


@pytest.mark.parametrize("place", PLACES)
def test_sizes_that_change(place: str) -> None:
    device = on(place)[0]
    step = compiled(lambda x: (x.softmax(-1) * 3).sum(0), place)
    for rows in (3, 5, 8):
        x = torch.randn(rows, 6, device=device)
        torch.testing.assert_close(step(x), (x.softmax(-1) * 3).sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_random_numbers(place: str) -> None:
    device = on(place)[0]
    x = torch.ones(64, 64, device=device)
    step = compiled(lambda x: nn.functional.dropout(x, 0.25, training=True), place)
    first, second = step(x), step(x)
    assert not torch.equal(first, second)
    for result in (first, second):
        assert result.unique().tolist() == pytest.approx([0.0, 4 / 3])
        assert 0.6 < float((result != 0).float().mean()) < 0.9


@pytest.mark.gpu
def test_the_current_stream_is_respected() -> None:
    """A value that a slow kernel of another stream still computes is waited for."""
    step = compiled(lambda x: x * 2 + 1, "cuda")
    x = torch.zeros(1 << 20, device="cuda")
    step(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for number in range(5):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            x.fill_(number)
            result = step(x)
            total = result.sum()
        stream.synchronize()
        assert float(total) == (2 * number + 1) * x.numel()


@pytest.mark.gpu
def test_arguments_of_the_host_are_copied() -> None:
    scale = torch.tensor(3.0)
    x = torch.arange(5.0, device="cuda")
    step = compiled(lambda x, scale: x * scale, "cuda", fallback=False)
    torch.testing.assert_close(step(x, scale), x * scale)
