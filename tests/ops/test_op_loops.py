"""Windows, scans and sorts in every type, and where NaN and infinities go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import samples_loops
import test_op_devices
import test_op_forward
import torch
from op_cases import build

import nova
from nova.core.dtypes import ALL, INTEGERS, DType, bool_, i8, i32, i64

SAMPLES = samples_loops.SAMPLES
# The references compute in i64, whose complements and shifts are those of signed types.
SIGNED = (i64, i32, i8)


def every_type(name: str) -> tuple[DType, ...]:
    if not name.startswith("bitwise"):
        return ALL
    return (*INTEGERS, bool_) if name in ("bitwise_and", "bitwise_or", "bitwise_xor") else SIGNED


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_every_type(name: str) -> None:
    sample = replace(SAMPLES[name], dtypes=every_type(name))
    built = [build(name, c, d) for c in sample.cases for d in sample.dtypes]
    test_op_forward.check_all(sample, built)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_on_device(name: str, on_device: dict[str, Any]) -> None:
    sample = replace(SAMPLES[name], dtypes=every_type(name))
    built = [build(name, c, d) for c in sample.cases[:2] for d in sample.dtypes]
    test_op_devices.check_all(name, built, on_device)


def test_special_values() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3, -inf, 2], [inf, 1, 1, -inf, nan], [-inf, -inf, 0, inf, 1]], "f4")
    X, V = nova.tensor(x, name="X"), nova.tensor(x[1], name="V")
    edges = np.array([-inf, 0, 1, inf, nan], "f4")
    outputs = [
        nova.argsort(X),
        nova.argsort(X, descending=True),
        nova.argcummax(X, axis=1),
        nova.argcummin(X, axis=1),
        nova.logcumsumexp(X, axis=1),
        nova.searchsorted(edges, V),
        nova.searchsorted(edges, V, right=True),
    ]
    values = nova.compile(outputs, inputs=[X, V]).run([x, x[1]])
    t = torch.tensor(x)
    expected = [
        torch.argsort(t, stable=True),
        torch.argsort(t, stable=True, descending=True),
        torch.cummax(t, 1).indices,
        torch.cummin(t, 1).indices,
        torch.logcumsumexp(t, 1),
        np.searchsorted(edges, x[1]),
        np.searchsorted(edges, x[1], "right"),
    ]
    for value, want in zip(values, expected, strict=True):
        assert np.allclose(value, np.asarray(want), equal_nan=True)
