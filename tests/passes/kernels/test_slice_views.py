"""What looks like a concatenation of matmuls and is not: results must not be written in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova.api.program_cache import clear_memory_cache
from nova.passes.gpu import slice_views

ROWS, COLUMNS = 256, 128


def _joined(*parts: Any) -> Any:
    return nova.concat(list(parts), axis=0)


def _row_of_another(shift: int) -> Callable[..., Any]:
    """One row of a second concatenation, where the sum of its number and `shift` says so."""

    def function(a: Any, b: Any, c: Any, d: Any, w: Any) -> Any:
        number = nova.reshape(nova.arange(ROWS), (ROWS, 1))
        return nova.where(
            number + shift == 43 + shift, _joined(c @ w, d @ w), _joined(a @ w, b @ w)
        )

    return function


def _diagonal_of_another(a: Any, b: Any, c: Any, d: Any, w: Any) -> Any:
    number = nova.reshape(nova.arange(ROWS), (ROWS, 1)) + nova.arange(COLUMNS)
    return nova.where(number + 7 == 50, _joined(c @ w, d @ w), _joined(a @ w, b @ w))


def _rounded(a: Any, b: Any, c: Any, d: Any, w: Any) -> Any:
    return nova.cast(nova.cast(_joined(a @ w, b @ w), dtype="f8e4m3"), dtype="bf16")


@pytest.mark.parametrize(
    "function",
    [_row_of_another(7), _row_of_another(1000), _diagonal_of_another, _rounded],
    ids=["row", "distant", "diagonal", "rounded"],
)
def test_what_is_no_concatenation(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((104, 64), (152, 64), (88, 64), (168, 64), (64, COLUMNS))
    ]
    results = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(slice_views, "_LEAST_BYTES", least)
        tensors = [nova.tensor(array) for array in arrays]
        clear_memory_cache()
        with nova.knobs.override(cache=False):
            program = nova.compile(
                function(*tensors), inputs=tensors, target="cuda:sm_90a", run_mode="sim"
            )
        results.append(np.asarray(program(*arrays)))
    np.testing.assert_array_equal(*results)


def test_a_concatenation_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that those above resemble."""
    monkeypatch.setattr(slice_views, "_LEAST_BYTES", 0)
    a, b, w = (nova.input(shape, dtype="bf16") for shape in ((104, 64), (152, 64), (64, COLUMNS)))
    clear_memory_cache()
    with nova.knobs.override(cache=False):
        program = nova.compile(
            _joined(a @ w, b @ w), inputs=[a, b, w], target="cuda:sm_90a", run_mode="sim"
        )
    assert len(program.kernels) == 2
