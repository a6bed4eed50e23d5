"""Factorizations and solvers against torch and numpy: values, gradients, special matrices, errors.

Functions of one table are compiled together, which is faster than one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import linalg
from nova.errors import AttributeValueError, GradientError, ShapeError, SymbolicSizeError

RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    x = draw(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


@dataclass(frozen=True)
class Case:
    """A function of Nova and of torch with its operands; `invariant` removes free signs."""

    name: str
    function: Callable[..., Any]
    expected: Callable[..., Any]
    operands: tuple[np.ndarray, ...]
    grad: bool = True
    invariant: Callable[..., Any] = lambda *values: values


def squares(*values: Any) -> tuple[Any, ...]:
    return tuple(abs(v) ** 2 if v.ndim > 1 else v for v in values)


def vector_squares(u: Any, s: Any, v: Any) -> tuple[Any, ...]:
    return abs(u) ** 2, s, abs(v) ** 2


def symmetric(a: Any) -> Any:
    return a + (a.mT if isinstance(a, torch.Tensor) else a.swapaxes(-1, -2))


def triangular(**options: bool) -> tuple[Any, Any]:
    return (
        lambda a, b: linalg.solve_triangular(a, b, **options),
        lambda a, b: torch.linalg.solve_triangular(a, b, **options),
    )


SOLVERS = [
    Case("cholesky", linalg.cholesky, torch.linalg.cholesky, (positive(2, 5, 5),)),
    Case(
        "cholesky_upper",
        lambda a: linalg.cholesky(a, upper=True),
        lambda a: torch.linalg.cholesky(a, upper=True),
        (positive(4, 4),),
    ),
    # torch's gradient of the factor has a part in the triangle that is not read.
    Case(
        "cholesky_solve",
        linalg.cholesky_solve,
        torch.cholesky_solve,
        (draw(4, 2), draw(4, 4)),
        grad=False,
    ),
    Case("lower", *triangular(upper=False), (positive(2, 5, 5), draw(2, 5, 3))),
    Case(
        "upper_right_unit",
        *triangular(upper=True, left=False, unitriangular=True),
        (draw(1, 4, 4), draw(2, 3, 4)),
    ),
    Case("solve", linalg.solve, torch.linalg.solve, (draw(2, 5, 5), draw(2, 5, 3))),
    Case("solve_vector", linalg.solve, torch.linalg.solve, (draw(5, 5), draw(5))),
    Case("solve_vectors", linalg.solve, torch.linalg.solve, (draw(3, 4, 4), draw(3, 4))),
    Case("inv", linalg.inv, torch.linalg.inv, (draw(2, 2, 4, 4),)),
    Case("det", linalg.det, torch.linalg.det, (draw(3, 5, 5),)),
    Case("slogdet", linalg.slogdet, torch.linalg.slogdet, (draw(3, 4, 4),)),
    Case("lu", linalg.lu, torch.linalg.lu, (draw(2, 4, 4),)),
    Case("lu_tall", linalg.lu, torch.linalg.lu, (draw(2, 5, 3),)),
    Case("lu_wide", linalg.lu, torch.linalg.lu, (draw(3, 5),)),
]
FACTORS = [
    Case("qr_tall", linalg.qr, torch.linalg.qr, (draw(2, 5, 3),)),
    Case("qr_wide", linalg.qr, torch.linalg.qr, (draw(3, 5),)),
    Case(
        "qr_complete",
        lambda a: linalg.qr(a, "complete"),
        lambda a: torch.linalg.qr(a, "complete"),
        (draw(4, 2),),
        grad=False,
    ),
    Case(
        "eigh",
        lambda a: linalg.eigh(symmetric(a)),
        lambda a: torch.linalg.eigh(symmetric(a)),
        (draw(2, 5, 5),),
        invariant=squares,
    ),
    Case(
        "eigvalsh_upper",
        lambda a: linalg.eigvalsh(a, "U"),
        lambda a: torch.linalg.eigvalsh(a, "U"),
        (draw(4, 4),),
        grad=False,
    ),
    Case(
        "svd_tall",
        lambda a: linalg.svd(a, full_matrices=False),
        lambda a: torch.linalg.svd(a, full_matrices=False),
        (draw(2, 5, 3),),
        invariant=vector_squares,
    ),
    Case(
        "svd_wide",
        lambda a: linalg.svd(a, full_matrices=False),
        lambda a: torch.linalg.svd(a, full_matrices=False),
        (draw(2, 4),),
        invariant=vector_squares,
    ),
    Case("svdvals", linalg.svdvals, torch.linalg.svdvals, (draw(4, 4),)),
    Case("pinv", linalg.pinv, torch.linalg.pinv, (draw(5, 3),)),
    Case(
        "lstsq",
        linalg.lstsq,
        lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").solution,
        (draw(5, 3), draw(5, 2)),
        grad=False,
    ),
]
NORMS = [
    *(
        Case(
            f"matrix_norm_{order}",
            lambda a, order=order: linalg.matrix_norm(a, order),
            lambda a, order=order: torch.linalg.matrix_norm(a, order),
            (draw(2, 3, 4),),
        )
        for order in ("fro", 1, -1, np.inf, -np.inf, 2, "nuc")
    ),
    Case("vector_norm", linalg.vector_norm, torch.linalg.vector_norm, (draw(3, 4),)),
    Case("cond", linalg.cond, torch.linalg.cond, (draw(3, 3),), grad=False),
    Case(
        "cond_1",
        lambda a: linalg.cond(a, 1),
        lambda a: torch.linalg.cond(a, 1),
        (draw(3, 3),),
        grad=False,
    ),
    *(
        Case(
            f"matrix_power_{n}",
            lambda a, n=n: linalg.matrix_power(a, n),
            lambda a, n=n: torch.linalg.matrix_power(a, n),
            (draw(2, 3, 3),),
            grad=n != 0,
        )
        for n in (5, -2, 0)
    ),
]

PRODUCTS = [
    Case(
        "multi_dot",
        lambda *a: linalg.multi_dot(a),
        lambda *a: torch.linalg.multi_dot(a),
        (draw(5), draw(5, 3), draw(3, 6), draw(6, 2)),
    ),
    Case("matrix_exp", linalg.matrix_exp, torch.linalg.matrix_exp, (3 * draw(2, 4, 4),)),
    Case(
        "lu_factor",
        lambda a: linalg.lu_factor(a)[0],
        lambda a: torch.linalg.lu_factor(a)[0],
        (draw(2, 4, 4),),
    ),
    *(
        Case(
            f"lu_solve_{options}",
            lambda a, b, options=options: linalg.lu_solve(*linalg.lu_factor(a), b, **options),
            lambda a, b, options=options: torch.linalg.lu_solve(
                *torch.linalg.lu_factor(a), b, **options
            ),
            (draw(2, 4, 4), draw(2, 4, 4)),
        )
        for options in ({}, {"adjoint": True}, {"left": False})
    ),
    Case(
        "lu_unpack",
        lambda a: linalg.lu_unpack(*linalg.lu_factor(a)),
        lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a)),
        (draw(2, 5, 3),),
    ),
    Case("logdet", linalg.logdet, torch.logdet, (positive(3, 4, 4),)),
    Case(
        "cholesky_inverse",
        linalg.cholesky_inverse,
        lambda a: torch.cholesky_inverse(a.tril()),
        (positive(4, 4),),
    ),
    Case("tensorinv", linalg.tensorinv, torch.linalg.tensorinv, (draw(2, 3, 6),)),
    Case("tensorsolve", linalg.tensorsolve, torch.linalg.tensorsolve, (draw(2, 3, 6), draw(2, 3))),
    Case(
        "householder_product",
        linalg.householder_product,
        torch.linalg.householder_product,
        (draw(2, 5, 3), draw(2, 2)),
        grad=False,
    ),
    Case("vander", linalg.vander, lambda x: torch.stack([x**0, x, x * x], -1), (draw(2, 3),)),
    Case("cross", linalg.cross, torch.linalg.cross, (draw(4, 3), draw(4, 3))),
    Case("vecdot", linalg.vecdot, torch.linalg.vecdot, (draw(4, 3), draw(4, 3))),
    Case(
        "diagonal",
        lambda a: linalg.diagonal(a, offset=1, dim1=0, dim2=2),
        lambda a: torch.linalg.diagonal(a, offset=1, dim1=0, dim2=2),
        (draw(3, 2, 4),),
    ),
]


def check(cases: list[Case], dtype: str = "f8", rtol: float = 1e-9, **options: Any) -> None:
    """Values and gradients of all cases by one program."""
    inputs, results, names, expected = [], [], [], []
    for case in cases:
        operands = [x.astype(dtype) for x in case.operands]
        tensors = [
            nova.tensor(x, requires_grad=case.grad, name=f"{case.name}_{i}")
            for i, x in enumerate(operands)
        ]
        truths = [torch.tensor(x.astype("f8"), requires_grad=case.grad) for x in operands]
        values = case.invariant(*as_tuple(case.function(*tensors)))
        wanted = case.invariant(*as_tuple(case.expected(*truths)))
        results += values
        expected += [w.detach().numpy() for w in wanted]
        names += [case.name] * len(values)
        inputs += tensors
        if case.grad and any(w.requires_grad for w in wanted):
            weights = [RNG.standard_normal(tuple(w.shape)) for w in wanted]
            terms = [(v * w.astype(dtype)).sum() for v, w in zip(values, weights, strict=True)]
            nova.backward(sum(terms[1:], terms[0]))
            sums = [(v * torch.tensor(w)).sum() for v, w in zip(wanted, weights, strict=True)]
            sum(sums[1:], sums[0]).backward()
            for tensor, truth in zip(tensors, truths, strict=True):
                if truth.grad is not None:
                    results.append(tensor.grad)
                    expected.append(truth.grad.numpy())
                    names.append(f"gradient of {case.name}")
    program = nova.compile(results, inputs=inputs, **options)
    outcome = program.run([t.data for t in inputs])
    for name, actual, want in zip(names, outcome, expected, strict=True):
        assert actual.shape == want.shape, name
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        assert np.allclose(actual, want, rtol=rtol, atol=rtol * scale), (
            f"{name}: {np.abs(actual - want).max()}"
        )


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def test_solvers() -> None:
    check(SOLVERS)


def test_factors() -> None:
    check(FACTORS)


def test_norms_and_powers() -> None:
    check(NORMS)


def test_products_and_packed_factors() -> None:
    check(PRODUCTS)
    a = draw(3, 5, 4)
    pivots = nova.jit(linalg.lu_factor)(a)[1]
    assert np.array_equal(pivots, torch.linalg.lu_factor(torch.tensor(a))[1])


ALL = {"solvers": SOLVERS, "factors": FACTORS, "norms": NORMS, "products": PRODUCTS}


@pytest.mark.slow
@pytest.mark.parametrize("cases", ALL.values(), ids=ALL)
def test_single_precision(cases: list[Case]) -> None:
    check(cases, "f4", 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cases", ALL.values(), ids=ALL)
def test_on_the_simulated_device(cases: list[Case]) -> None:
    check(cases[::3], "f8", 1e-9, target="cuda:sm_80", run_mode="sim")


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 32])
def test_sizes(n: int) -> None:
    """Sizes that are odd or even: the Jacobi methods pad them."""
    a = draw(n, n)
    p, lower, upper = nova.jit(linalg.lu)(a)
    assert np.allclose(p @ lower @ upper, a)
    w, v = nova.jit(linalg.eigh)(a + a.T)
    assert np.allclose((v * w) @ v.T, a + a.T) and np.allclose(w, np.linalg.eigvalsh(a + a.T))
    u, s, vh = nova.jit(linalg.svd)(a)
    assert np.allclose((u * s) @ vh, a) and np.allclose(s, np.linalg.svd(a)[1])


def test_special_matrices() -> None:
    ones = np.full((4, 3), 1e-30, "f4")
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])

    @nova.jit
    def run(ones: Any, singular: Any) -> Any:
        return (
            linalg.svd(ones),
            linalg.det(singular),
            linalg.slogdet(singular),
            linalg.cholesky(-singular),
            linalg.matrix_rank(singular),
            linalg.eigvalsh(singular * np.nan),
            linalg.pinv(singular),
            linalg.qr(singular * 0.0),
        )

    (u, s, vh), zero, (sign, log), not_positive, rank, nans, inverse, (q, r) = run(ones, singular)
    # Rank one: the other singular vectors are still orthonormal.
    assert np.allclose(u.T @ u, np.eye(4), atol=1e-6)
    assert np.allclose(vh @ vh.T, np.eye(3), atol=1e-6)
    assert np.allclose(s, [np.sqrt(12) * 1e-30, 0, 0], rtol=1e-6, atol=1e-36)
    assert zero == 0.0 and sign == 0.0 and log == -np.inf and rank == 1
    assert np.isnan(not_positive).any() and np.isnan(nans).all()
    assert np.allclose(inverse, np.linalg.pinv(singular))
    assert np.array_equal(q, np.eye(2)) and not r.any()


@pytest.mark.slow
def test_second_derivative() -> None:
    a = positive(3, 3)
    gradient = nova.grad(lambda x: linalg.slogdet(x)[1])
    rows = [nova.grad(lambda x, i=i: nova.reshape(gradient(x), (9,))[i])(a) for i in range(9)]
    actual = np.stack([np.asarray(row) for row in rows]).reshape(3, 3, 3, 3)
    wanted = torch.autograd.functional.hessian(
        lambda x: torch.linalg.slogdet(x)[1], torch.tensor(a)
    )
    assert np.allclose(actual, wanted.numpy())


def test_in_a_file(tmp_path: Path) -> None:
    a, b = positive(4, 4).astype("f4"), draw(4, 2).astype("f4")
    A, B = nova.tensor(a, name="A"), nova.tensor(b, name="B")
    nova.compile(linalg.solve(A, B), inputs=[A, B]).save(tmp_path / "solve.nova")
    assert np.allclose(nova.load(tmp_path / "solve.nova")(a, b), np.linalg.solve(a, b), atol=1e-4)


def test_half_precision_computes_in_single() -> None:
    a = positive(3, 3).astype("f2")
    factor = linalg.cholesky(nova.tensor(a))
    assert factor.dtype.name == "f16" or str(factor.dtype) == "float16"
    exact = np.linalg.cholesky(a.astype("f8"))
    assert np.allclose(factor.numpy().astype("f8"), exact, rtol=2e-3, atol=2e-3)


ERRORS = [
    (lambda: linalg.cholesky(draw(3)), ShapeError, "cholesky"),
    (lambda: linalg.inv(draw(3, 4)), ShapeError, "not square"),
    (lambda: linalg.solve(draw(3, 3), draw(4, 2)), ShapeError, "right side"),
    (lambda: linalg.solve_triangular(draw(3, 3), draw(2, 2), upper=True), ShapeError, "right side"),
    (lambda: linalg.qr(draw(3, 3), "economic"), AttributeValueError, "mode 'economic'"),
    (lambda: linalg.eigh(draw(3, 3), "X"), AttributeValueError, "UPLO 'X'"),
    (lambda: linalg.matrix_norm(draw(3, 3), 3), AttributeValueError, "ord 3"),
    (lambda: linalg.matrix_power(draw(3, 3), 0.5), AttributeValueError, "not an int"),
    (lambda: linalg.multi_dot([draw(2, 3), draw(4, 2)]), ShapeError, "multi_dot"),
    (lambda: linalg.matrix_exp(draw(2, 3)), ShapeError, "not square"),
    (lambda: linalg.lu_factor(draw(2, 2), pivot=False), AttributeValueError, "pivot=False"),
    (lambda: linalg.lu_solve(draw(2, 2), np.ones(3, "i4"), draw(2, 1)), ShapeError, "pivots"),
    (lambda: linalg.tensorinv(draw(2, 3)), ShapeError, "tensorinv"),
    (lambda: linalg.householder_product(draw(2, 3), draw(2)), ShapeError, "householder_product"),
    (
        lambda: linalg.inv(nova.input((nova.dim("N"), 3), "f32")),
        SymbolicSizeError,
        "symbolic sizes",
    ),
]


@pytest.mark.parametrize(("call", "error", "says"), ERRORS)
def test_errors(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_factors_without_a_gradient() -> None:
    """Columns that the matrix does not determine; the singular values have their gradient."""
    a = draw(4, 3)
    for part in (0, 1):
        with pytest.raises(GradientError, match="mode 'complete' of more rows") as caught:
            nova.grad(lambda x, i=part: linalg.qr(x, "complete")[i].sum())(a)
        assert __file__ in str(caught.value.where)
    with pytest.raises(GradientError, match="the square U and V"):
        nova.grad(lambda x: linalg.svd(x)[0].sum())(a)
    actual = nova.jit(nova.grad(lambda x: (linalg.svd(x)[1] * np.arange(3)).sum()))(a)
    truth = torch.tensor(a, requires_grad=True)
    (torch.linalg.svdvals(truth) * torch.arange(3)).sum().backward()
    np.testing.assert_allclose(actual, truth.grad, rtol=1e-9, atol=1e-12)


def test_a_matrix_of_nan_leaves_the_others() -> None:
    good = symmetric(draw(3, 4, 4))
    mixed = good.copy()
    mixed[1, 2, 3] = mixed[1, 3, 2] = np.nan
    values, singular = nova.jit(lambda a: (linalg.eigvalsh(a), linalg.svdvals(a)))(mixed)
    assert np.allclose(values[[0, 2]], np.linalg.eigvalsh(good[[0, 2]]))
    assert np.allclose(singular[[0, 2]], np.linalg.svd(good[[0, 2]])[1])
    assert np.isnan(values[1]).any()


def test_scales() -> None:
    """Squares of the elements would overflow or vanish in f32."""
    run = nova.jit(lambda a: (linalg.eigvalsh(a), linalg.svdvals(a), linalg.qr(a)))
    base = np.array([[2, 1], [1, 2]], "f4")
    for scale in (np.float32(1e-25), np.float32(1e19), np.float32(1e30)):
        values, singular, (q, r) = run(base * scale)
        assert np.allclose(values / scale, [1, 3], rtol=1e-5)
        assert np.allclose(singular / scale, [3, 1], rtol=1e-5)
        assert np.allclose(q @ (r / scale), base, atol=1e-5)


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "qr", "eigh", "svd", "matrix_rank"])
def test_matrices_of_no_rows(name: str) -> None:
    values = as_tuple(getattr(linalg, name)(np.zeros((2, 0, 0))))
    truths = as_tuple(getattr(torch.linalg, name)(torch.zeros(2, 0, 0)))
    assert [tuple(v.shape) for v in values] == [tuple(t.shape) for t in truths]


def test_gradients_at_edges() -> None:
    """That of a symmetric matrix is symmetric; the Frobenius norm has one at zero."""
    a = symmetric(draw(3, 3))
    actual = nova.jit(nova.grad(lambda x: (linalg.eigvalsh(x) ** 2).sum()))(a)
    np.testing.assert_allclose(actual, 2 * a, rtol=1e-9)
    assert not nova.jit(nova.grad(linalg.matrix_norm))(np.zeros((2, 2))).any()


@pytest.mark.parametrize("upper", [False, True])
def test_a_unit_diagonal_is_not_read(upper: bool) -> None:
    a, b = draw(4, 4), draw(4, 2)
    np.fill_diagonal(a, np.nan)
    x, y = (torch.tensor(v, requires_grad=True) for v in (a, b))
    expected = torch.linalg.solve_triangular(x, y, upper=upper, unitriangular=True)
    expected.sum().backward()

    def solve(a: Any, b: Any) -> Any:
        return linalg.solve_triangular(a, b, upper=upper, unitriangular=True)

    operands = tuple(nova.tensor(v, dtype="f64") for v in (a, b))
    np.testing.assert_allclose(solve(*operands).numpy(), expected.detach().numpy(), rtol=1e-9)
    gradients = nova.grad(lambda a, b: solve(a, b).sum(), argnums=(0, 1))(*operands)
    for gradient, leaf in zip(gradients, (x, y), strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(gradient.numpy(), leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((3, 2)),
        np.array([[1.0, 2], [2, 4], [3, 6], [1, 2]]),
        np.array([[0, 0, 1.0], [0, 0, 2], [0, 3, 4], [0, 1, 1]]) * (1 + 2j),
    ],
)
def test_lu_of_dependent_columns(rows: np.ndarray) -> None:
    """A zero pivot has multipliers 0, also in the rows below the square."""
    for part, truth in zip(linalg.lu(rows), torch.linalg.lu(torch.tensor(rows)), strict=True):
        np.testing.assert_allclose(part.numpy(), truth.numpy(), atol=1e-12)


def test_solve_takes_lists() -> None:
    assert linalg.solve([[2.0, 0.0], [0.0, 4.0]], [1.0, 2.0]).numpy().tolist() == [0.5, 0.5]
    with pytest.raises(ShapeError, match="not a batch of matrices"):
        linalg.solve(np.eye(2), 1.0)
