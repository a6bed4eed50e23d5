"""Complex tensors against torch: every rule forward and by gradient, layout, types, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import errors
from nova.graph.interpret import evaluate
from nova.ops.complex.rules import RULES

RNG = np.random.default_rng(11)


def numbers(*shape: int, dtype: str = "c16") -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square"),
    *("reciprocal", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sigmoid", "neg", "conj", "abs", "angle", "real", "imag"),
)
X, Y = numbers(3, 4) * 2, numbers(3, 4)
REAL = RNG.normal(size=(3, 4))
INDEX = np.array([2, 0, 1, 1])
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{name: (getattr(nova, name), getattr(torch, name)) for name in UNARY},
    "sign": (nova.sign, torch.sgn),
    "add": (lambda x: x + Y, lambda x: x + torch.tensor(Y)),
    "add_real": (lambda x: REAL + x + 1, lambda x: torch.tensor(REAL) + x + 1),
    "sub": (lambda x: 2j - x * (1 - 3j), lambda x: 2j - x * (1 - 3j)),
    "sub_real": (lambda x: REAL - x, lambda x: torch.tensor(REAL) - x),
    "mul": (lambda x: x * x[0] * Y, lambda x: x * x[0] * torch.tensor(Y)),
    "div": (lambda x: Y / x + x / REAL, lambda x: torch.tensor(Y) / x + x / torch.tensor(REAL)),
    "matmul": (lambda x: x @ Y.T, lambda x: x @ torch.tensor(Y.T)),
    "matmul_real": (lambda x: x @ REAL.T, lambda x: x @ torch.tensor(REAL.T).to(torch.complex128)),
    "einsum": (
        lambda x: nova.einsum("ij,kj->ik", x, nova.conj(x)),
        lambda x: torch.einsum("ij,kj->ik", x, x.conj()),
    ),
    "pow": (lambda x: x**3 + x**-2 + x**0.5, lambda x: x**3 + x**-2 + x**0.5),
    "pow_complex": (lambda x: x ** (0.5 + 1j), lambda x: x ** (0.5 + 1j)),
    "pow_tensor": (lambda x: nova.pow(x, Y), lambda x: torch.pow(x, torch.tensor(Y))),
    "sum": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "mean": (lambda x: x.mean(axis=1, keepdims=True), lambda x: x.mean(1, keepdim=True)),
    "prod": (lambda x: x.prod(0), lambda x: x.prod(0)),
    "prod_all": (lambda x: x.prod(), lambda x: x.prod()),
    "var": (lambda x: x.var(axis=1), lambda x: x.var(1)),
    "std": (lambda x: x.std(axis=0), lambda x: x.std(0)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "reshape": (lambda x: x.reshape(2, 6).T, lambda x: x.reshape(2, 6).T),
    "slices": (lambda x: x[::2, 1:], lambda x: x[::2, 1:]),
    "flip": (lambda x: nova.flip(x, (1,)), lambda x: torch.flip(x, (1,))),
    "expand": (lambda x: x[:1].expand((5, 4)), lambda x: x[:1].expand((5, 4))),
    "concat": (
        lambda x: nova.concat([x, Y, x], 1),
        lambda x: torch.cat([x, torch.tensor(Y), x], 1),
    ),
    "stack": (lambda x: nova.stack([x, x * x]), lambda x: torch.stack([x, x * x])),
    "pad": (
        lambda x: nova.pad(x, (1, 0), (0, 2)),
        lambda x: torch.nn.functional.pad(x, (0, 2, 1, 0)),
    ),
    "tril": (nova.tril, torch.tril),
    "take": (lambda x: nova.take(x, INDEX[:3], axis=1), lambda x: x[:, INDEX[:3]]),
    "where": (
        lambda x: nova.where(REAL > 0, x, Y),
        lambda x: torch.where(torch.tensor(REAL > 0), x, torch.tensor(Y)),
    ),
    "norm": (lambda x: nova.norm(x), lambda x: torch.linalg.norm(x)),
    "outer": (lambda x: nova.outer(x[0], x[1]), lambda x: torch.outer(x[0], x[1])),
    "view_as_real": (nova.view_as_real, torch.view_as_real),
    "polar": (
        lambda x: nova.polar(nova.abs(x), nova.angle(x) * 2),
        lambda x: torch.polar(x.abs(), x.angle() * 2),
    ),
    "view_as_complex": (
        lambda x: nova.view_as_complex(nova.view_as_real(x) * 2),
        lambda x: torch.view_as_complex(torch.view_as_real(x) * 2),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    ours, theirs = ROWS[name]
    reference = torch.tensor(X, requires_grad=True)
    want = theirs(reference)
    weight = numbers(*want.shape) if want.is_complex() else RNG.normal(size=tuple(want.shape))
    (want * torch.tensor(weight)).real.sum().backward()
    x = nova.tensor(X, requires_grad=True, name="x")
    value = ours(x)
    nova.backward(nova.real(value * weight).sum())
    assert reference.grad is not None and x.grad is not None
    results = nova.compile([value, x.grad], inputs=[x]).run([X])
    for result, reference_value, oracle in zip(
        results,
        (want.detach().resolve_conj().numpy(), reference.grad.resolve_conj().numpy()),
        evaluate([value, x.grad]),
        strict=True,
    ):
        assert result.dtype == reference_value.dtype
        np.testing.assert_allclose(result, reference_value, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(oracle, reference_value, rtol=1e-10, atol=1e-10)


TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "uint8", "bool")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("wide", [False, True])
def test_promotion_is_torch_s(name: str, wide: bool) -> None:
    complex_type = torch.complex128 if wide else torch.complex64
    expected = torch.promote_types(getattr(torch, name), complex_type)
    ours = nova.complex128 if wide else nova.complex64
    short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
    other = nova.core.dtypes.dtype(short.get(name, name))
    assert nova.core.dtypes.promote(ours, other).name == str(expected).removeprefix("torch.")
    product = nova.ones((2,), dtype=ours) * nova.ones((2,), dtype=other)
    assert product.dtype.name == str(expected).removeprefix("torch.")


def test_python_numbers_are_weak() -> None:
    assert (nova.ones((2,)) * 1j).dtype is nova.complex64
    assert (nova.ones((2,), dtype="f64") + 1j).dtype is nova.complex128
    assert (nova.ones((2,), dtype="complex64") * 2.5).dtype is nova.complex64
    assert nova.tensor([1j, 2]).dtype is nova.complex64
    assert nova.zeros((2,), dtype=nova.complex128).numpy().dtype == np.complex128
    assert nova.full((2,), 1 + 2j).numpy().tolist() == [1 + 2j] * 2


def test_tests_of_elements() -> None:
    x = np.array([1 + 2j, 0, complex("nan+1j"), complex("1+infj")], "c8")
    t = nova.tensor(x)
    for name in ("isnan", "isinf", "isfinite", "logical_not"):
        assert np.array_equal(getattr(nova, name)(t).numpy(), getattr(np, name)(x)), name
    assert (t == x).numpy().tolist() == [True, True, False, True]
    assert (t != 0).numpy().tolist() == [True, False, True, True]
    assert bool(nova.any(t).numpy()) and not bool(nova.all(t).numpy())
    assert t.cast("bool").numpy().tolist() == [True, False, True, True]


def test_large_and_small_numbers_do_not_overflow() -> None:
    x = np.array([3e30 + 4e30j, 3e-30 + 4e-30j, 1e30 - 2e30j], "c8")
    np.testing.assert_allclose(nova.abs(x).numpy(), np.abs(x), rtol=1e-6)
    np.testing.assert_allclose((nova.tensor(x) / x).numpy(), np.ones(3), rtol=1e-6)
    np.testing.assert_allclose(nova.sqrt(x).numpy(), np.sqrt(x), rtol=1e-6)
    np.testing.assert_allclose(nova.tanh(np.array([90 + 1j], "c8")).numpy(), 1, rtol=1e-6)


def test_gradient_of_abs_at_zero_is_zero() -> None:
    gradient = nova.grad(lambda x: nova.abs(x).sum())(np.zeros(2, "c8"))
    assert np.array_equal(np.asarray(gradient), np.zeros(2, "c8"))


def test_control_flow_carries_pairs() -> None:
    xs = numbers(5, 3)

    def total(xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            return carry * x + 1j, nova.abs(carry)

        last, sizes = nova.scan(step, xs[0], xs[1:])
        doubled = nova.cond(sizes.sum() > 0, lambda x: x * 2j, lambda x: x, last)
        return nova.real(doubled * nova.conj(last)).sum() + sizes.sum(), doubled

    reference = torch.tensor(xs, requires_grad=True)
    carry, sizes = reference[0], []
    for x in reference[1:]:
        sizes.append(carry.abs())
        carry = carry * x + 1j
    loss = (carry * 2j * carry.conj()).real.sum() + torch.stack(sizes).sum()
    loss.backward()
    (value, doubled), gradient = nova.jit(nova.value_and_grad(total, has_aux=True))(xs)
    assert reference.grad is not None
    np.testing.assert_allclose(np.asarray(value), loss.item(), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(doubled), (carry * 2j).detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(gradient), reference.grad.numpy(), rtol=1e-9)


def test_vmap() -> None:
    x, y = numbers(4, 3), numbers(3)
    mapped = nova.vmap(lambda a, b: nova.complex(nova.abs(a), 1.0) * b, in_axes=(0, None))
    np.testing.assert_allclose(mapped(x, y).numpy(), (np.abs(x) + 1j) * y, rtol=1e-12)


def test_save_and_load(tmp_path: Path) -> None:
    x = nova.input((3,), "complex64", name="x")
    program = nova.compile([x * (2 + 1j), nova.abs(x)], inputs=[x])
    program.save(tmp_path / "f.nova")
    model = nova.load(tmp_path / "f.nova")
    value = numbers(3, dtype="c8")
    product, size = model(value)
    assert "complex64[3]" in str(model.signature)
    np.testing.assert_allclose(product, value * (2 + 1j), rtol=1e-6)
    np.testing.assert_allclose(size, np.abs(value), rtol=1e-6)
    with pytest.raises(errors.ArgumentDTypeError, match="complex64"):
        model(value.astype("c16"))


def test_plan_text_and_constants() -> None:
    constant = np.array([1 - 0j, complex(-0.0, -0.0), 2j], "c8")
    x = nova.input((3,), "complex64", name="x")
    program = nova.compile([x * constant], inputs=[x])
    plan = nova.plan.text.parse_plan(str(program.plan))
    again = nova.compile_plan(plan)
    value = numbers(3, dtype="c8")
    np.testing.assert_allclose(again.run([value]), value * constant, rtol=1e-6)
    assert "tensor<3xcomplex<f32>>" in program.mlir_source


def test_on_a_simulated_device() -> None:
    x = numbers(8, 16, dtype="c8")
    program = nova.jit(
        lambda x: (x @ nova.conj(x.T), nova.exp(x)), target="cuda:sm_80", run_mode="sim"
    )
    product, power = program(x)
    np.testing.assert_allclose(np.asarray(product), x @ x.conj().T, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.asarray(power), np.exp(x), rtol=1e-4, atol=1e-5)


REFUSED = (
    (errors.DTypeError, lambda x: nova.maximum(x, x), "maximum: complex numbers are not supported"),
    (errors.DTypeError, lambda x: x < x, "lt: complex numbers are not supported"),
    (errors.DTypeError, lambda x: x.cast("f32"), "cast: .* would drop the imaginary part"),
    (errors.DTypeError, lambda x: nova.complex(x, 1.0), "complex: the parts .* are real"),
    (errors.DTypeError, lambda x: nova.view_as_real(nova.abs(x)), "is not complex"),
    (errors.ShapeError, lambda x: nova.view_as_complex(nova.abs(x)), "no last axis of size 2"),
    (errors.GradientError, lambda x: nova.grad(lambda y: y.sum())(x), "one real number"),
    (errors.DTypeError, lambda x: nova.softmax(x), "softmax: complex numbers"),
    (errors.DTypeError, lambda x: nova.cosine_similarity(x, x, 0), "is complex"),
)


@pytest.mark.parametrize(("error", "call", "text"), REFUSED)
def test_refusals_name_the_line(error: type, call: Callable[..., Any], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(nova.tensor(numbers(3)))
    assert "test_complex.py" in str(caught.value)


def test_every_rule_is_a_row() -> None:
    assert set(RULES) <= set(nova.ops.OPS)


def _points(name: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    angles, sizes = rng.uniform(-np.pi, np.pi, 4000), np.exp(rng.uniform(-8, 8, 4000))
    if name == "near the unit circle":
        sizes = 1 + rng.standard_normal(4000) * np.exp(rng.uniform(-16, -1, 4000))
    if name == "left half plane":
        return (rng.uniform(-40, 0, 4000) + 1j * rng.uniform(-3, 3, 4000)).astype("c8")
    if name == "near a pole of sigmoid":
        near = rng.standard_normal((2, 4000)) * np.exp(rng.uniform(-8, 0, 4000))
        return (near[0] + 1j * (np.pi + near[1])).astype("c8")
    return (sizes * np.exp(1j * angles)).astype("c8")


@pytest.mark.parametrize(
    "name", ["anywhere", "near the unit circle", "left half plane", "near a pole of sigmoid"]
)
def test_digits_of_logarithms_and_sigmoid(name: str) -> None:
    """Relative errors of complex64, against numpy in complex128; of log, those of the parts."""
    points = _points(name)
    wide = points.astype("c16")
    x = nova.tensor(points)
    sizes = np.hypot(wide.real, wide.imag)
    # Of numpy's long doubles: log(size) in f64 has no digits on the circle either.
    squares = np.longdouble(wide.real) ** 2 + np.longdouble(wide.imag) ** 2
    expected = np.where(np.abs(sizes - 1) < 0.5, np.log1p(squares - 1) / 2, np.log(sizes))
    result = nova.log(x).numpy()
    np.testing.assert_allclose(result.real, expected.astype("f8"), rtol=1e-6)
    np.testing.assert_allclose(result.imag, np.angle(wide), rtol=1e-6)
    with np.errstate(all="ignore"):
        right = 1 / (1 + np.exp(-wide))
        right = np.where(np.isnan(right), 0, right)
    error = np.abs(nova.sigmoid(x).numpy() - right)
    assert (error <= 1e-6 * np.abs(right) + 1e-37).all()


def test_derivatives_of_logarithm_and_sigmoid_as_torch() -> None:
    points = np.array([1, -1, 1j, 0.6 + 0.8j, 0.5 + 0.5j, 3 - 4j, 1e-3j, -2 + 1j, 0], "c16")
    for name in ("log", "sigmoid", "log1p"):
        used = points[:-1] if name == "log" else points[points != -1]
        t = torch.tensor(used, requires_grad=True)
        function = getattr(torch, name)
        function(t).real.sum().backward()
        x = nova.tensor(used, requires_grad=True)
        nova.backward(nova.real(getattr(nova, name)(x)).sum())
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-12, atol=1e-12)


INFINITIES = [
    complex(a, b)
    for a in (-np.inf, -2.0, -0.0, 0.0, 3.0, np.inf, np.nan)
    for b in (-np.inf, -1.0, -0.0, 0.0, 5.0, np.inf, np.nan)
]


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_roots_of_infinities_are_those_of_numpy(dtype: str) -> None:
    x = np.array(INFINITIES, dtype)
    with np.errstate(all="ignore"):
        expected = np.sqrt(x)
    actual = nova.sqrt(x).numpy()
    for ours, theirs in ((actual.real, expected.real), (actual.imag, expected.imag)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("dividend", [1, 2 - 3j])
def test_a_number_over_an_infinity_is_zero(dtype: str, dividend: complex) -> None:
    """numpy gives NaN only for two infinite parts, where C99 asks for 0."""
    x = np.array([v for v in INFINITIES if np.isinf(v) and not np.isnan(v)], dtype)
    with np.errstate(all="ignore"):
        expected = np.where(np.isinf(x.real) & np.isinf(x.imag), 0, dividend / x)
    for actual in (dividend / nova.tensor(x), nova.div(np.full_like(x, dividend), x)):
        np.testing.assert_array_equal(actual.numpy(), expected)
    reciprocals = nova.reciprocal(x).numpy()
    np.testing.assert_array_equal(reciprocals, np.zeros_like(x))
    one_infinity = ~(np.isinf(x.real) & np.isinf(x.imag))
    with np.errstate(all="ignore"):
        theirs = np.reciprocal(x)
    for part in ("real", "imag"):
        np.testing.assert_array_equal(
            np.signbit(getattr(reciprocals, part))[one_infinity],
            np.signbit(getattr(theirs, part))[one_infinity],
        )


def test_gradients_at_infinities_are_finite() -> None:
    x = nova.tensor(np.array([complex(np.inf, 2), 3 + 4j]), requires_grad=True)
    loss = nova.sum(nova.real(nova.reciprocal(x)))
    nova.backward(loss)
    gradient = x.grad.numpy()
    y = torch.tensor([3 + 4j], dtype=torch.complex128, requires_grad=True)
    torch.reciprocal(y).real.sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(gradient[1:], y.grad.numpy(), rtol=1e-12)
    assert gradient[0] == 0


@pytest.mark.parametrize(
    "name", ["exp", "sinh", "cosh", "tanh", "sigmoid", "asinh", "acosh", "asin", "acos", "atan"]
)
def test_functions_of_infinite_numbers(name: str) -> None:
    parts = (np.inf, -np.inf, 0.0, -0.0, 1.5)
    z = np.array([complex(a, b) for a in parts for b in parts if np.inf in (abs(a), abs(b))])
    expected = getattr(torch, name)(torch.tensor(z)).numpy()
    actual = np.asarray(nova.jit(getattr(nova, name))(z))
    # torch has NaN of -inf; a real part of unspecified sign is compared by its size.
    keep = ~np.isneginf(z.real) if name == "sigmoid" else np.ones(len(z), bool)
    size = np.abs if name == "sinh" else np.asarray
    np.testing.assert_allclose(size(actual.real[keep]), size(expected.real[keep]), atol=1e-15)
    np.testing.assert_allclose(actual.imag[keep], expected.imag[keep], atol=1e-15)
