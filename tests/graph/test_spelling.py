"""torch's and numpy's spellings: names, keywords, methods, and numpy functions on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import ArgumentTypeError, AxisError, UnknownKeywordError
from nova.graph import numpy_protocol
from nova.ops import OPS
from nova.ops.functional import aliases

X = np.linspace(-2, 2, 12, dtype="f4").reshape(3, 4)


def value(t: Any) -> np.ndarray:
    assert isinstance(t, nova.Tensor)
    return t.numpy()


@pytest.mark.parametrize("name", aliases.NAMES)
def test_an_alias_is_the_row(name: str) -> None:
    row = OPS[aliases.NAMES[name]]
    data = np.abs(X) / 3 + 0.1
    data = data[None] if row.name == "interpolate" else data
    data = data[:, :3] if row.name == "matmul" else data
    data = (
        data[0] if row.name == "outer" else (data * 9).astype("i4") if "bit" in row.name else data
    )
    operands = [nova.tensor(data) for _ in range(max(row.min_operands, 1))]
    attrs: dict[str, Any] = {
        "expand": {"shape": (2, 3, 4)},
        "reshape": {"shape": (4, 3)},
        "permute": {"axes": (1, 0)},
        "unsqueeze": {"axis": 0},
        "swapaxes": {"axis1": 0, "axis2": 1},
        "movedim": {"source": 0, "destination": 1},
        "clamp": {"min": 0.3},
        "flip": {"axes": (0,)},
        "cast": {"dtype": "f64"},
        "bitcast": {"dtype": "i32"},
        "interpolate": {"size": 5},
        "tensor_split": {"indices_or_sections": 2},
        "mvlgamma": {"p": 1},
        "topk": {"k": 2},
        "take_along_dim": {"index": np.zeros((3, 1), "i8"), "axis": 1},
        "cumsum": {"axis": 1},
        "cumprod": {"axis": 1},
        "logcumsumexp": {"axis": 1},
    }.get(row.name, {})
    if row.name == "take_along_dim":
        operands = operands[:1]
    results = [getattr(nova, each)(*operands, **attrs) for each in (name, row.name)]
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in results)
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(value(a), value(b), equal_nan=True)


def test_keywords_of_torch() -> None:
    x, t = nova.tensor(X), torch.tensor(X)
    pairs = [
        (x.sum(dim=1, keepdim=True), t.sum(dim=1, keepdim=True)),
        (nova.cat([x, x], dim=1), torch.cat([t, t], dim=1)),
        (nova.softmax(x, dim=0), torch.softmax(t, dim=0)),
        (nova.flip(x, dims=(0,)), torch.flip(t, dims=(0,))),
        (nova.var(input=x, dim=1, unbiased=False), torch.var(t, dim=1, unbiased=False)),
        (nova.add(x, other=x), t + t),
        (nova.glu(x, dim=1), torch.nn.functional.glu(t, dim=1)),
        (nova.sort(x, dim=0, descending=True)[0], torch.sort(t, dim=0, descending=True)[0]),
    ]
    for ours, theirs in pairs:
        assert np.allclose(value(ours), theirs.numpy(), rtol=1e-6)


def test_a_keyword_of_neither_is_an_error() -> None:
    with pytest.raises(UnknownKeywordError, match="has no keyword 'dims'"):
        nova.sum(X, dims=1)
    with pytest.raises(UnknownKeywordError, match="has no keyword 'dim'"):
        nova.sum(X, axis=0, dim=1)


def test_creators_and_views_of_a_tensor() -> None:
    x = nova.tensor(X)
    assert np.array_equal(value(x.mT), X.T) and np.array_equal(value(x.mH), X.T)
    assert np.array_equal(value(x.H), X.T)
    assert value(x.new_zeros(2, 3)).dtype == "f4" and x.new_ones((2, 3)).shape == (2, 3)
    assert np.array_equal(value(x.new_full((2,), 3.0)), [3.0, 3.0])
    assert value(x.new_tensor([1, 2])).dtype == "f4"
    assert x.is_floating_point() and x.nelement() == 12 and x.ndimension() == 2
    assert x.short().dtype is nova.i16


def test_methods_of_torch() -> None:
    x = nova.tensor(X)
    assert x.view(4, 3).shape == x.view((4, -1)).shape == (4, 3)
    assert x.view_as(nova.zeros((2, 6))).shape == (2, 6)
    assert x.expand_as(nova.zeros((5, 3, 4))).shape == (5, 3, 4)
    assert x.t().shape == (4, 3) and x.numel() == 12 and x.dim() == 2
    dtypes = {
        "float": nova.f32,
        "double": nova.f64,
        "half": nova.f16,
        "bfloat16": nova.bf16,
        "long": nova.i64,
        "int": nova.i32,
        "char": nova.i8,
        "byte": nova.u8,
        "bool": nova.bool_,
    }
    for name, dtype in dtypes.items():
        assert getattr(x, name)().dtype is dtype
    assert x.to("f16").dtype is nova.f16 and x.type_as(nova.arange(3)).dtype is nova.i64
    with pytest.raises(ArgumentTypeError, match="'cuda:0' is a device"):
        x.to("cuda:0")


def test_ufuncs_of_numpy() -> None:
    x = nova.tensor(X)
    for ufunc in (np.exp, np.sin, np.abs, np.negative, np.tanh, np.isnan, np.floor, np.square):
        assert np.allclose(value(ufunc(x)), ufunc(X), rtol=1e-6)
    for ufunc in (np.add, np.multiply, np.maximum, np.subtract, np.less, np.arctan2):
        assert np.allclose(value(ufunc(X, x)), ufunc(X, X), rtol=1e-6)
    assert np.array_equal(value(X + x), X + X)
    assert np.array_equal(value(np.float32(2) * x), X * 2)
    assert all(n in OPS for n in numpy_protocol.UFUNCS.values())


def test_functions_of_numpy() -> None:
    x = nova.tensor(X)
    pairs = [
        (np.sum(x, axis=0), np.sum(X, axis=0)),
        (np.mean(x), np.mean(X)),
        (np.std(x, ddof=1), np.std(X, ddof=1)),
        (np.var(x, axis=1), np.var(X, axis=1)),
        (np.concatenate([x, x], axis=1), np.concatenate([X, X], axis=1)),
        (np.where(x > 0, x, 0), np.where(X > 0, X, 0)),
        (np.transpose(x), X.T),
        (np.einsum("ij,kj->ik", x, x), X @ X.T),
        (np.moveaxis(x, 0, 1), X.T),
        (np.clip(x, 0, 1), np.clip(X, 0, 1)),
    ]
    for ours, theirs in pairs:
        assert np.allclose(value(ours), theirs, rtol=1e-5)
    assert np.allclose(x, X) and np.array_equal(x, X)  # others take the values


def test_numpy_options_that_tensors_lack() -> None:
    x = nova.tensor(X)
    with pytest.raises(ArgumentTypeError, match=r"numpy.exp does not take tensors with out"):
        np.exp(x, out=X.copy())
    with pytest.raises(ArgumentTypeError, match=r"numpy.add.reduce does not take tensors"):
        np.add.reduce(x)
    with pytest.raises(ArgumentTypeError, match=r"numpy.spacing does not take tensors"):
        np.spacing(x)


def test_axes_of_transpose_as_arguments() -> None:
    x = np.arange(120, dtype="f4").reshape(2, 3, 4, 5)
    for axes in ((0, 2, 1, 3), (3, 0, 1, 2), (-1, 0, -2, 1)):
        np.testing.assert_array_equal(value(nova.tensor(x).transpose(*axes)), x.transpose(*axes))
        np.testing.assert_array_equal(value(nova.tensor(x).transpose(axes)), x.transpose(axes))
    # Two axes are exchanged, as in torch.
    exchanged = torch.from_numpy(x).transpose(1, 2).numpy()
    np.testing.assert_array_equal(value(nova.tensor(x).transpose(1, 2)), exchanged)
    for axes in ((0, 2, 1), (0, 0, 1, 2), (0, 1, 2, 4)):
        with pytest.raises(AxisError):
            nova.tensor(x).transpose(*axes)
