"""Convolutions of 16-bit floats on a device, and their gradients, against torch in f32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import nova

# torch's own: dynamo imports modules that still use TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@dataclass(frozen=True)
class Case:
    """Sizes and options of a convolution of two images."""

    channels: int
    size: tuple[int, ...]
    outputs: int
    kernel: Any
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    channels_last: bool = True


CASES = {
    "3x3": Case(16, (9, 7), 24, 3, padding=1),
    "3x3-in-order": Case(12, (9, 9), 20, 3, channels_last=False),
    "3x3-stride-2": Case(16, (9, 7), 24, 3, stride=2, padding=1),
    "3x3-stride-2-even": Case(16, (10, 8), 24, 3, stride=2, padding=1, channels_last=False),
    "1x1": Case(16, (8, 8), 32, 1),
    "1x1-stride-2": Case(16, (9, 8), 32, 1, stride=2),
    "7x7-of-3-channels": Case(3, (17, 15), 16, 7, stride=2, padding=3),
    "dilated": Case(16, (11, 10), 16, 3, padding=2, dilation=2),
    "dilated-stride-2": Case(16, (9, 9), 16, 3, stride=2, padding=1, dilation=2),
    "unequal-axes": Case(16, (12, 9), 16, (3, 2), stride=(3, 2), padding=(1, 0)),
    "stride-beyond-kernel": Case(16, (9, 9), 16, 2, stride=3),
    "groups": Case(16, (9, 9), 16, 3, padding=1, groups=2),
    "one-axis": Case(16, (19,), 24, 5, stride=2, padding=2, channels_last=False),
    "three-axes": Case(8, (4, 5, 6), 8, 3, padding=1, channels_last=False),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_match_torch(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    if dtype is torch.float16 and name not in ("3x3", "1x1-stride-2"):
        pytest.skip("the same code as for bf16")
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer_type = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(case.size) - 1]
    options = (case.kernel, case.stride, case.padding, case.dilation, case.groups)
    layer = layer_type(case.channels, case.outputs, *options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.to(dtype).float())
    x = torch.randn(2, case.channels, *case.size).to(dtype)
    expected_x = x.float().requires_grad_()
    expected = layer(expected_x)
    g = torch.randn_like(expected).to(dtype)
    expected.backward(g.float())
    wanted = [expected, expected_x.grad, *(p.grad for p in layer.parameters())]

    narrow = layer_type(case.channels, case.outputs, *options)
    narrow.load_state_dict(layer.state_dict())
    narrow = narrow.to(dtype)
    if case.channels_last:
        narrow = narrow.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    x = x.requires_grad_()
    compiled = torch.compile(narrow, backend="nova", options={"device": "sim", "fallback": False})
    actual = compiled(x)
    actual.backward(g)
    results = [actual, x.grad, *(p.grad for p in narrow.parameters())]
    bound = 0.008 if dtype is torch.bfloat16 else 0.002
    for result, reference in zip(results, wanted, strict=True):
        difference = (result.detach().float() - reference.detach()).abs().max()
        assert difference <= bound * reference.detach().abs().max()


def test_block_of_convolutions_matches_torch() -> None:
    """Batch norm, residual and pool between convolutions, in training."""
    torch.manual_seed(0)
    torch._dynamo.reset()

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(16, 16, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(16)
            self.second = nn.Conv2d(16, 16, 1, bias=False)
            self.pool = nn.MaxPool2d(3, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.norm(self.first(x)))
            return self.pool(torch.relu(self.second(y) + x)).mean((2, 3))

    model = Block()
    narrow = Block()
    narrow.load_state_dict(model.state_dict())
    narrow = narrow.to(torch.bfloat16, memory_format=torch.channels_last)
    x = torch.randn(4, 16, 9, 9).to(torch.bfloat16).to(memory_format=torch.channels_last)
    expected = model(x.float())
    expected.square().sum().backward()
    compiled = torch.compile(narrow, backend="nova", options={"device": "sim", "fallback": False})
    actual = compiled(x)
    actual.float().square().sum().backward()
    assert torch.allclose(actual.float(), expected, atol=0.02, rtol=0.02)
    assert torch.allclose(narrow.norm.running_var.float(), model.norm.running_var, atol=0.01)
    for got, want in zip(narrow.parameters(), model.parameters(), strict=True):
        assert (got.grad.float() - want.grad).norm() <= 0.1 * want.grad.norm()


POOLS = {
    "3x3": ((9, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "ceil": ((8, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "elements-without-window": ((7, 6), {"kernel_size": 2, "stride": 3}),
    "stride-1": ((5, 6), {"kernel_size": 3, "stride": 1, "padding": 1}),
    "dilated": ((9, 9), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    "one-element": ((1, 1), {"kernel_size": 3, "stride": 1, "padding": 1}),
}


@pytest.mark.parametrize("name", POOLS)
def test_max_pool_gradient_matches_torch(name: str) -> None:
    """Each element reads the windows that reach it, with channels last and no copy of the taps."""
    size, options = POOLS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = torch.randn(2, 8, *size).to(torch.bfloat16).to(memory_format=torch.channels_last)
    pool = nn.MaxPool2d(**options)
    wide = x.float().requires_grad_()
    expected = pool(wide)
    g = torch.randn_like(expected).to(torch.bfloat16)
    expected.backward(g.float())
    x = x.requires_grad_()
    actual = torch.compile(pool, backend="nova", options={"device": "sim", "fallback": False})(x)
    actual.backward(g)
    assert torch.equal(actual.float(), expected)
    assert (x.grad.float() - wide.grad).abs().max() <= 0.004 * wide.grad.abs().max()


def test_batch_norm_of_elements_larger_than_their_spread() -> None:
    """Both sums of a channel in one pass: the variance is a difference of large numbers."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = (64 + torch.randn(4, 16, 8, 8)).to(torch.bfloat16)
    norm = nn.BatchNorm2d(16, momentum=1.0)
    narrow = nn.BatchNorm2d(16, momentum=1.0)
    narrow = narrow.to(torch.bfloat16)
    expected = norm(x.float())
    actual = torch.compile(narrow, backend="nova", options={"device": "sim", "fallback": False})(x)
    assert (actual.float() - expected).abs().max() <= 0.01 * expected.abs().max()
    for name in ("running_mean", "running_var"):
        reference = getattr(norm, name)
        difference = getattr(narrow, name).float() - reference
        assert difference.abs().max() <= 0.005 * reference.abs().max()


def test_computed_reads_are_no_epilogue_of_a_matmul() -> None:
    """A matmul on tensor cores has no epilogue that reads at computed positions: it stays one."""
    generator = np.random.default_rng(0)
    shapes = (256, 64), (64, 128), (128, 128), (128, 128)
    arrays = [generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    x, w, a, b = (nova.tensor(array) for array in arrays)
    result = nova.relu(x @ w + nova.concat([a, b], axis=0))
    program = nova.compile(result, inputs=[x, w, a, b], target="cuda:sm_90a", run_mode="sim")
    kernels = program.stages["kernels"].split("func.func private")
    assert any("tensor.extract" in kernel for kernel in kernels)
    assert not any("tensor.extract" in k and '"reduction"' in k for k in kernels)
    actual = program.run(arrays)
    wide = [array.astype("f4") for array in arrays]
    expected = np.maximum(wide[0] @ wide[1] + np.concatenate(wide[2:]), 0)
    assert np.allclose(np.asarray(actual).astype("f4"), expected, atol=0.2, rtol=0.02)
