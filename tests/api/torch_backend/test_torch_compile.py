"""`torch.compile(..., backend="nova")` against eager torch: inference, training, mutations."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from nova.errors import (
    AttributeValueError,
    FallbackWarning,
    NovaError,
    OptionTypeError,
    TargetError,
    UnknownKeywordError,
    UnsupportedOpError,
)

# torch's own: dynamo imports modules that still use TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The compiled function; an op without a row is an error."""
    return torch.compile(function, backend="nova", options={"fallback": False, **options})


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 8, 3, stride=2, groups=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1)
        return self.head(torch.relu(self.second(x)).mean((2, 3)))


class Attention(nn.Module):
    """A causal attention layer: on a CPU, torch dispatches it to flash attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head((x + y.transpose(1, 2).reshape(batch, length, width)).mean(1))


class GroupedAttention(nn.Module):
    """Four query heads share two heads of keys and values, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.q = nn.Linear(16, 16, bias=False)
        self.kv = nn.Linear(16, 16, bias=False)
        self.out = nn.Linear(16, 16, bias=False)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, 4, 4).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, 2, 4).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.head(self.out(y.transpose(1, 2).reshape(batch, length, width)).mean(1))


def losses_of(
    model: nn.Module, run: Callable[..., Any], batch: tuple[Any, Any], optimizer: Any, steps: int
) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(run(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


TRAINED: dict[str, Any] = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5)),
        torch.randn(4, 8),
    ),
    "convnet": lambda: (ConvNet(), torch.randn(4, 3, 12, 12)),
    "attention": lambda: (Attention(), torch.randint(20, (4, 6))),
    "grouped attention": lambda: (GroupedAttention(), torch.randint(20, (4, 6))),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_follows_eager(name: str) -> None:
    model, x = TRAINED[name]()
    target = torch.randint(5, (4,))
    twin = copy.deepcopy(model)
    make = torch.optim.SGD
    expected = losses_of(model, model, (x, target), make(model.parameters(), 0.1, 0.9), 4)
    result = losses_of(twin, compiled(twin), (x, target), make(twin.parameters(), 0.1, 0.9), 4)
    assert result == pytest.approx(expected, rel=1e-5)
    assert result[-1] < result[0]
    for (key, value), copied in zip(
        model.state_dict().items(), twin.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(copied, value, rtol=1e-4, atol=1e-5, msg=lambda m, k=key: k + m)


def test_batch_norm_in_training_does_not_drift() -> None:
    """In f64 no rounding hides a wrong statistic: steps with momentum follow eager to 1e-11."""
    model = ConvNet().double()
    twin = copy.deepcopy(model)
    batch = (torch.randn(4, 3, 12, 12, dtype=torch.float64), torch.randint(5, (4,)))
    make = torch.optim.SGD
    expected = losses_of(model, model, batch, make(model.parameters(), 0.1, 0.9), 5)
    result = losses_of(twin, compiled(twin), batch, make(twin.parameters(), 0.1, 0.9), 5)
    assert result == pytest.approx(expected, rel=1e-11)
    torch.testing.assert_close(twin.norm.running_mean, model.norm.running_mean, rtol=1e-11, atol=0)
    torch.testing.assert_close(twin.norm.running_var, model.norm.running_var, rtol=1e-11, atol=0)


def test_flash_attention_returns_the_statistic_that_its_backward_reads() -> None:
    """torch's decomposition returns the attention weights where the op returns the logsumexp."""
    q, k, v = (torch.randn(2, 3, 6, 4, requires_grad=True) for _ in range(3))
    weight = torch.randn(2, 3, 6, 4)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (functional.scaled_dot_product_attention(q, k, v, is_causal=True) * weight).sum()

    expected = torch.autograd.grad(loss(q, k, v), (q, k, v))
    result = torch.autograd.grad(compiled(loss)(q, k, v), (q, k, v))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)

    from torch._decomp import decomposition_table

    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    _, statistic = op(q.detach(), k.detach(), v.detach())
    _, decomposed = decomposition_table[op](q.detach(), k.detach(), v.detach())
    assert statistic.shape == (2, 3, 6), "the logsumexp of each row"
    assert decomposed.shape != statistic.shape, "torch's decomposition was repaired: use it"


