"""`nn.LSTM` and `nn.GRU` through `torch.compile(..., fullgraph=True)`, against eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="nova", fullgraph=True, options={"fallback": False})


def compare(module: nn.Module, x: torch.Tensor) -> None:
    """Results and gradients of parameters."""
    with torch._dynamo.config.patch(allow_rnn=True):
        outputs, state = compiled(module)(x)
    expected, expected_state = module(x)
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, expected_state, rtol=1e-4, atol=1e-5)
    parameters = list(module.parameters())
    weights = torch.randn_like(outputs)
    ours = torch.autograd.grad((outputs * weights).sum(), parameters)
    eager = torch.autograd.grad((expected * weights).sum(), parameters)
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_directions_of_an_lstm() -> None:
    compare(nn.LSTM(4, 6, bidirectional=True, batch_first=True), torch.randn(2, 5, 4))


@pytest.mark.slow
def test_layers_of_an_lstm_without_biases() -> None:
    compare(nn.LSTM(4, 6, num_layers=2, bias=False), torch.randn(5, 2, 4))


@pytest.mark.slow
def test_a_gru_is_written_out() -> None:
    compare(nn.GRU(3, 4), torch.randn(3, 2, 3))


def test_the_error_of_torch_names_its_setting() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"config\.allow_rnn=True"):
        compiled(nn.LSTM(4, 6))(torch.randn(5, 2, 4))
