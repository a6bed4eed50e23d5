"""Ops that torch calls on GPUs: fused attention with its statistics, and ops on lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import nova
from nova.frontends.torch.importer import Values, _conformed
from nova.frontends.torch.rows import ROWS
from nova.ops import F

# torch's own: dynamo imports modules that still use TorchScript.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

SHAPE, KEYS = (2, 3, 10, 8), (2, 3, 13, 8)
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "flash": (),
    "efficient": (None, True),
    "cudnn": (None, True),
}


def op(name: str, suffix: str = "") -> Any:
    return getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention{suffix}").default


def applied(name: str, suffix: str, *args: Any, **options: Any) -> Any:
    """The results of the row, in the shapes and dtypes that torch gives on a GPU."""
    row = ROWS[f"aten._scaled_dot_product_{name}_attention{suffix}.default"]
    results = row(F, *args, **options)
    with FakeTensorMode():
        fakes = [
            torch.empty(tuple(a.shape), device="cuda") if isinstance(a, nova.Tensor) else a
            for a in args
        ]
        expected = op(name, suffix)(*fakes, **options)
    return _conformed(name, results, expected, None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_fused_attention_of_cuda(name: str, causal: bool) -> None:
    generator = np.random.default_rng(0)
    keys = SHAPE if causal else KEYS
    arrays = [generator.standard_normal(s).astype("f4") for s in (SHAPE, keys, keys, SHAPE)]
    q, k, v, g = (nova.tensor(a) for a in arrays)
    extra = ARGUMENTS[name]
    forward = applied(name, "", q, k, v, *extra, 0.0, causal, scale=0.3)
    out, logsumexp = forward[:2]
    zero = nova.tensor(np.zeros((), np.int64))
    tail: dict[str, tuple[Any, ...]] = {
        "flash": (out, logsumexp, None, None, 10, 13, 0.0, causal, zero, zero),
        "efficient": (None, out, logsumexp, zero, zero, 0.0, [True, True, True, False], causal),
        "cudnn": (out, logsumexp, zero, zero, None, None, None, 10, 13, 0.0, causal),
    }
    row = ROWS[f"aten._scaled_dot_product_{name}_attention_backward.default"]
    gradients = row(F, g, q, k, v, *tail[name], scale=0.3)[:3]
    results = nova.compile([out, *gradients], inputs=[q, k, v, g])(*arrays)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays[:3]]
    expected = functional.scaled_dot_product_attention(*tensors, is_causal=causal, scale=0.3)
    expected.backward(torch.tensor(arrays[3]))
    np.testing.assert_allclose(results[0], expected.detach(), rtol=2e-5, atol=2e-6)
    for result, tensor in zip(results[1:], tensors, strict=True):
        np.testing.assert_allclose(result, tensor.grad, rtol=2e-4, atol=2e-5)


def test_attention_with_dropout_stays_in_torch() -> None:
    q = nova.tensor(np.zeros(SHAPE, np.float32))
    for name, extra in ARGUMENTS.items():
        row = ROWS[f"aten._scaled_dot_product_{name}_attention.default"]
        with pytest.raises(nova.errors.UnsupportedOpError, match="dropout"):
            row(F, q, q, q, *extra, 0.5)


LISTS: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "add": lambda a, b: torch._foreach_add(a, b, alpha=0.5),
    "add of a number": lambda a, b: torch._foreach_add(a, 2.5),
    "add of numbers": lambda a, b: torch._foreach_add(a, [1.0, 2.0]),
    "add of a tensor": lambda a, b: torch._foreach_add(a, b[1][0, 0]),
    "sub": lambda a, b: torch._foreach_sub(a, b),
    "mul": lambda a, b: torch._foreach_mul(a, b),
    "mul of numbers": lambda a, b: torch._foreach_mul(a, [3.0, 0.5]),
    "div": lambda a, b: torch._foreach_div(a, b),
    "div of a number": lambda a, b: torch._foreach_div(a, 3.0),
    "pow": lambda a, b: torch._foreach_pow(torch._foreach_abs(a), b),
    "pow of a number": lambda a, b: torch._foreach_pow(2.0, b),
    "maximum": lambda a, b: torch._foreach_maximum(a, b),
    "minimum of a number": lambda a, b: torch._foreach_minimum(a, 0.25),
    "clamp_min": lambda a, b: torch._foreach_clamp_min(a, [0.0, -0.5]),
    "clamp_max": lambda a, b: torch._foreach_clamp_max(a, b),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, value=0.3),
    "addcmul of numbers": lambda a, b: torch._foreach_addcmul(a, a, b, [0.3, 2.0]),
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, torch._foreach_exp(a), value=-1),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.25),
    "lerp of tensors": lambda a, b: torch._foreach_lerp(a, b, torch._foreach_sigmoid(b)),
    "sqrt": lambda a, b: torch._foreach_sqrt(torch._foreach_abs(a)),
    "reciprocal": lambda a, b: torch._foreach_reciprocal(torch._foreach_exp(a)),
    "neg": lambda a, b: torch._foreach_neg(torch._foreach_sign(a)),
    "norm": lambda a, b: torch._foreach_norm(a),
    "norm of absolute values": lambda a, b: torch._foreach_norm(a, 1),
    "largest": lambda a, b: torch._foreach_norm(a, float("inf")),
    "in place": lambda a, b: _updated(a, b),
}


def _updated(a: list[Any], b: list[Any]) -> list[Any]:
    copies = [x.clone() for x in a]
    torch._foreach_mul_(copies, 0.9)
    torch._foreach_add_(copies, b, alpha=0.1)
    torch._foreach_zero_(b[1:])
    torch._foreach_copy_(b[:1], copies[:1])
    return [*copies, b[0] + 0, b[1] + 0]


def test_ops_on_lists() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(5), torch.randn(2, 3), torch.randn(5), torch.randn(2, 3)]
    for name, function in LISTS.items():
        torch._dynamo.reset()
        step = torch.compile(function, backend="nova", options={"fallback": False})
        a, b = [t.clone() for t in tensors[:2]], [t.clone() for t in tensors[2:]]
        results = step([t.clone() for t in a], [t.clone() for t in b])
        for result, value in zip(results, function(a, b), strict=True):
            torch.testing.assert_close(result, value, rtol=2e-5, atol=2e-6, msg=name)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batch_norm_of_inference(device: str) -> None:
    """On GPUs torch also returns the mean and the reciprocal deviation."""
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(s).astype("f4") for s in ((2, 3, 4, 5), *((3,),) * 4)]
    arrays[4] = np.abs(arrays[4]) + 0.5
    target = torch.ops.aten._native_batch_norm_legit_no_training.default
    with FakeTensorMode():
        fakes = [torch.empty(a.shape, device=device) for a in arrays]
        graph = make_fx(lambda *args: target(*args, 0.1, 1e-5))(*fakes).graph
    values = Values()
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    values.values.update(zip(nodes, map(nova.tensor, arrays), strict=True))
    (node,) = (node for node in graph.nodes if node.target is target)
    out, mean, rstd = (result.numpy() for result in values.run(node))
    x, weight, bias, running_mean, running_var = map(torch.from_numpy, arrays)
    wanted = functional.batch_norm(x, running_mean, running_var, weight, bias, eps=1e-5)
    np.testing.assert_allclose(out, wanted.numpy(), atol=1e-5)
    if device == "cuda":
        np.testing.assert_allclose(mean, arrays[3])
        np.testing.assert_allclose(rstd, 1 / np.sqrt(arrays[4] + 1e-5), rtol=1e-6)
    else:
        assert mean.shape == rstd.shape == (0,)
