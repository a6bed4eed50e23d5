"""Convolutions of ResNet-50 on a real GPU, with their gradients, against torch in bf16.

    python -m pytest tests/gpu/test_gpu_convolution.py -q

compiles them through `torch.compile` for the GPU of this machine, in the sizes of a batch of 64.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]

CASES = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 3, 1),
    (128, 56, 128, 3, 2),
    (128, 28, 128, 3, 1),
    (256, 14, 256, 3, 1),
    (512, 7, 512, 3, 1),
    (256, 56, 512, 1, 2),
)
"""Channels, size, outputs, taps, and stride."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_match_torch(case: tuple[int, int, int, int, int]) -> None:
    channels, size, outputs, kernel, stride = case
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False)
    layer = layer.cuda().to(torch.bfloat16, memory_format=torch.channels_last)
    x = torch.randn(64, channels, size, size, device="cuda").to(torch.bfloat16)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    results = []
    for run in (layer, torch.compile(layer, backend="nova", options={"fallback": False})):
        layer.zero_grad()
        x.grad = None
        y = run(x)
        y.backward(torch.cos(torch.arange(y.numel(), device="cuda")).view_as(y).to(y.dtype))
        results.append([t.detach().float().clone() for t in (y, x.grad, layer.weight.grad)])
    for expected, actual in zip(*results, strict=True):
        assert (actual - expected).abs().max() <= 0.01 * expected.abs().max()
