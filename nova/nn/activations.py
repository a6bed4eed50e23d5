"""Activation functions as modules, for `Sequential`."""

from __future__ import annotations

from typing import Any

from nova.graph import Tensor
from nova.nn.module import Module
from nova.ops import F


class GELU(Module):
    """x times the normal distribution's cdf at x; `approximate="tanh"` is the tanh form."""

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return F.gelu(x, approximate=self.approximate)


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Any) -> Tensor:
        return F.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        return F.silu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return F.tanh(x)
