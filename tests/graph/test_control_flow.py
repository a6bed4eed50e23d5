"""`cond`, `switch`, `while_loop`, `fori_loop`, `scan`: results, gradients and errors.

Results are compared with the numpy interpreter, and with `jax.lax`, whose signatures they have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from control_programs import (
    PROGRAMS,
    XS,
    Asarray,
    Program,
    W,
    X,
    as_jax,
    as_nova,
    moving_cases,
    nested,
    random_program,
    rows,
)

import nova
from nova.core.pytree import flatten
from nova.errors import (
    BranchError,
    CarryError,
    ConcreteValueError,
    ControlFlowError,
    GradientError,
    RunTimeoutError,
)
from nova.graph.interpret import evaluate
from nova.plan import build_plan
from nova.plan.text import parse_plan, print_plan

jax = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_equal_those_of_jax(program: Program) -> None:
    value, grads = jax.value_and_grad(as_jax(program), argnums=(0, 1, 2))(X, XS, W)
    both = nova.value_and_grad(as_nova(program), argnums=(0, 1, 2))
    compiled_value, compiled = nova.jit(both)(X, XS, W)
    np.testing.assert_allclose(compiled_value, value, rtol=2e-5)
    for mine, theirs in zip(compiled, grads, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)
    graph_value, graph_grads = both(*map(nova.tensor, (X, XS, W)))
    interpreted = evaluate([graph_value, *graph_grads])
    for mine, theirs in zip(interpreted, [value, *grads], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


def test_second_derivatives_equal_those_of_jax() -> None:
    def slope(grad: Any, program: Program) -> Program:
        return lambda x: (grad(program)(x, XS, W) ** 2).sum()

    expected = jax.grad(slope(jax.grad, as_jax(rows)))(X)
    computed = nova.jit(nova.grad(slope(nova.grad, as_nova(rows))))(X)
    np.testing.assert_allclose(computed, expected, rtol=1e-3, atol=1e-4)


def test_a_checkpointed_body_saves_only_carries() -> None:
    def loss(wrap: Any) -> Program:
        def run(x: Any, xs: Any, w: Any) -> Any:
            def body(h: Any, row: Any) -> Any:
                new = nova.tanh(nova.tanh(h @ w + row) @ w)
                return new, None

            return nova.scan(wrap(body), x, xs)[0].sum()

        return nova.value_and_grad(run, argnums=2)

    plain, saving = (
        loss(wrap)(*map(nova.tensor, (X, XS, W))) for wrap in (lambda f: f, nova.checkpoint)
    )
    stacked = []
    for value, grad in (plain, saving):
        plan = build_plan([value, grad])
        forward = next(s for s in plan.steps if s.op == "scan")
        stacked.append(len(forward.results) - forward.attrs["carries"])
    assert stacked[1] == 1 < stacked[0]
    for a, b in zip(evaluate(list(plain)), evaluate(list(saving)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_while_loop_carries_pytrees() -> None:
    def run(f: Any, n: Any, x: Any) -> Any:
        def body(c: Any) -> Any:
            return {"i": c["i"] + 1, "v": (c["v"][0] * 2, c["v"][0] + c["v"][1])}

        last = f.while_loop(lambda c: c["i"] < n, body, {"i": 0, "v": (x, x)})
        return last["i"], last["v"]

    for n in (0, 1, 6, 7):
        expected = jax.tree_util.tree_leaves(run(lax, n, X))
        computed = flatten(nova.jit(lambda n, x: run(nova, n, x))(n, X))[0]
        for a, b in zip(computed, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_loop_over_a_dynamic_bound_and_a_switch_out_of_range() -> None:
    total = nova.jit(lambda n: nova.fori_loop(0, n, lambda i, v: v + i, 0))
    assert [int(total(n)) for n in (0, 1, 10)] == [0, 0, 45]
    chosen = nova.jit(lambda i: nova.switch(i, [lambda: 10, lambda: 20, lambda: 30]))
    assert [int(chosen(i)) for i in (-5, 0, 1, 2, 9)] == [10, 10, 20, 30, 30]


def test_scans_without_iterations_and_unrolled() -> None:
    def body(c: Any, x: Any) -> Any:
        return c + x, c * 2

    last, ys = nova.jit(lambda x, xs: nova.scan(body, x, xs))(X, XS[:0])
    np.testing.assert_array_equal(last, X)
    assert ys.shape == (0, 4)
    looped, unrolled = (
        nova.jit(lambda x, xs, u=u: nova.scan(body, x, xs, reverse=True, unroll=u))(X, XS)
        for u in (1, True)
    )
    for a, b in zip(looped, unrolled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_plan_prints_and_parses_back() -> None:
    x, xs, w = map(nova.tensor, (X, XS, W))
    both = nova.value_and_grad(as_nova(nested), argnums=2)
    plan = build_plan(list(both(x, xs, w)), [x, xs], [w])
    text = print_plan(plan)
    assert "= scan(" in text and "= cond(" in text
    assert parse_plan(text) == plan


def test_a_saved_program_runs_its_loops(tmp_path: Any) -> None:
    inputs = [nova.tensor(a) for a in (X, XS, W)]
    path = tmp_path / "loops.nova"
    nova.compile(as_nova(nested)(*inputs), inputs=inputs).save(path)
    np.testing.assert_allclose(nova.load(path)(X, XS, W), as_jax(nested)(X, XS, W), rtol=1e-5)


def test_constant_conditions_and_invariant_work_leave_the_loop() -> None:
    x, w = nova.tensor(X), nova.tensor(W)
    chosen = nova.cond(True, lambda: x * 2, lambda: x)
    assert [s.op for s in build_plan([chosen], [x]).steps] == ["mul"]
    looped = nova.fori_loop(0, 9, lambda i, v: v @ nova.tanh(w @ w), x)
    plan = build_plan([looped], [x], [w])
    assert [s.op for s in plan.steps] == ["matmul", "tanh", "scan", "result"]
    assert [s.op for s in plan.steps[2].regions[0].steps] == ["matmul"]
    once = nova.fori_loop(3, 4, lambda i, v: v + i, x)
    assert "scan" not in [s.op for s in build_plan([once], [x]).steps]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_nested_programs_equal_the_interpreter(seed: int) -> None:
    x, w = nova.tensor(X), nova.tensor(W)
    result = random_program(seed)(x, w)
    [expected] = evaluate([result])
    computed = nova.compile(result, inputs=[x, w])(X, W)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


# --- errors ---------------------------------------------------------------------------------------


def test_a_branch_on_a_traced_value_shows_the_cond_to_write() -> None:
    def run(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(ConcreteValueError, match=r"nova\.cond\("):
        nova.jit(run)(X)


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda x: nova.scan(lambda c, _: (c.sum(), None), x, length=2), CarryError, "returns f32"),
        (lambda x: nova.scan(lambda c, _: ((c, c), None), x, length=2), CarryError, "structure"),
        (lambda x: nova.while_loop(lambda c: c.sum() < 1, lambda c: c > 0, x), CarryError, "bool"),
        (lambda x: nova.cond(x[0] > 0, lambda: x, lambda: x[:2]), BranchError, "true_fun"),
        (lambda x: nova.switch(0, [lambda: x, lambda: (x, x)]), BranchError, "branch 1"),
        (lambda x: nova.cond(x > 0, lambda: x, lambda: x), ControlFlowError, "scalar"),
        (lambda x: nova.while_loop(lambda c: c, lambda c: c, x), ControlFlowError, "bool"),
        (lambda x: nova.scan(lambda c, _: (c, None), x), ControlFlowError, "length"),
        (lambda x: nova.scan(lambda c, _: c, x, length=2), ControlFlowError, "carry, y"),
        (
            lambda x: nova.scan(lambda c, _: (c, None), x, (np.ones(5), np.ones(4))),
            ControlFlowError,
            r"scan: xs\.0 has 5 slices, and xs\.1 has 4\n",
        ),
        (
            lambda x: nova.scan(lambda c, _: (c, None), x, {"a": np.ones(5), "b": np.ones(())}),
            ControlFlowError,
            r"scan: xs\.b is a 0-d tensor",
        ),
        (
            lambda x: nova.scan(lambda c, _: (c, None), x, np.ones(5), length=4),
            ControlFlowError,
            "scan: xs has 5 slices, and length is 4",
        ),
        (lambda x: nova.switch(x[0], [lambda: x]), ControlFlowError, "index"),
        (lambda x: nova.fori_loop(0, 3, 5, x), ControlFlowError, "not a function"),
    ],
)
def test_errors_name_the_mistake_and_the_line(run: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        run(nova.tensor(X))
    assert "test_control_flow.py" in str(raised.value)


def test_while_loop_has_no_gradient_and_says_so() -> None:
    def run(x: Any) -> Any:
        return nova.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x).sum()

    with pytest.raises(GradientError, match="while_loop has no gradient"):
        nova.grad(run)(nova.tensor(np.abs(X)))


def test_an_infinite_loop_stops_by_a_timeout() -> None:
    zeros, x = np.zeros(4, np.float32), nova.tensor(X)
    for body in (lambda c: c * 1, lambda c: nova.fori_loop(0, 9, lambda i, v: (v @ W) * 0, c)):
        program = nova.compile(nova.while_loop(lambda c: c[0] < 9e9, body, x), inputs=[x])
        with pytest.raises(RunTimeoutError):
            program.run([zeros], timeout=0.05)


@pytest.mark.parametrize("name", moving_cases(nova, Asarray))
def test_regions_that_only_move_values(name: str) -> None:
    stack = np.arange(12, dtype="f4").reshape(4, 3)
    arguments = (stack, stack[0] + 1)
    actual = flatten(nova.jit(moving_cases(nova, Asarray)[name])(*arguments))[0]
    expected = flatten(jax.jit(moving_cases(jax.lax, jnp)[name])(*arguments))[0]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("index", [0, 1, 2, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("traced", [True, False])
def test_unsigned_indices_select_the_last_branch(index: int, traced: bool) -> None:
    """As i64, an index of 2**63 or more would be negative, and select the first."""
    branches = [lambda scale=scale: X * scale for scale in (1, 2, 3)]
    number = np.uint64(index)
    if traced:
        result = nova.jit(lambda i: nova.switch(i, branches))(number)
    else:
        result = nova.switch(nova.tensor(number), branches).numpy()
    np.testing.assert_array_equal(result, X * (min(index, 2) + 1))


EMPTY_SCANS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), (0, 3)),  # carry, xs
    ((), (4, 0)),
    ((2,), (4, 0, 3)),
    ((0, 2), (3, 0)),
    ((0,), (0, 0)),
    ((3,), (4, 3)),
]


@pytest.mark.parametrize(("carry", "xs"), EMPTY_SCANS)
def test_scans_of_empty_slices(carry: tuple[int, ...], xs: tuple[int, ...]) -> None:
    def run(lib: Any) -> Program:
        def body(c: Any, x: Any) -> Any:
            return c * 2 + x.sum(), (x * 2, c)

        return lambda c, xs: lib.scan(body, c, xs)

    args = np.ones(carry, np.float32), np.ones(xs, np.float32)
    expected = flatten(run(lax)(*args))[0]
    for actual, right in zip(flatten(nova.jit(run(nova))(*args))[0], expected, strict=True):
        assert actual.shape == right.shape
        np.testing.assert_allclose(actual, right, rtol=1e-6)

    def loss(lib: Any) -> Program:
        return lambda c, xs: run(lib)(c, xs)[0].sum()

    grads = nova.jit(nova.grad(loss(nova), argnums=(0, 1)))(*args)
    for actual, right in zip(grads, jax.grad(loss(lax), argnums=(0, 1))(*args), strict=True):
        np.testing.assert_allclose(actual, right, rtol=1e-6)
