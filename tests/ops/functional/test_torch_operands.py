"""Tensors of torch as operands: every function takes them as it takes arrays of numpy."""

from __future__ import annotations

from typing import Any

import cases_ordering
import cases_shapes
import cases_spatial
import cases_values
import numpy as np
import pytest
import torch
from function_cases import Case
from op_cases import draw
from op_samples import SAMPLES

import nova
from nova.core.dtypes import f64
from nova.graph import FUNCTIONS

FAMILIES = {
    "ordering": cases_ordering.CASES,
    "shapes": cases_shapes.CASES,
    "spatial": cases_spatial.CASES,
    "values": cases_values.CASES,
}


def as_torch(value: Any) -> Any:
    if isinstance(value, nova.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    return type(value)(map(as_torch, value)) if isinstance(value, tuple | list) else value


def run_nova(case: Case, arrays: list[np.ndarray]) -> list[Any]:
    """The results of a case, with a tensor of torch for every array."""

    def function(*args: Any, **kwargs: Any) -> Any:
        named = {key: as_torch(value) for key, value in kwargs.items()}
        return FUNCTIONS[case.name](*map(as_torch, args), **named)

    if case.call is not None:
        result = case.call(function, *map(nova.tensor, arrays))
    else:
        result = function(*arrays, *case.args, **case.attrs)
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize(
    "family",
    ["ordering", "shapes", "values", pytest.param("spatial", marks=pytest.mark.slow)],
)
def test_functions_of_tensors_of_torch(family: str) -> None:
    """The first case of each function, with torch's result."""
    first: dict[str, Case] = {}
    for case in FAMILIES[family]:
        first.setdefault(case.name, case)
    outputs: list[Any] = []
    expected: list[torch.Tensor] = []
    for case in first.values():
        arrays = case.draw(f64)
        outputs += run_nova(case, arrays)
        expected += case.run_torch([torch.from_numpy(array) for array in arrays])
    values = nova.compile(outputs, inputs=[]).run([])
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, other.numpy(), rtol=2e-4, atol=2e-5)


# `test_ids_of_segments` has values that fit: those of arrays are checked.
@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "segment_ids"])
def test_rows_of_tensors_of_torch(name: str) -> None:
    """The type of a result is that of the same call with arrays of numpy."""
    sample = SAMPLES[name]
    for case in sample.cases:
        arrays = draw(name, case, sample.usual)
        ours = FUNCTIONS[name](*arrays, **case.attrs)
        others = FUNCTIONS[name](*map(as_torch, arrays), **case.attrs)
        for a, b in zip(
            *(x if isinstance(x, tuple) else (x,) for x in (ours, others)), strict=True
        ):
            assert a.type == b.type


def test_ids_of_segments() -> None:
    x = torch.arange(8.0).reshape(1, 4, 2)
    ids = nova.segment_ids(torch.tensor([0, 3, 4]), 4)
    np.testing.assert_array_equal(ids.numpy(), [1, 1, 1, 2])
    for each in (ids, torch.tensor([1, 1, 1, 2])):
        actual = nova.attention(x, x, x, segment_ids=each)
        mask = torch.tensor([[i // 3 == j // 3 for i in range(4)] for j in range(4)])
        other = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        np.testing.assert_allclose(actual.numpy(), other.numpy(), rtol=1e-5)
    index = torch.tensor([1, 0])
    rows = nova.tensor(x.numpy())
    np.testing.assert_array_equal(rows[:, index].numpy(), x[:, index].numpy())
    np.testing.assert_array_equal(nova.concat([x, rows]).numpy(), torch.concat([x, x]).numpy())
    np.testing.assert_array_equal(
        nova.repeat_interleave(x[0], torch.tensor([0, 2, 1, 3]), 0).numpy(),
        torch.repeat_interleave(x[0], torch.tensor([0, 2, 1, 3]), 0).numpy(),
    )
