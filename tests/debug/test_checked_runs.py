"""Checked runs of programs that are right, NaN and infinity, and what errors say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.api.compile import clear_memory_cache
from nova.debug import check_plan, minimize
from nova.debug.checked import CheckedProgram
from nova.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    CheckError,
    DonationError,
    IndexRangeError,
    MinimizeError,
    NonFiniteError,
)

X = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")


@pytest.fixture(autouse=True)
def own_programs() -> Iterator[None]:
    clear_memory_cache()
    yield
    clear_memory_cache()


def checked(mode: str = "1"):
    return nova.knobs.override(check=mode)


def test_off_costs_nothing() -> None:
    program = nova.compile(nova.tensor(X) + 1)
    assert not isinstance(program._program, CheckedProgram)
    with checked():
        assert isinstance(nova.compile(nova.tensor(X) + 1)._program, CheckedProgram)


@pytest.mark.parametrize("type_", ["f8", "f4", "f2", "bf16"])
def test_right_program_passes(type_: str) -> None:
    x = X.astype(nova.core.dtypes.dtype("bf16").numpy if type_ == "bf16" else type_)
    w, b = x.T.copy(), x[0, :6].copy()
    ids = np.array([0, 3, -1])
    with checked():
        tensors = [nova.tensor(a, name=n, requires_grad=True) for a, n in ((w, "w"), (b, "b"))]
        arguments = nova.tensor(x, name="x"), nova.tensor(ids, name="ids")
        h = nova.layer_norm(nova.gelu(arguments[0] @ tensors[0] + tensors[1]))
        h = nova.softmax(h) * nova.take(h, arguments[1], axis=0).sum()
        loss = nova.logsumexp(h)
        step = nova.compile(loss, inputs=arguments, params=tensors, include_backward=True)
        assert {d.op for d in step.plan.derivations} >= {"matmul", "add", "softmax", "gelu"}
        results = step.run([x, ids], [w, b])
        again = step.run([x, ids], [w, b])
    plain = nova.compile_plan(step.plan).run([x, ids], [w, b])
    for actual, identical, want in zip(results, again, plain, strict=True):
        assert actual.tobytes() == identical.tobytes() == want.tobytes()


def test_updates_happen_once() -> None:
    w = X.copy()
    with checked():
        W = nova.tensor(w, name="w")
        program = nova.compile(nova.sum(W), params=[W], updates={W: W * 2})
        assert program.run([], [w]) == pytest.approx(X.sum(), rel=1e-5)
    np.testing.assert_array_equal(w, X * 2)


def test_jit_out_and_other_libraries() -> None:
    torch = pytest.importorskip("torch")
    with checked():
        f = nova.jit(lambda x: nova.exp(x) * 2)
        np.testing.assert_allclose(f(X), np.exp(X) * 2, rtol=1e-6)
        np.testing.assert_allclose(f(torch.tensor(X)), np.exp(X) * 2, rtol=1e-6)
        np.testing.assert_allclose(f(X[:2]), np.exp(X[:2]) * 2, rtol=1e-6)
        program = f.lower(X)
        out = np.empty_like(X)
        assert program(X, out=out) is out
        strided = np.asfortranarray(X)
        np.testing.assert_allclose(program(strided), np.exp(X) * 2, rtol=1e-6)


def test_bad_arguments_get_the_errors_of_any_run() -> None:
    with checked():
        W = nova.tensor(X, name="w")
        program = nova.compile([], params=[W], updates={W: W + 1})
        with pytest.raises(ArgumentShapeError):
            program(X[:2])
        with pytest.raises(ArgumentTypeError):
            program("text")
        with pytest.raises(ArgumentTypeError):
            program.run(X)
        read_only = X.copy()
        read_only.flags.writeable = False
        with pytest.raises(DonationError):
            program(read_only)


def test_checkpoints_and_second_derivatives_pass() -> None:
    with checked():
        w = nova.tensor(X, requires_grad=True)
        inner = nova.checkpoint(lambda x: nova.tanh(nova.sin(x) * x))
        loss = nova.sum(inner(w))
        (first,) = nova.graph.gradients(loss, [w])
        (second,) = nova.graph.gradients(nova.sum(first * first), [w])
        assert np.isfinite(nova.compile(second, params=[w])(X)).all()


# --- NaN and infinity -----------------------------------------------------------------------------


def test_first_nan_is_named() -> None:
    with checked("nan"):
        f = nova.jit(lambda x: nova.sum(nova.sqrt(nova.log(x) + 1) * 2))
        assert f(np.full(4, 2.0)) > 0
        with pytest.raises(NonFiniteError, match=r"1 of 4 elements are NaN.*at \[2\]") as caught:
            f(np.array([1.0, 2.0, -3.0, 4.0]))
        finding = caught.value.finding
        assert (finding.op, finding.step, finding.kind) == ("log", 0, "nonfinite")
        assert caught.value.where.startswith(__file__)
        with pytest.raises(NonFiniteError, match="argument 'x0'"):
            f(np.array([1.0, 2.0, np.nan, 4.0]))


def test_infinities_that_are_meant_are_let_through() -> None:
    with checked("nan"):
        f = nova.jit(lambda x, mask: nova.softmax(nova.where(x > 0, x, -np.inf) + mask))
        x = np.abs(X)
        x[0, 0] = -1
        mask = np.where(np.arange(8) == 7, -np.inf, 0).astype("f4")
        assert np.isfinite(f(x, mask)).all()
        g = nova.jit(lambda x: nova.exp(x * 100))
        with pytest.raises(NonFiniteError, match=r"infinite.*from finite operands") as caught:
            g(np.array([1.0, 2.0], "f4"))
        assert caught.value.finding.op == "exp"


def test_minimize_of_a_nan(tmp_path: Path) -> None:
    with checked("nan"):
        f = nova.jit(lambda x: nova.sum(nova.sqrt(nova.sin(x) * 3) + nova.cos(x)))
        with pytest.raises(NonFiniteError) as caught:
            f(np.array([1.0, 4.0]))
        reduction = minimize(caught.value, path=tmp_path / "nan.py")
    assert [s.op for s in reduction.plan.steps] == ["sqrt"]
    assert "check='nan'" in reduction.script.read_text()


# --- minimize by other means ----------------------------------------------------------------------


def test_minimize_with_a_check_of_its_own(tmp_path: Path) -> None:
    x = nova.tensor(X, name="x")
    y = nova.exp(nova.sin(x) * nova.tanh(x) + nova.cos(x))
    program = nova.compile([y, y * 2, nova.sum(y)], inputs=[x])

    def has_tanh(plan, arrays) -> bool:
        return any(s.op == "tanh" for s in plan.steps)

    path = tmp_path / "own.py"
    reduction = minimize(program, [X], check=has_tanh, path=path)
    assert [s.op for s in reduction.plan.steps] == ["tanh"] and path.exists()


def test_minimize_refuses_a_program_that_is_right(tmp_path: Path) -> None:
    x = nova.tensor(X, name="x")
    program = nova.compile(nova.exp(x), inputs=[x])
    with pytest.raises(MinimizeError, match="does not fail"):
        minimize(program, [X], path=tmp_path / "none.py")
    with pytest.raises(MinimizeError, match="str is not a program"):
        minimize("program", path=tmp_path / "none.py")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_minimize_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends for every program with a tanh in it; the candidates' processes do."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if sys.argv and 'tanh(' in open(sys.orig_argv[-1]).read():\n"
        "    os.kill(os.getpid(), 11)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    x = nova.tensor(X, name="x")
    plan = nova.compile(nova.cos(nova.tanh(x)), inputs=[x]).plan
    reduction = minimize(plan, path=tmp_path / "crash.py", isolate=True)
    assert "signal 11" in str(reduction.error)
    assert [s.op for s in reduction.plan.steps] == ["tanh"]


def test_check_plan() -> None:
    plan = "plan {\n input x: f32[2]\n slot[0] = exp(input[0]) : f32[2]\n return slot[0]\n}"
    check_plan(plan, [np.ones(2, "f4")], gradients=True)
    with pytest.raises(ArgumentShapeError):
        check_plan(plan, [np.ones(3, "f4")])
    assert issubclass(CheckError, ArithmeticError)


def looped(x):
    """A loop, a branch and a scan, nested, and ops around them."""
    rows = nova.scan(lambda c, row: (nova.tanh(c + row), c * 2), x[0], x)[1]
    total = nova.while_loop(lambda s: s.sum() < 40, lambda s: s * 1.5 + 1, nova.exp(x[0]))
    chosen = nova.cond(total.sum() > 0, lambda: rows + total, lambda: rows)
    return chosen.sum(axis=0) * 2


@pytest.mark.parametrize("check", ["1", "nan"])
def test_loops_and_branches(check):
    x = np.random.default_rng(3).normal(size=(5, 4)).astype("f4")
    expected = nova.jit(looped)(x)
    with checked(check):
        np.testing.assert_array_equal(nova.jit(looped)(x), expected)
        nova.jit(nova.grad(lambda x: nova.scan(lambda c, r: (c * r, c), x[0], x)[0].sum()))(x)


def test_a_nan_of_a_loop_names_its_line():
    def run(x):
        return nova.fori_loop(0, 3, lambda i, c: nova.log(c - 1), x) + 1

    with checked("nan"), pytest.raises(nova.errors.NonFiniteError) as raised:
        nova.jit(run)(np.ones(4, "f4"))
    assert "test_checked_runs.py" in str(raised.value)


INDEXED = {
    "x[i]": lambda x, i: x[i],
    "x[i, j]": lambda x, i: x[i, [0, 1, 2, 3]],
    "x[j, :, i]": lambda x, i: x.T.reshape(2, 4, 6)[[0, 1, 1, 0], :, i],
    "index_put of two": lambda x, i: nova.index_put(x, (i, np.arange(4)), np.zeros(4, "f4")),
    "take": lambda x, i: nova.take(x, i.astype("i32"), axis=0),
    "embedding": lambda x, i: nova.embedding(x, i),
    "gather": lambda x, i: nova.gather(x, i.reshape(4, 1).expand((4, 8)), axis=0),
    "scatter": lambda x, i: nova.scatter(x, i.reshape(4, 1).expand((4, 8)), x[:4], axis=0),
    "index_put": lambda x, i: nova.index_put(x, (i,), x[:4]),
    "index_add": lambda x, i: nova.index_add(x, i, x[:4], axis=0),
    "index_copy": lambda x, i: nova.index_copy(x, 0, i, x[:4]),
    "one_hot": lambda x, i: nova.one_hot(i, 6),
    "cross_entropy": lambda x, i: nova.cross_entropy(x[:4, :6], i),
    "nll_loss": lambda x, i: nova.nll_loss(x[:4, :6], i),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range_are_found(name: str) -> None:
    x, i = nova.input(X.shape, name="x"), nova.input((4,), "i64", name="i")
    with checked():
        program = nova.compile(INDEXED[name](x, i), inputs=[x, i])
    program.run([X, np.array([0, 5, 1, 2])])
    if name in ("cross_entropy", "nll_loss"):
        program.run([X, np.array([0, 5, -100, 2])])  # ignore_index
    else:
        program.run([X, np.array([0, 5, -6, 2])])
    for wrong in (6, -7, 1 << 40):
        with pytest.raises(IndexRangeError, match=rf"'i' is {wrong} at \[2\]") as caught:
            program.run([X, np.array([0, 5, wrong, 2])])
        assert __file__ in str(caught.value.where) and "clamped" in str(caught.value.hint)
        assert caught.value.finding.kind == "index"


SLICED = {
    "dynamic_slice": lambda x, i, j: nova.dynamic_slice(x, (i, j), (2, 3)),
    "dynamic_update_slice": lambda x, i, j: nova.dynamic_update_slice(
        x, np.zeros((2, 3), "f4"), (i, j)
    ),
    "one tensor": lambda x, i, j: nova.dynamic_slice(x, nova.stack([i, j]), (2, 3)),
}


@pytest.mark.parametrize("name", SLICED)
def test_slices_that_do_not_fit_are_found(name: str) -> None:
    x = nova.input(X.shape, name="x")
    i, j = nova.input((), "i64", name="i"), nova.input((), "i32", name="j")
    with checked():
        program = nova.compile(SLICED[name](x, i, j), inputs=[x, i, j])
    for start in ((0, 5), (4, -8), (-6, 0)):
        program.run([X, np.array(start[0]), np.array(start[1], "i4")])
    for start, message in (
        ((5, 0), "'i' is 5, and a slice starts at 4"),
        ((0, 6), "'j' is 6, and"),
    ):
        with pytest.raises(IndexRangeError, match=message):
            program.run([X, np.array(start[0]), np.array(start[1], "i4")])


def test_a_tensor_of_starts_is_checked() -> None:
    x, starts = nova.input(X.shape, name="x"), nova.input((2,), "i64", name="starts")
    with checked():
        program = nova.compile(nova.dynamic_slice(x, starts, (2, 3)), inputs=[x, starts])
    program.run([X, np.array([4, 5])])
    with pytest.raises(IndexRangeError, match=r"'starts' is 6 at \[1\], and a slice starts at 5"):
        program.run([X, np.array([4, 6])])


def test_every_index_of_several_is_clamped_to_its_axis() -> None:
    i, j = np.array([0, 9, -9, 2]), np.array([7, -20, 8, 30])
    expected = X[np.clip(np.where(i < 0, i + 6, i), 0, 5), np.clip(np.where(j < 0, j + 8, j), 0, 7)]
    np.testing.assert_array_equal(nova.tensor(X)[i, j].numpy(), expected)


def test_computed_indices_may_rely_on_the_clamp() -> None:
    x, i = nova.input(X.shape, name="x"), nova.input((4,), "i64", name="i")
    with checked():
        program = nova.compile(x[i + 1], inputs=[x, i])
    np.testing.assert_array_equal(program.run([X, np.arange(2, 6)]), X[[3, 4, 5, 5]])
