"""Names of torch and jax: attributes that are missing say what to write instead."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.errors import ArgumentTypeError, ShapeError, UnknownNameError
from nova.graph.other_names import DTYPES, MODULE, OPTIMIZER, PACKAGE, TENSOR

X = np.ones((2, 3), "f4")
MODEL = nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("owner", "table"),
    [
        (nova, PACKAGE),
        (nova.tensor(X), TENSOR),
        (MODEL, MODULE),
        (optim.SGD(MODEL.parameters()), OPTIMIZER),
    ],
)
def test_every_name_of_a_table_is_missing_and_has_its_hint(owner: Any, table: Any) -> None:
    for name, hint in table.items():
        with pytest.raises(UnknownNameError) as caught:
            getattr(owner, name)
        assert hint in str(caught.value)
        assert not hasattr(owner, name)


def test_hints_name_what_exists() -> None:
    for hint in (*PACKAGE.values(), *TENSOR.values(), *MODULE.values(), *OPTIMIZER.values()):
        for path in re.findall(r"nova((?:\.\w+)+)", hint):
            value: Any = nova
            for part in path[1:].split("."):
                value = getattr(value, part)
    for theirs, ours in DTYPES.items():
        assert hasattr(torch, theirs) and isinstance(getattr(nova, ours), nova.DType)


@pytest.mark.parametrize(
    ("read", "hint"),
    [
        (lambda: nova.linalg.choleski, "did you mean 'cholesky'?"),
        (lambda: nova.linalg.eig, "symmetric matrices have eigh"),
        (lambda: nova.linalg.kron, "did you mean nova.kron?"),
        (lambda: nova.fft.ffft, "did you mean 'fft'?"),
        (lambda: nova.nn.init.xavier_uniforn_, "did you mean 'xavier_uniform_'"),
        (lambda: nova.nn.functional, "functions are in nova itself"),
        (lambda: nova.nn.relu, "did you mean 'ReLU'?"),
        (lambda: nova.data.DataLoader, "any iterable of batches"),
        (lambda: nova.train.EarlyStop, "did you mean 'EarlyStopping'?"),
        (lambda: nova.debug.gradchek, "did you mean 'gradcheck'?"),
        (lambda: nova.tensor(X).relu_(), "values do not change in place: 'relu'"),
        (lambda: MODEL.wieght, "did you mean 'weight'?"),
    ],
)
def test_names_that_are_spelt_alike(read: Any, hint: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(hint)):
        read()


def test_jit_of_a_torch_module_names_the_backend() -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"torch\.compile\(model, backend='nova'\)"
    ) as caught:
        nova.jit(torch.nn.Linear(3, 2))
    assert "test_other_names.py" in str(caught.value)


def test_torch_functions_of_tensors_of_nova_are_refused() -> None:
    for call in (torch.relu, lambda x: torch.nn.functional.linear(x, torch.ones(2, 3))):
        with pytest.raises(ArgumentTypeError, match=r"of torch is called.*\n.*\n.*write nova\."):
            nova.jit(call)(X)
    with pytest.raises(
        ArgumentTypeError, match=r"__getitem__ of torch.*\n.*\n.*from_numpy"
    ) as caught:
        torch.ones(2)[nova.tensor([0, 1])]
    assert "nova.__getitem__" not in str(caught.value)
    # Operators of arrays of both libraries are Nova's.
    total = torch.ones(2, 3) + nova.tensor(X)
    np.testing.assert_array_equal(total.numpy(), X + 1)
    assert torch.tensor(nova.tensor(X).numpy()).shape == (2, 3)
    assert torch.from_dlpack(nova.tensor(X).numpy()).shape == (2, 3)


def test_channels_of_a_convolution_are_named() -> None:
    with pytest.raises(ShapeError, match=r"has 4 channels, and the weight .* is one for 3"):
        nn.Conv2d(3, 8, 3)(np.ones((1, 4, 8, 8), "f4"))
    with pytest.raises(ShapeError, match="is one for 6 in 2 groups"):
        nn.Conv2d(6, 8, 3, groups=2)(np.ones((1, 4, 8, 8), "f4"))
