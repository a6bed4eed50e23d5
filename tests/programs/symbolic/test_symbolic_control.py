"""Loops and branches with symbolic sizes: values, gradients, files and errors.

Results are compared with `jax.lax` and torch at each size, and with the numpy interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from taggers import taggers

import nova
from nova import optim
from nova.errors import (
    ArgumentShapeError,
    BranchError,
    CarryError,
    ControlFlowError,
    GradientError,
    WorkspaceError,
)
from nova.graph.interpret import evaluate
from nova.plan import build_plan, parse_plan
from nova.plan.text import print_plan

jax = pytest.importorskip("jax")
lax, jnp = jax.lax, jax.numpy

RNG = np.random.default_rng(11)
SIZES = [(1, 1), (2, 3), (17, 33)]
"""Steps and rows of the calls."""
DYNAMIC = {"xs": {0: "T", 1: "B"}, "h": {0: "B"}}


def rows(f: Any, m: Any, h: Any, xs: Any, w: Any) -> Any:
    """Over a symbolic number of slices, with symbolic carries and results."""

    def body(carry: Any, x: Any) -> Any:
        new = m.tanh(carry @ w + x)
        return new, new * x

    last, ys = f.scan(body, h, xs)
    return (last * last).sum() + (ys * ys * ys).mean()


def backwards(f: Any, m: Any, h: Any, xs: Any, w: Any) -> Any:
    """From the last slice to the first, with a counter and two results."""

    def body(carry: Any, x: Any) -> Any:
        new = m.tanh(carry["h"] * x)
        return {"h": new, "n": carry["n"] + 1}, {"y": new @ w, "z": x.sum(axis=0)}

    last, ys = f.scan(body, {"h": h, "n": 0}, xs, reverse=True)
    return (last["h"] * last["h"]).sum() + (ys["y"].sum(axis=1) * ys["z"]).sum() * 0.1


def branches(f: Any, m: Any, h: Any, xs: Any, w: Any) -> Any:
    """Both branches of a condition, and one of three in each iteration."""

    def body(carry: Any, x: Any) -> Any:
        cases = [lambda v: v, lambda v: m.tanh(v @ w), lambda v: v * x]
        number = (abs(x[0, 0]) * 4).astype("int32")
        return f.switch(number, cases, carry), None

    last, _ = f.scan(body, h, xs)
    return f.cond(last.sum() > 0, lambda v: m.sin(v) + xs[0], lambda v: v * xs[-1], last).sum()


def nested(f: Any, m: Any, h: Any, xs: Any, w: Any) -> Any:
    """A loop over rows, whose number is symbolic, inside of a loop over slices."""

    def outer(carry: Any, x: Any) -> Any:
        def inner(total: Any, row: Any) -> Any:
            return m.tanh(total + row @ w), total * row

        last, products = f.scan(inner, carry.sum(axis=0), x)
        return carry * 0.5 + products + last * 0.1, last

    last, ys = f.scan(outer, h, xs)
    return (last * last).sum() + ys.sum()


def counted(f: Any, m: Any, h: Any, xs: Any, w: Any) -> Any:
    """Symbolic bounds of a loop that reads slices by its number."""
    count = xs.shape[0]
    return f.fori_loop(0, count, lambda i, v: m.tanh(v @ w) + xs.sum() * 0.01 * i, h).sum()


PROGRAMS = [
    rows,
    pytest.param(backwards, marks=pytest.mark.slow),
    branches,
    nested,
    pytest.param(counted, marks=pytest.mark.slow),
]


def arrays_of(steps: int, batch: int) -> list[np.ndarray]:
    shapes = ((batch, 8), (steps, batch, 8), (8, 8))
    return [RNG.normal(size=shape).astype("f4") / 2 for shape in shapes]


@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_equal_those_of_jax(program: Callable[..., Any]) -> None:
    def function(h: Any, xs: Any, w: Any) -> Any:
        return program(nova, nova, h, xs, w)

    both = nova.value_and_grad(function, argnums=(0, 1, 2))
    compiled = nova.jit(both, dynamic=DYNAMIC)
    for sizes in SIZES:
        arrays = arrays_of(*sizes)
        value, grads = jax.value_and_grad(
            lambda *args: program(lax, jnp, *args), argnums=(0, 1, 2)
        )(*arrays)
        found, found_grads = compiled(*arrays)
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5, err_msg=str(sizes))
        for mine, theirs in zip(found_grads, grads, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-5, err_msg=str(sizes))
    assert compiled.cache_info().misses == compiled.cache_info().symbolic == 1


def test_the_interpreter_and_the_text_of_a_plan() -> None:
    steps, batch = nova.dim("T"), nova.dim("B")
    h, xs = nova.input((batch, 8), name="h"), nova.input((steps, batch, 8), name="xs")
    w = nova.input((8, 8), name="w")
    result = nested(nova, nova, h, xs, w) + branches(nova, nova, h, xs, w)
    plan = build_plan([result], [h, xs, w])
    text = print_plan(plan)
    assert text.count("dim T=") == text.count("dim B=") == 1
    assert "length=<T>" in text and "length=<B>" in text
    assert print_plan(parse_plan(text)) == text
    program = nova.compile(result, inputs=[h, xs, w])
    for sizes in SIZES:
        arrays = arrays_of(*sizes)
        [expected] = evaluate([result], dict(zip((h, xs, w), arrays, strict=True)))
        np.testing.assert_allclose(program(*arrays), expected, rtol=1e-4, atol=1e-5)


def test_a_loop_of_no_iterations_returns_its_carries() -> None:
    steps = nova.dim("T", min=0)
    xs, h = nova.input((steps, 4), name="xs"), nova.input((4,), name="h")
    last, ys = nova.scan(lambda c, x: (c + x, c * x), h, xs)
    program = nova.compile([last, ys, ys.sum()], inputs=[xs, h])
    h_value = np.arange(4, dtype="f4")
    for count in (0, 1, 3, 0):
        rows = RNG.normal(size=(count, 4)).astype("f4")
        carried, stacked, total = program(rows, h_value)
        np.testing.assert_allclose(carried, h_value + rows.sum(axis=0), rtol=1e-5)
        assert stacked.shape == (count, 4)
        np.testing.assert_allclose(total, stacked.sum(), rtol=1e-5, atol=1e-6)


def test_while_loops_carry_symbolic_sizes() -> None:
    @nova.jit(dynamic={"x": {0: "N"}})
    def halve(x: Any) -> Any:
        """Until the number of rows is reached."""
        state = nova.while_loop(
            lambda s: s[0] < s[1].shape[0], lambda s: (s[0] + 1, s[1] * 0.5 + s[0]), (0, x)
        )
        return state

    for size in (1, 2, 5, 40):
        x = RNG.normal(size=size).astype("f4")
        count, values = halve(x)
        expected = x
        for i in range(size):
            expected = expected * np.float32(0.5) + i
        assert count == size
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_workspace_of_a_call_has_that_of_its_loops() -> None:
    """As many bytes as the static program of the same sizes."""

    def build(steps: Any, batch: Any, **options: Any) -> Any:
        xs, h = nova.input((steps, batch, 64), name="xs"), nova.input((batch, 64), name="h")
        w = nova.input((64, 64), name="w")
        result = nova.scan(lambda c, x: (nova.tanh(c @ w + x), None), h * 2, xs)[0]
        return nova.compile(result, inputs=[xs, h, w], **options)

    program = build(nova.dim("T"), nova.dim("B"))
    for steps, batch in ((5, 300), (2, 7)):
        static = build(steps, batch).workspace_size
        assert 0 < program.workspace_for(T=steps, B=batch) <= static * 1.1 + 4096
    small = build(nova.dim("T"), nova.dim("B"), max_workspace=100_000)
    arrays = [np.zeros(s, "f4") for s in ((5, 8, 64), (8, 64), (64, 64))]
    assert small(*arrays).shape == (8, 64)
    arrays[:2] = [np.zeros(s, "f4") for s in ((5, 900, 64), (900, 64))]
    with pytest.raises(WorkspaceError, match="B=900"):
        small(*arrays)


def test_large_regions_run_as_tasks() -> None:
    """Bodies that are not inline: products in every iteration, several threads."""

    @nova.jit(dynamic={"x": {0: "N"}})
    def power(x: Any, w: Any) -> Any:
        return nova.fori_loop(0, 3, lambda i, v: nova.tanh(v @ w), x)

    w = (RNG.normal(size=(192, 192)) / 14).astype("f4")
    for size in (1, 63, 257):
        x = RNG.normal(size=(size, 192)).astype("f4")
        expected = x
        for _ in range(3):
            expected = np.tanh(expected @ w)
        np.testing.assert_allclose(power(x, w), expected, rtol=1e-3, atol=1e-4)


# --- recurrent networks ---------------------------------------------------------------------------


def test_an_lstm_trains_on_ragged_batches_and_lengths() -> None:
    mine, theirs = taggers()
    step = nova.train_step(
        mine,
        lambda model, x, y: nova.cross_entropy(model(x).reshape(-1, 3), y.reshape(-1)),
        optim.SGD(mine.parameters(), lr=0.2),
        dynamic={"x": {0: "B", 1: "T"}, "y": {0: "B", 1: "T"}},
    )
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.2)
    for batch, length in [(4, 5), (4, 7), (3, 7), (1, 1), (9, 12)]:
        x = RNG.normal(size=(batch, length, 6)).astype("f4")
        y = RNG.integers(0, 3, (batch, length))
        loss = step(x, y)
        optimizer.zero_grad()
        logits = theirs(torch.from_numpy(x)).reshape(-1, 3)
        expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).reshape(-1))
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-5)
    for name, param in theirs.state_dict().items():
        mine_array = np.asarray(mine.state_dict()[name])
        np.testing.assert_allclose(mine_array, param.numpy(), rtol=1e-4, atol=1e-5)


def test_a_saved_lstm_takes_any_batch_and_length(tmp_path: Path) -> None:
    mine, theirs = taggers()
    x = nova.input((nova.dim("B"), nova.dim("T"), 6), name="x")
    program = nova.compile(mine(x), inputs=[x], params=list(mine.parameters()))
    program.save(tmp_path / "lstm.nova", weights="embed")
    loaded = nova.load(tmp_path / "lstm.nova")
    for batch, length in SIZES:
        array = RNG.normal(size=(batch, length, 6)).astype("f4")
        expected = theirs(torch.from_numpy(array)).detach().numpy()
        np.testing.assert_allclose(loaded.forward(array), expected, rtol=1e-4, atol=1e-5)
    assert loaded.cache_info().entries == len(SIZES)


# --- errors ---------------------------------------------------------------------------------------


def test_sizes_that_disagree_name_both_axes_through_a_loop() -> None:
    @nova.jit(dynamic=DYNAMIC)
    def run(h: Any, xs: Any) -> Any:
        return nova.scan(lambda c, x: (c + x, None), h, xs)[0]

    run(np.zeros((3, 8), "f4"), np.zeros((2, 3, 8), "f4"))
    steps, batch = nova.dim("T"), nova.dim("B", max=9)
    h, xs = nova.input((batch, 8), name="h"), nova.input((steps, batch, 8), name="xs")
    program = nova.compile(nova.scan(lambda c, x: (c + x, None), h, xs)[0], inputs=[h, xs])
    with pytest.raises(ArgumentShapeError) as caught:
        program(np.zeros((3, 8), "f4"), np.zeros((2, 4, 8), "f4"))
    assert "axis 1 of 'xs' is 4, and B is 3: B is 3, from axis 0 of 'h'" in str(caught.value)
    with pytest.raises(ArgumentShapeError, match="B is 10: it must be in"):
        program(np.zeros((10, 8), "f4"), np.zeros((2, 10, 8), "f4"))


@pytest.mark.parametrize(
    "build,error,text",
    [
        (
            lambda x, y: nova.scan(lambda c, r: (c, r), 0.0, (x, y)),
            ControlFlowError,
            "xs.0 has B slices, and xs.1 has T",
        ),
        (
            lambda x, y: nova.scan(lambda c, r: (nova.concat([c, c]), None), x, length=3),
            CarryError,
            "takes carry as f32[B] and returns f32[B*2]",
        ),
        (
            lambda x, y: nova.while_loop(lambda c: c.sum() > 0, lambda c: c[::2], x),
            CarryError,
            "takes carry as f32[B] and returns f32[(B + 1) // 2]",
        ),
        (
            lambda x, y: nova.cond(x.sum() > 0, lambda: x, lambda: y),
            BranchError,
            "false_fun returns f32[T] where true_fun returns f32[B]",
        ),
        (
            lambda x, y: nova.scan(lambda c, r: (c + r, None), 0.0, x, unroll=True),
            ControlFlowError,
            "unroll=True and B iterations",
        ),
    ],
)
def test_errors_name_the_sizes(build: Any, error: Any, text: str) -> None:
    x, y = nova.input((nova.dim("B"),), name="x"), nova.input((nova.dim("T"),), name="y")
    with pytest.raises(error) as caught:
        build(x, y)
    assert text in str(caught.value)


# --- random programs ------------------------------------------------------------------------------


def random_program(seed: int, x: Any, w: Any) -> Any:
    """Nested loops and branches over (N, 4), in which N is a length, a carry and a number."""
    rng = np.random.default_rng(seed)

    def simple(v: Any) -> Any:
        a = float(rng.normal())
        return [
            lambda: nova.tanh(v * a),
            lambda: nova.tanh(v @ w) + a,
            lambda: nova.softmax(v, axis=0) * v.shape[0],
            lambda: v - v.mean(axis=0),
            lambda: nova.flip(v, 0) * a,
            lambda: nova.concat([v[1:], v[:1]]) + v.sum() * 0.01,
            lambda: nova.tanh(v @ v.transpose((1, 0)) @ v),
        ][int(rng.integers(7))]()

    def expression(depth: int, v: Any) -> Any:
        choice = int(rng.integers(9 if depth else 3))
        if choice < 3:
            return simple(v)
        a, b = float(rng.normal()), int(rng.integers(1, 4))

        def deeper(u: Any) -> Any:
            return nova.tanh(expression(depth - 1, u))

        if choice < 5:
            return nova.cond(v.sum() > a, deeper, lambda u: deeper(u * a), v)
        if choice == 5:
            number = nova.cast(abs(v[0, 0]) * 3, "i64")
            return nova.switch(number, [deeper, simple, lambda u: u * a], v)
        if choice == 6:
            count = v.shape[0] if b > 2 else b
            return nova.fori_loop(0, count, lambda i, u: deeper(u + i * 0.1), v)
        if choice == 7:
            scan = nova.scan(
                lambda c, row: (nova.tanh(c + row), deeper(v * row) * 0.1), v[0], v, reverse=b > 1
            )
            return v * scan[0] + scan[1].sum(axis=0)

        def advance(state: Any) -> Any:
            return state[0] + 1, deeper(state[1])

        return nova.while_loop(lambda s: s[0] < b, advance, (0, v))[1]

    return expression(3, x)


def check_random_program(seed: int) -> None:
    x, w = nova.input((nova.dim("N"), 4), name="x"), nova.input((4, 4), name="w")
    result = random_program(seed, x, w)
    plan = build_plan([result], [x, w])
    assert print_plan(parse_plan(print_plan(plan))) == print_plan(plan)
    program = nova.compile(result, inputs=[x, w])
    rng = np.random.default_rng(seed)
    for size in (1, 2, 3, 7, 16, 17, 33):
        arrays = [rng.uniform(-1, 1, shape).astype("f4") for shape in ((size, 4), (4, 4))]
        [expected] = evaluate([result], dict(zip((x, w), arrays, strict=True)))
        message = f"seed {seed}, size {size}"
        np.testing.assert_allclose(program(*arrays), expected, 2e-3, 2e-4, err_msg=message)


@pytest.mark.parametrize("seed", range(3))
def test_random_nested_programs(seed: int) -> None:
    check_random_program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 80))
def test_more_random_nested_programs(seed: int) -> None:
    check_random_program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_random_programs_equal_static_ones(seed: int) -> None:
    """Against the static program and, along one direction, against finite differences."""

    def loss(x: Any, w: Any) -> Any:
        return (random_program(seed, x, w) ** 2).sum()

    gradient = nova.value_and_grad(loss, argnums=(0, 1))
    symbolic = nova.jit(gradient, dynamic={"x": {0: "N"}})
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, shape) for shape in ((3, 4), (4, 4))]
    try:
        symbolic(*arrays)
    except GradientError as error:
        assert "while_loop has no gradient" in str(error)
        return
    for size in (3, 1, 8, 19):
        arrays = [rng.uniform(-1, 1, shape) for shape in ((size, 4), (4, 4))]
        value, grads = symbolic(*arrays)
        right, right_grads = nova.jit(gradient)(*arrays)
        np.testing.assert_allclose(value, right, rtol=1e-8, err_msg=str(size))
        for mine, theirs in zip(grads, right_grads, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8, err_msg=str(size))
        direction = [rng.normal(size=a.shape) for a in arrays]
        ends = [
            symbolic(*(a + s * 1e-6 * d for a, d in zip(arrays, direction, strict=True)))[0]
            for s in (1, -1)
        ]
        slope = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
        numeric = float(ends[0] - ends[1]) / 2e-6
        # A step over the edge of a branch has no slope.
        if abs(numeric) < 1e3:
            np.testing.assert_allclose(slope, numeric, rtol=1e-3, atol=1e-5, err_msg=str(size))