def test_optimizer_step_inside_the_compiled_region() -> None:
    model = nn.Linear(4, 3)
    twin = copy.deepcopy(model)
    x, y = torch.randn(5, 4), torch.randn(5, 3)

    def step(module: nn.Module, optimizer: Any) -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        return loss

    plain = torch.optim.SGD(model.parameters(), 0.1)
    copied = torch.optim.SGD(twin.parameters(), 0.1)
    run = torch.compile(lambda: copied.step(), backend="nova", options={"fallback": False})
    for _ in range(3):
        expected = step(model, plain)
        copied.zero_grad()
        loss = functional.mse_loss(twin(x), y)
        loss.backward()
        run()
        torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(twin.weight, model.weight)


def test_arguments_change_in_place() -> None:
    def f(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.mul_(2).add_(x)
        x[1:3] = 7.0
        return buffer + x

    x, buffer = torch.randn(5, 3), torch.randn(5, 3)
    copied_x, copied_buffer = x.clone(), buffer.clone()
    expected = f(x, buffer)
    address = copied_buffer.data_ptr()
    result = compiled(f)(copied_x, copied_buffer)
    torch.testing.assert_close((result, copied_x, copied_buffer), (expected, x, buffer))
    assert copied_buffer.data_ptr() == address


def test_an_updated_argument_with_gaps_is_written_back() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    base, copied = torch.zeros(4, 6), torch.zeros(4, 6)
    expected, result = f(base[:, ::2]), compiled(f)(copied[:, ::2])
    torch.testing.assert_close((result, copied), (expected, base))


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(2, 5, 4, 3).transpose(1, 3),
    "expanded": lambda: torch.randn(2, 3, 1, 5).expand(2, 3, 4, 5),
    "sliced": lambda: torch.randn(2, 3, 8, 5)[:, :, ::2],
    "offset": lambda: torch.randn(3, 3, 4, 5)[1:],
    "empty": lambda: torch.randn(2, 0, 4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_arguments_and_results(name: str) -> None:
    x = LAYOUTS[name]()

    def f(x: torch.Tensor) -> Any:
        y = torch.tanh(x)
        return y, y.permute(3, 0, 1, 2), y.sum(0), x.transpose(0, 1), y[:, :1]

    expected, result = f(x), compiled(f)(x)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert result[3].data_ptr() == x.data_ptr(), "a view of an argument was copied"
    assert result[1].data_ptr() == result[0].data_ptr(), "a view of a result was copied"


def test_results_with_gaps_keep_their_strides() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)[:, 1]

    x = torch.randn(3, 4)
    expected, result = f(x), compiled(f)(x)
    torch.testing.assert_close(result, expected)


def test_dtypes_of_torch() -> None:
    def f(x: torch.Tensor, n: torch.Tensor, mask: torch.Tensor) -> Any:
        return x * 0.1 + n, n // 2, mask & (n > 1), torch.where(mask, x, 0), x.mean()

    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        for integer in (torch.int64, torch.int32, torch.int8, torch.uint8):
            x, n = torch.randn(4).to(dtype), torch.arange(4).to(integer)
            mask = torch.tensor([True, False, True, True])
            torch.testing.assert_close(compiled(f)(x, n, mask), f(x, n, mask))
        torch._dynamo.reset()


def test_sizes_that_change_are_compiled_per_shape() -> None:
    layer = nn.Linear(4, 3)
    run = torch.compile(layer, backend="nova", options={"fallback": False})
    for batch in (2, 3, 5, 3):
        x = torch.randn(batch, 4, requires_grad=True)
        expected = layer(x)
        result = run(x)
        torch.testing.assert_close(result, expected)
        (result_gradient,) = torch.autograd.grad(result.square().sum(), x)
        (gradient,) = torch.autograd.grad(expected.square().sum(), x)
        torch.testing.assert_close(result_gradient, gradient)


def test_dropout_has_its_distribution_and_follows_the_seed() -> None:
    x = torch.ones(100, 200, requires_grad=True)
    run = compiled(lambda x: functional.dropout(x, 0.25))
    torch.manual_seed(5)
    first = run(x)
    second = run(x)
    torch.manual_seed(5)
    repeated = run(x)
    assert torch.equal(first, repeated), "the seed of torch repeats a run"
    assert not torch.equal(first, second), "each call draws new numbers"
    share = (first != 0).float().mean().item()
    assert abs(share - 0.75) < 0.02
    assert torch.equal(first.unique(), torch.tensor([0.0, 1 / 0.75]))
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(gradient, first.detach()), "the backward pass uses the same mask"


def test_inference_keeps_aliases_and_mutations() -> None:
    def views(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y[1:], x[0]

    def writes(x: torch.Tensor) -> Any:
        x.add_(1)
        return x * 2

    def pure(x: torch.Tensor) -> Any:
        return torch.softmax(x, 0).unsqueeze(0), x.relu().sum()

    for function in (views, writes, pure):
        x = torch.randn(4, 3)
        copied = x.clone()
        with torch.no_grad():
            expected, result = function(x), compiled(function)(copied)
        torch.testing.assert_close((result, copied), (expected, x))
        if function is views:
            result[0].zero_()
            assert not result[1].any(), "a view of a result shares its memory"
            assert result[2].data_ptr() == copied.data_ptr()


def test_gradients_start_after_a_call_without_them() -> None:
    run = compiled(lambda x: torch.tanh(x).sum())
    x = torch.randn(5)
    with torch.no_grad():
        torch.testing.assert_close(run(x), torch.tanh(x).sum())
    x.requires_grad_()
    run(x).backward()
    torch.testing.assert_close(x.grad, 1 - torch.tanh(x.detach()) ** 2)


# --- fallback, options, errors --------------------------------------------------------------------


def test_an_op_without_a_row_runs_in_torch_with_one_warning() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) + 1
        z = torch.linalg.det(y @ y.T)  # the line of the warning
        return torch.cos(y) * z

    x = torch.randn(3, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = torch.compile(f, backend="nova")(x)
    torch.testing.assert_close(result, f(x), rtol=1e-4, atol=1e-5)
    (warning,) = [w for w in caught if issubclass(w.category, FallbackWarning)]
    line = f.__code__.co_firstlineno + 2
    assert "aten._linalg_det.default" in str(warning.message)
    assert f"{__file__}:{line}" in str(warning.message)


def test_fallback_in_a_backward_graph_and_with_updates() -> None:
    def f(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.add_(x.detach())
        return torch.polygamma(1, x.exp()) * buffer

    x, buffer = torch.randn(6, requires_grad=True), torch.zeros(6)
    twin = torch.zeros(6)
    with pytest.warns(FallbackWarning):
        result = torch.compile(f, backend="nova")(x, twin)
        (gradient,) = torch.autograd.grad(result.sum(), x)
    expected = f(x, buffer)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close((result, gradient, twin), (expected, expected_gradient, buffer))


def test_fallback_can_be_an_error() -> None:
    with pytest.raises(Exception, match=r"aten\._linalg_det") as caught:
        compiled(lambda x: torch.linalg.det(x))(torch.randn(3, 3))
    assert isinstance(root_cause(caught.value), UnsupportedOpError)


def root_cause(error: BaseException) -> BaseException:
    """The error of Nova inside of dynamo's."""
    inner = getattr(error, "inner_exception", None) or error.__cause__
    return error if inner is None or isinstance(error, NovaError) else root_cause(inner)


OPTIONS: dict[str, tuple[dict[str, Any], type[NovaError], str]] = {
    "unknown": ({"thread": 2}, UnknownKeywordError, "did you mean 'threads'"),
    "type": ({"fallback": "yes"}, OptionTypeError, "fallback"),
    "threads": ({"threads": -1}, NovaError, "threads"),
    "target": ({"target": "nonsense"}, TargetError, "nonsense"),
    "device": ({"target": "cuda:sm_80"}, TargetError, "device of the tensors"),
    "place": ({"device": "cuda"}, OptionTypeError, "'sim' or None"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options_are_named(name: str) -> None:
    from nova.api.torch_backend.options import read_options

    options, error, text = OPTIONS[name]
    with pytest.raises(error, match=text):
        read_options(options, None)


def test_wrong_mode_is_named() -> None:
    from nova.api.torch_backend.options import read_options

    with pytest.raises(AttributeValueError, match="max-autotune"):
        read_options(None, "max-autotune")


def test_options_of_a_compile() -> None:
    x = torch.randn(64, 64)
    run = compiled(lambda x: torch.tanh(x @ x), threads=1, tune=0, fast_math=True, target="cpu")
    torch.testing.assert_close(run(x), torch.tanh(x @ x), rtol=1e-4, atol=1e-4)


def test_the_backend_needs_no_import() -> None:
    code = (
        "import sys, torch\n"
        "assert 'nova' in torch._dynamo.list_backends() and 'nova' not in sys.modules\n"
        "x = torch.ones(3)\n"
        "assert torch.compile(lambda x: x + 1, backend='nova')(x).tolist() == [2, 2, 2]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
