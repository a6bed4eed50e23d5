"""Functions that are written with other rows: forward and gradient against torch.

In `make test` the first case of each function in f64 with its gradient and in f32 on the simulated
device; `make nightly` runs all cases in every float type and on the device.
"""

from __future__ import annotations

import cases_arrays
import cases_ordering
import cases_shapes
import cases_spatial
import cases_special
import cases_values
import numpy as np
import pytest
import torch
from function_cases import Case, check_cases

import nova
from nova.core.dtypes import bf16, f16, f32, f64
from nova.ops import functional
from nova.ops.functional import aliases

CASES = (
    *cases_values.CASES,
    *cases_shapes.CASES,
    *cases_spatial.CASES,
    *cases_ordering.CASES,
    *cases_special.CASES,
    *cases_arrays.CASES,
)
TOGETHER = 16
FIRST = list({c.name: c for c in reversed(CASES)}.values())[::-1]
GROUPS = [FIRST[i : i + TOGETHER] for i in range(0, len(FIRST), TOGETHER)]
NAMES = [c.name for c in FIRST]


def title(group: list[Case]) -> str:
    return f"{group[0].name}..{group[-1].name}"


def test_every_function_has_cases() -> None:
    rows = [row for family in functional.FAMILIES for row in family.ROWS]
    # `test_random_functions.py` has those that draw numbers, `test_spelling.py` the aliases.
    random = {r.name for r in rows if "random" in r.tags}
    assert {r.name for r in rows} - random - aliases.NAMES.keys() == set(NAMES)


@pytest.mark.parametrize("group", GROUPS, ids=title)
def test_values_and_gradients(group: list[Case]) -> None:
    check_cases(group, f64)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_cases(name: str) -> None:
    cases = [c for c in CASES if c.name == name]
    check_cases(cases, f64)
    for type_ in (f32, f16, bf16):
        check_cases(cases, type_, grad=type_ is f32)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS, ids=title)
def test_on_device(group: list[Case]) -> None:
    check_cases(group, f32, target="cuda:sm_80", run_mode="sim")


def test_a_constant_of_f16_and_bf16_is_folded_or_kept() -> None:
    """Small constants with different elements, beside a product."""
    x = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
    for type_ in (f16, bf16):
        X = nova.tensor(x.astype(type_.numpy), name="X")
        factors = np.array([0.5, 1.0, 2.0]).astype(type_.numpy)
        y = nova.mul(X, nova.detach(factors.tolist())) * nova.reshape(factors, (1, 3))
        got = nova.compile(nova.cast(y, dtype=f32), inputs=[X]).run([X.data])
        wide = factors.astype("f4")
        assert np.allclose(got, x * wide * wide, rtol=2e-2)
        direct = nova.compile(X * nova.cast([0.5, 1.0, 2.0], dtype=type_), inputs=[X])
        assert np.allclose(direct.run([X.data]).astype("f4"), x * wide, rtol=2e-2)


def test_gamma_functions() -> None:
    x = np.concatenate([np.linspace(-6.3, 40, 301), [1e-8, 1.0, 2.0, 1e5, 1e12, np.inf, np.nan]])
    X = nova.tensor(x, requires_grad=True, name="X")
    slope = nova.digamma(X)
    nova.backward(slope.sum())
    program = nova.compile([nova.lgamma(X), slope, X.grad], inputs=[X])
    t = torch.tensor(x)
    expected = (torch.lgamma(t), torch.digamma(t), torch.polygamma(1, t))
    for got, want, rtol in zip(program.run([x]), expected, (1e-13, 1e-12, 1e-6), strict=True):
        finite = np.isfinite(x) if rtol == 1e-6 else slice(None)
        assert np.allclose(got[finite], want.numpy()[finite], rtol=rtol, atol=rtol, equal_nan=True)


def test_error_functions() -> None:
    """Relative accuracy in the tail, where 1 - erf(x) is 0; derivatives of second order."""
    x = np.concatenate([np.linspace(-6, 26, 201), [np.inf, -np.inf, np.nan]])
    near_one = 1 - np.logspace(-16, -1, 50)
    y = np.concatenate([np.linspace(-1, 1, 101), near_one, [1.5, np.nan]])
    second = nova.grad(lambda v: nova.grad(lambda w: nova.erfinv(w).sum())(v).sum())
    run = nova.jit(lambda x, y, z: (nova.erfc(x), nova.erfinv(y), second(z)))
    z = np.array([-0.9, -0.3, 0.0, 0.2, 0.99])
    wide, inverse, curvature = run(x, y, z)
    np.testing.assert_allclose(wide, torch.special.erfc(torch.tensor(x)), rtol=2e-13, atol=1e-300)
    # torch's own inverse is rounded less carefully near 1.
    np.testing.assert_allclose(inverse, torch.special.erfinv(torch.tensor(y)), rtol=1e-12)
    t = torch.tensor(z, requires_grad=True)
    (first,) = torch.autograd.grad(torch.special.erfinv(t).sum(), t, create_graph=True)
    slope = nova.jit(nova.grad(lambda v: nova.erfinv(v).sum()))(z)
    np.testing.assert_allclose(slope, first.detach(), rtol=1e-12)
    (expected,) = torch.autograd.grad(first.sum(), t)
    np.testing.assert_allclose(curvature, expected, rtol=1e-11, atol=1e-11)
