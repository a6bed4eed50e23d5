"""`@nova.jit`: signatures, nested arguments and results, transforms, what a trace must not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nova
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentTypeError,
    AttributeValueError,
    ConcreteValueError,
    DTypeError,
    GradientError,
    GraphError,
    ShapeError,
    TargetError,
)
from nova.graph.autodiff import gradients
from nova.plan import build_plan, parse_plan

A = np.arange(6, dtype="f4").reshape(2, 3)
V = np.array([1, -2, 3], "f4")


def calls_of(function):
    """A function and the list of its traces: how often Python code of it ran."""
    traces = []

    def counted(*args, **kwargs):
        traces.append((args, kwargs))
        return function(*args, **kwargs)

    counted.__name__ = function.__name__
    return counted, traces


# --- decorating -----------------------------------------------------------------------------------


def test_plain_and_with_options():
    @nova.jit
    def plain(x, y):
        """Adds."""
        return x + y

    @nova.jit(target="cpu", run_mode="native")
    def configured(x, y):
        return x + y

    assert plain.__name__ == "plain" and plain.__doc__ == "Adds."
    for f in (plain, configured, nova.jit(lambda x, y: x + y)):
        result = f(A, V)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, A + V)
        assert f.cache_info()[:3] == (0, 1, 1)


def test_bad_options():
    with pytest.raises(TargetError, match="did you mean 'cpu'") as caught:
        nova.jit(lambda x: x, target="cpus")
    assert __file__ in caught.value.where
    with pytest.raises(AttributeValueError, match="run_mode is 'fast'"):
        nova.jit(run_mode="fast")(lambda x: x)
    with pytest.raises(TypeError):
        nova.jit(lambda x: x, mode="native")


# --- arguments ------------------------------------------------------------------------------------


def test_nested_arguments_and_results():
    @nova.jit
    def f(batch, *, scale, extra=None):
        (x, [y]), _ = batch
        total = x * scale + y
        if extra is not None:
            total = total + extra
        return {"z": total, "a": [x.sum(), None, (y,)], 3: 2.5}

    batch = ((A, [V]), {"unused": V})
    result = f(batch, scale=2.0)
    assert list(result) == ["z", "a", 3], "keys stay in the order of the function"
    np.testing.assert_array_equal(result["z"], A * 2 + V)
    assert result["a"][0] == 15 and result["a"][1] is None
    np.testing.assert_array_equal(result["a"][2][0], V)
    assert result[3] == 2.5 and result[3].dtype == np.float32
    f(batch, extra=None, scale=3.0)
    assert f.cache_info().misses == 2 and "nested differently" in f.explain()
    f(batch, scale=3.0, extra=None)
    assert f.cache_info()[:3] == (1, 2, 2)
    np.testing.assert_array_equal(f(batch, scale=1.0, extra=V)["z"], A + V + V)


def test_the_order_of_dict_keys_does_not_matter():
    f = nova.jit(lambda d: d["x"] - d["y"])
    single, two = {"x": A, "y": V, 1: V}, {1: V, "y": V, "x": A}
    np.testing.assert_array_equal(f(single), f(two))
    assert f.cache_info()[:3] == (1, 1, 1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * 2, A * 2),
        (lambda x: (x * 2,), (A * 2,)),
        (lambda x: [x, x + 1], [A, A + 1]),
        (lambda x: (x, (x.sum(), {"k": x})), (A, (np.float32(15), {"k": A}))),
        (lambda x: None, None),
        (lambda x: (), ()),
        (lambda x: 7, np.int64(7)),
        (lambda x: V, V),
        (lambda x: nova.tensor([1.0, 2.0]), np.float32([1, 2])),
    ],
)
def test_results_of_every_form(function, expected):
    f = nova.jit(function)
    for _ in range(2):
        check_same(f(A), expected)


def check_same(result, expected):
    if isinstance(expected, tuple | list):
        assert type(result) is type(expected) and len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            check_same(a, b)
    elif isinstance(expected, dict):
        assert result.keys() == expected.keys()
        for key in expected:
            check_same(result[key], expected[key])
    elif expected is None:
        assert result is None
    else:
        assert type(result) is np.ndarray and result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_numbers_take_the_type_they_stand_beside():
    """Like a number in plain code, whatever was called before."""
    f = nova.jit(lambda x, s: x * s)
    doubles = A.astype("f8")
    for _ in range(2):
        assert f(A, 2).dtype == np.float32
        assert f(A, 0.1).dtype == np.float32
        assert f(A, np.float64(0.1)).dtype == np.float64
        assert f(A, np.array(2, "i4")).dtype == np.float32
        assert f(doubles, 0.1).dtype == np.float64
        np.testing.assert_array_equal(f(doubles, 0.1), doubles * 0.1)
        assert f(3, 4) == 12 and f(3, 4).dtype == np.int64
        assert f(1.5, 2.0) == 3 and f(1.5, 2.0).dtype == np.float32
        assert f(True, A).dtype == np.float32
    assert f.cache_info().misses == 8
    f(A, 0.25)
    f(A, -1)
    assert f.cache_info().misses == 8, "another number is not another signature"
    assert nova.jit(lambda x: x)(0.1).dtype == np.float32
    assert nova.grad(nova.jit(lambda x: x * x))(3.0) == 6


def test_arrays_of_other_libraries_and_layouts():
    f = nova.jit(lambda x, y: x + y)
    expected = A + V
    for x in (A, torch.from_numpy(A.copy()), A.T.copy().T, np.asfortranarray(A), A.astype(">f4")):
        for y in (V, torch.from_numpy(V.copy()).requires_grad_(), np.repeat(V, 2)[::2]):
            np.testing.assert_array_equal(f(x, y), expected)
    assert f.cache_info().misses == 1


def test_hints_of_values_that_are_not_arrays():
    """`static_argnames` is proposed for what it takes: hashable values of a named parameter."""

    def run(x, *rest, mode=None, **others):
        return x

    f = nova.jit(run)
    with pytest.raises(ArgumentTypeError, match="argument 'mode' is a str") as caught:
        f(A, mode="fast")
    assert 'static_argnames=["mode"]' in caught.value.hint
    static = nova.jit(run, static_argnames=["mode"])
    np.testing.assert_array_equal(static(A, mode="fast"), A)
    calls = {
        "x1": lambda: f(A, "fast"),
        "other": lambda: f(A, other="fast"),
        "mode.key": lambda: f(A, mode={"key": "fast"}),
        "mode": lambda: f(A, mode={1, 2}),
    }
    for name, call in calls.items():
        with pytest.raises(ArgumentTypeError, match=f"argument '{name}' is a s") as caught:
            call()
        assert "static" not in caught.value.hint


def test_bad_arguments():
    f = nova.jit(lambda x, y: x + y)
    f(A, A)
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match="argument 'y' is a str") as caught:
            f(A, "text")
        assert 'static_argnames=["y"]' in caught.value.hint
        assert __file__ in caught.value.where
        with pytest.raises(ArgumentDTypeError, match="does not fit i64"):
            f(A, 2**70)
        with pytest.raises(DTypeError, match=r"argument 'x': .*m8") as caught:
            f(A.astype("m8[s]"), A)
        assert __file__ in caught.value.where
        with pytest.raises(ShapeError, match="add") as caught:
            f(A, np.ones(4, "f4"))
        assert __file__ in caught.value.where
        with pytest.raises(TypeError, match="positional"):
            f(A)
    np.testing.assert_array_equal(f(A, A), A + A)
    assert f.cache_info().size == 1


# --- the cache ------------------------------------------------------------------------------------


def test_recompiles_only_for_a_new_signature():
    counted, traces = calls_of(lambda x, y: x @ y)
    f = nova.jit(counted)
    assert f.explain() == "never called"
    shapes = [(2, 3), (4, 3), (2, 3), (4, 3)]
    for shape in shapes:
        for mode in ("f4", "f8"):
            x, y = np.ones(shape, mode), np.ones((3, 2), mode)
            result = f(x, y)
            assert result.dtype == mode and result.shape == (shape[0], 2)
    assert len(traces) == 4 and f.cache_info()[:3] == (4, 4, 4)
    for _ in range(5):
        f(np.ones((4, 3)), np.ones((3, 2)))
    assert f.cache_info()[:3] == (9, 4, 4)


def test_explain_says_what_changed():
    f = nova.jit(lambda x, y=None: x)
    f(A)
    assert f.explain() == "first call"
    f(A.astype("f8"))
    assert f.explain() == "x0: f32[2,3] became f64[2,3]"
    f(V)
    assert f.explain() == "x0: f64[2,3] became f32[3]"
    f(2.0)
    assert f.explain() == "x0: f32[3] became a float"
    f(2.0, y=V)
    assert f.explain() == "the arguments are nested differently: ((*), {}) became ((*), {y: *})"


def test_lower_compiles_without_running():
    f = nova.jit(lambda x, y: x - y)
    program = f.lower(A, V)
    assert [str(a.type) for a in program.signature.inputs] == ["f32[2,3]", "f32[3]"]
    assert "nova.sub" in program.mlir_source
    assert f.cache_info()[:3] == (0, 1, 1)
    np.testing.assert_array_equal(f(A, V), program(A, V))
    assert f.cache_info()[:3] == (1, 1, 1)


# --- tensors, transforms --------------------------------------------------------------------------


def test_called_with_tensors_it_builds_graph():
    f = nova.jit(lambda x, y: x * y)
    f(V, V)
    for inputs in (nova.tensor(V), nova.graph.placeholder((3,), "f4", "p")):
        result = f(inputs, V)
        assert isinstance(result, nova.Tensor)
    np.testing.assert_array_equal(f(nova.tensor(V), V).numpy(), V * V)
    assert f.cache_info().misses == 1


def test_jit_inside_jit():
    counted, traces = calls_of(lambda x: nova.exp(x) + 1)
    inner = nova.jit(counted)
    inner(V)
    outer = nova.jit(lambda x: inner(x) * inner(x + 1))
    expected = (np.exp(V) + 1) * (np.exp(V + 1) + 1)
    np.testing.assert_allclose(outer(V), expected, rtol=1e-6)
    assert len(traces) == 3 and inner.cache_info().misses == 1
    assert len(outer.lower(V).kernels) == 1, "both are one program"


def test_a_call_with_arrays_while_tracing():
    table = nova.jit(lambda x: nova.square(x))
    f = nova.jit(lambda x: x + table(V))
    np.testing.assert_array_equal(f(V), V + V * V)


def test_grad_of_jit():
    @nova.jit
    def loss(w, x):
        return nova.square(x @ w).sum()

    w = np.array([0.5, -1, 2], "f4")
    dw = nova.grad(loss)
    expected = 2 * A.T @ (A @ w)
    for _ in range(2):
        np.testing.assert_allclose(dw(w, A), expected, rtol=1e-5)
    assert dw.cache_info()[:3] == (1, 1, 1)
    value, (gx, gw) = nova.value_and_grad(loss, argnums=(1, 0))(w, A)
    np.testing.assert_allclose(value, ((A @ w) ** 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(gw, expected, rtol=1e-5)
    np.testing.assert_allclose(gx, 2 * np.outer(A @ w, w), rtol=1e-5)
    value, g = nova.value_and_grad(loss, argnums=-1)(w, A)
    assert g.shape == A.shape
    np.testing.assert_allclose(nova.jit(nova.grad(loss, 0))(w, A), expected, rtol=1e-5)


def test_grad_of_grad():
    x = np.array(0.7, "f8")
    f = nova.jit(lambda x: nova.sin(x) * x)
    expected = [
        np.sin(x) * x,
        np.cos(x) * x + np.sin(x),
        2 * np.cos(x) - x * np.sin(x),
        -3 * np.sin(x) - x * np.cos(x),
    ]
    for value in expected:
        np.testing.assert_allclose(f(x), value, rtol=1e-12)
        f = nova.grad(f)
    plain = nova.grad(nova.grad(lambda x: nova.sin(x) * x))
    np.testing.assert_allclose(plain(x).numpy(), expected[2], rtol=1e-12)


def test_bad_transforms():
    with pytest.raises(ArgumentCountError, match="argnums 2 with 1") as caught:
        nova.grad(lambda x: x, argnums=2)(V)
    assert __file__ in caught.value.where
    with pytest.raises(GradientError, match="one tensor, not tuple"):
        nova.grad(lambda x: (x, x))(V)
    with pytest.raises(GradientError, match="one number"):
        nova.grad(nova.jit(lambda x: x))(V)


# --- what a trace must not do ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * float(x.sum()),
        lambda x: x * int(x.sum()),
        lambda x: [x for _ in range(x.argmax())],
        lambda x: x * x.numpy(),
        lambda x: x * np.asarray(x + 1),
        lambda x: x * x.sum().item(),
        lambda x: list(x.sum()),
    ],
)
def test_values_are_not_known_while_tracing(ask):
    f = nova.jit(ask)
    with pytest.raises(ConcreteValueError) as caught:
        f(V)
    line = ask.__code__.co_firstlineno
    assert caught.value.where == f"{__file__}:{line}"
    assert f.cache_info().size == 0


def test_a_leaked_tensor_belongs_to_another_program():
    leaked = []
    nova.jit(lambda x: leaked.append(x * 2) or x)(V)
    f = nova.jit(lambda x: x + leaked[0])
    with pytest.raises(GraphError, match="belongs to another program") as caught:
        f(V)
    assert __file__ in caught.value.where and f.cache_info().size == 0
    with pytest.raises(ConcreteValueError):
        leaked[0].numpy()


def test_results_that_are_no_tensors():
    f = nova.jit(lambda x: (x, "text"))
    with pytest.raises(GraphError, match="result 1 of the function is a str") as caught:
        f(V)
    assert __file__ in caught.value.where


def test_an_error_in_the_function_comes_out():
    class Mine(Exception):
        pass

    @nova.jit
    def f(x):
        raise Mine

    for _ in range(2):
        with pytest.raises(Mine):
            f(V)
    assert f.cache_info().size == 0


# --- methods and depth ----------------------------------------------------------------------------


def test_sizes_as_arguments_of_methods():
    x = nova.tensor(np.zeros((2, 3, 4), "f4"))
    assert x.reshape(6, 4).shape == x.reshape((6, 4)).shape == x.reshape([6, -1]).shape == (6, 4)
    assert x.reshape(-1).shape == (24,) and x.reshape(shape=(4, 6)).shape == (4, 6)
    assert x.permute(2, 0, 1).shape == x.permute((2, 0, 1)).shape == (4, 2, 3)
    assert nova.tensor(V).expand(2, 3).shape == nova.tensor(V).expand((2, 3)).shape == (2, 3)
    np.testing.assert_array_equal(nova.tensor(A).flip(0, 1).numpy(), A[::-1, ::-1])


def test_deep_graphs():
    """5,000 ops and their gradients: nothing on the way recurses once a node."""
    x = nova.tensor(np.full(4, 0.5, "f4"), requires_grad=True, name="x")
    y = x
    for i in range(1000):
        y = y * 0.999 + 0.001
        y = nova.maximum(y, -1.0)
        y = y - y.sum() * 0.25 if i % 5 == 4 else y - 0.0005
    loss = y.sum()
    plan = build_plan([loss, *gradients(loss, [x])], [x])
    assert len(plan.steps) > 9000
    assert nova.dump_dot(loss).count("->") > 5000
    assert len(str(plan).splitlines()) > 9000
    assert parse_plan(str(plan)) == plan


def test_deep_programs_compile():
    @nova.jit
    def f(x):
        for _ in range(250):
            for _ in range(10):
                x = x * 0.999 + 0.001
            x = x - x.max()
        return x

    x = np.float32([1, 2, 3, 4])
    expected = x
    for _ in range(250):
        for _ in range(10):
            expected = expected * np.float32(0.999) + np.float32(0.001)
        expected = expected - expected.max()
    assert len(f.lower(x).plan.steps) >= 5000
    np.testing.assert_allclose(f(x), expected, rtol=1e-5, atol=1e-6)
