"""Rows of single ATen ops, through torch.compile without fallback, against eager torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

# torch's own: dynamo imports modules that still use TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="nova", options={"fallback": False})


def test_the_sign_of_nan_is_zero() -> None:
    def signs(x: torch.Tensor) -> Any:
        return x.sign(), x.sgn(), x.half().sign(), (x > 0).long().sign()

    x = torch.tensor([1.5, math.nan, -math.inf, -0.0])
    for result, expected in zip(compiled(signs)(x), signs(x), strict=True):
        assert result.dtype == expected.dtype
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_positions_of_triangles(offset: int) -> None:
    def positions(x: torch.Tensor) -> Any:
        lower = torch.tril_indices(3, 4, offset)
        return lower, torch.triu_indices(4, 3, offset, dtype=torch.int32), x[lower[0], lower[1]]

    x = torch.randn(3, 4)
    for result, expected in zip(compiled(positions)(x), positions(x), strict=True):
        assert result.dtype == expected.dtype
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_common_divisors_and_multiples(dtype: torch.dtype) -> None:
    def divisors(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.gcd(x, y), torch.lcm(x, y), torch.gcd(x[0], y)

    x = torch.tensor([[12, 7, 0, 9, 0], [1, 64, 48, 100, 5]]).to(dtype)
    y = torch.tensor([18, 21, 5, 0, 0]).to(dtype)
    for signs in ((x, y), (-x, y), (x, -y)) if dtype.is_signed else ((x, y),):
        for result, expected in zip(compiled(divisors)(*signs), divisors(*signs), strict=True):
            assert result.dtype == expected.dtype
            assert result.tolist() == expected.tolist()


POOLS: dict[str, tuple[Callable[..., Any], tuple[int, ...], Any]] = {
    "equal windows": (functional.adaptive_max_pool2d, (2, 3, 6, 8), (3, 4)),
    "windows of several sizes": (functional.adaptive_max_pool2d, (2, 3, 7, 10), (3, None)),
    "one window": (functional.adaptive_max_pool2d, (3, 5, 4), 1),
    "more windows than elements": (functional.adaptive_max_pool2d, (1, 2, 3, 2), (5, 3)),
    "one axis": (functional.adaptive_max_pool1d, (2, 3, 7), 3),
    "three axes": (functional.adaptive_max_pool3d, (1, 2, 5, 6, 3), (2, 4, 2)),
}


@pytest.mark.parametrize("name", POOLS)
def test_adaptive_max_pools(name: str) -> None:
    pool, shape, size = POOLS[name]
    x = torch.randint(0, 4, shape).float()  # with equal maxima
    twin = x.clone()
    results = []
    for value, function in ((x, pool), (twin, compiled(lambda x: pool(x, size, True)))):
        value.requires_grad_()
        out, index = function(value, size, True) if function is pool else function(value)
        (out * torch.arange(out.numel()).reshape(out.shape)).sum().backward()
        results.append((out.detach(), index, value.grad))
    for result, expected in zip(*results, strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop])
def test_optimizers_that_add_products(optimizer: Any) -> None:
    """dynamo makes `prims.fma` of an `addcmul_` by a number."""
    model = nn.Linear(4, 3)
    twin = copy.deepcopy(model)
    plain, copied = (optimizer(m.parameters(), lr=0.01) for m in (model, twin))
    run = compiled(lambda: copied.step())
    for _ in range(3):
        x = torch.randn(5, 4)
        for module in (model, twin):
            module.zero_grad()
            module(x).square().mean().backward()
        plain.step()
        run()
    torch.testing.assert_close(twin.weight, model.weight, rtol=1e-5, atol=1e-6)
