"""References and comparisons: torch in f64 or i64, and one table of tolerances.

Whatever type is under test, the reference is computed from the very same (already rounded) operand
values in f64, or in i64 for integer results, and rounded to the result's type at the end. So it is
independent of Nova, and far more accurate than what it judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from op_cases import Built, Case, Sample, varies

from nova.core.dtypes import DType, bf16, dtype, f16, f32, f64

# Result type -> (relative error, error relative to the largest element, at least 1). One unit in
# the last place of f16 is 2**-11 to 2**-10 of the number, of bf16 2**-8 to 2**-7.
TOLERANCE = {
    f64: (1e-13, 1e-14),
    f32: (2e-6, 1e-6),
    f16: (2.0**-10, 1e-6),
    bf16: (2.0**-7, 1e-6),
}


def reference(sample: Sample, built: Built) -> list[np.ndarray]:
    """What the outputs of a case should be, in f64 or i64."""
    float_result = any(t.dtype.is_float for t in built.outputs)
    flags = varies(built.name, built.case)
    arrays = [wide(a, v, float_result) for a, v in zip(built.arrays, flags, strict=True)]
    with np.errstate(all="ignore"):
        if sample.numpy is not None:
            result = sample.numpy(*arrays, **built.case.attrs)
        else:
            assert sample.torch is not None
            result = sample.torch(*map(torch.from_numpy, arrays), **built.case.attrs)
    results = result if isinstance(result, tuple | list) else [result]
    return [np.asarray(r) for r in results]


def wide(array: np.ndarray, varies: bool, float_result: bool) -> np.ndarray:
    """An operand as the reference takes it: masks and indices as they are."""
    if not varies:
        return array.copy()
    return array.astype(np.float64 if float_result or array.dtype.kind not in "iub" else np.int64)


def check(
    actual: np.ndarray,
    expected: np.ndarray,
    title: str,
    *,
    rounds: int = 1,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Fail unless `got` is `expected` within the tolerance of its type, NaN and inf in place."""
    __tracebackhide__ = True
    assert actual.shape == expected.shape, f"{title}: shape {actual.shape}, not {expected.shape}"
    mode = dtype(actual.dtype)
    if not mode.is_float:
        assert np.array_equal(actual, as_result(expected, mode)), f"{title}: {actual} != {expected}"
        return
    relative, floor = tolerance or TOLERANCE[mode]
    want = expected.astype(np.float64)
    have = actual.astype(np.float64)
    rounded = as_result(want, mode).astype(np.float64)
    special = ~np.isfinite(rounded) | ~np.isfinite(have)
    identical = np.where(np.isnan(rounded), np.isnan(have), have == rounded)
    largest = np.abs(want[~special]).max(initial=1.0)
    with np.errstate(invalid="ignore"):
        # What was rounded on the way may have been as large as the largest result.
        floor = floor + (rounds - 1) * (relative / 4 if relative > 1e-4 else 0)
        allowed = rounds * relative * np.abs(want) + floor * largest
        bad = np.where(special, ~identical, np.abs(have - want) > allowed)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(
            f"{title}: {int(bad.sum())} of {bad.size} differ, first at {at}: "
            f"{have[at]!r}, not {rounded[at]!r}"
        )


def as_result(expected: np.ndarray, kind: DType) -> np.ndarray:
    """A reference value rounded, or wrapped around, to the result's type."""
    with np.errstate(all="ignore"):
        return expected.astype(kind.numpy)


def torch_gradients(
    sample: Sample, case: Case, arrays: Sequence[np.ndarray], sources: Sequence[int], weights: Any
) -> tuple[list[Any], list[Any]]:
    """torch's gradients (with a graph of their own) of the weighted sum of the outputs."""
    assert sample.torch is not None
    leaves: list[Any] = [
        torch.from_numpy(np.array(a)).requires_grad_(i in sources) for i, a in enumerate(arrays)
    ]
    result = sample.torch(*leaves, **case.attrs)
    outputs = result if isinstance(result, tuple | list) else [result]
    loss = sum((o * torch.from_numpy(w)).sum() for o, w in zip(outputs, weights, strict=True))
    expected = [leaves[i] for i in sources]
    return expected, gradients_or_zeros(loss, expected)


def gradients_or_zeros(loss: Any, wanted: Sequence[Any]) -> list[Any]:
    """torch.autograd.grad with a graph, zeros where nothing flows."""
    if not getattr(loss, "requires_grad", False):
        return [torch.zeros_like(x) for x in wanted]
    result = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, result, strict=True)]
