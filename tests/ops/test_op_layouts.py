"""Arguments that are not contiguous give the same bits as contiguous ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from op_cases import Case, build
from op_programs import compile_all, run
from op_samples import SAMPLES


def transposed(a: np.ndarray) -> np.ndarray:
    return np.asfortranarray(a)


def strided(a: np.ndarray) -> np.ndarray:
    """Every second element along each axis of a larger array full of NaN or 77."""
    filler = np.nan if a.dtype.kind == "f" else 77
    larger = np.full([2 * n + 1 for n in a.shape], filler).astype(a.dtype)
    view = larger[(slice(1, None, 2),) * a.ndim]
    view[...] = a
    return view


def reversed_(a: np.ndarray) -> np.ndarray:
    """Negative strides along every axis."""
    every = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[every])[every]


def offset(a: np.ndarray) -> np.ndarray:
    """Contiguous, at an address that is not aligned to its element."""
    raw = np.empty(a.nbytes + 1, np.uint8)
    view = raw[1:].view(a.dtype) if a.nbytes else a.reshape(-1)
    view = view.reshape(a.shape)
    view[...] = a
    return view


FEW = 3
LAYOUTS = (transposed, strided, reversed_, offset)


WITH_OPERANDS = [n for n, s in SAMPLES.items() if any(c.operands for c in s.cases)]


@pytest.mark.parametrize("name", WITH_OPERANDS)
def test_layouts(name: str) -> None:
    """Arguments are brought into order before a kernel sees them: a few cases of each row do."""
    check_layouts(name, SAMPLES[name].cases[:FEW])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in WITH_OPERANDS if len(SAMPLES[n].cases) > FEW])
def test_layouts_of_all_cases(name: str) -> None:
    check_layouts(name, SAMPLES[name].cases[FEW:])


def check_layouts(name: str, cases: Sequence[Case]) -> None:
    built = [build(name, c, SAMPLES[name].usual) for c in cases]
    program = compile_all(
        [t for b in built for t in b.inputs], [t for b in built for t in b.outputs]
    )
    arrays = [a for b in built for a in b.arrays]
    expected = [r.tobytes() for r in run(program, arrays)]
    for layout in LAYOUTS:
        supplied = [_laid_out(a, layout) for a in arrays]
        results = [r.tobytes() for r in run(program, supplied)]
        assert results == expected, f"{name} of {layout.__name__} arguments"


def _laid_out(a: np.ndarray, layout: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    view = layout(a) if a.ndim else a
    assert view.shape == a.shape and view.dtype == a.dtype
    return view
