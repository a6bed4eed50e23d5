"""Random programs with symbolic sizes against static graphs in the interpreter, and gradients.

A program is a list of statements over a few values of shape (n, 8), with loops and branches that
have statements inside. It is built once with a dim for n, and for each size as a static graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nova
from nova.graph import Tensor, gradients
from nova.graph.interpret import evaluate

WIDTH = 8
SIZES = (0, 1, 2, 7, 13, 15, 16, 17, 31, 33, 63, 64, 65)
"""Empty, one, odd, prime, and around the borders of vectors and tiles."""

RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((WIDTH, WIDTH)).astype("f4") / 3 for _ in range(3)]

Statement = tuple[Any, ...]
"""An op, the numbers of its operands, and the statements of its regions."""


# --- statements -----------------------------------------------------------------------------------


def _gram(x: Tensor, y: Tensor) -> Tensor:
    """Scores between all rows: a matrix of n x n."""
    return nova.softmax(x @ y.T, axis=-1) @ x


def _joined(x: Tensor, y: Tensor) -> Tensor:
    n = x.shape[0]
    return nova.concat([x, y])[n:] + nova.concat([y, x], axis=1)[:, WIDTH:]


def _reshaped(x: Tensor, y: Tensor) -> Tensor:
    n = x.shape[0]
    flat = (x * 0.5).reshape(n * WIDTH)
    return flat.reshape(n * 2, WIDTH // 2).reshape(n, WIDTH) + y


def _padded(x: Tensor, y: Tensor) -> Tensor:
    return nova.pad(x, ((1, 2), (0, 0)))[1 : x.shape[0] + 1] - y


OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": lambda x, y: nova.tanh(x) + y,
    "gelu": lambda x, y: nova.gelu(x) * 0.5 - y,
    "product": lambda x, y: nova.sigmoid(x) * y,
    "linear": lambda x, y: x @ nova.tensor(WEIGHTS[0]) + y,
    "hidden": lambda x, y: nova.tanh(x @ nova.tensor(WEIGHTS[1])) @ nova.tensor(WEIGHTS[2]),
    "softmax": lambda x, y: nova.softmax(x, axis=-1) + y,
    "norm": lambda x, y: nova.layer_norm(x) - y,
    "centered": lambda x, y: x - y.mean(axis=-1, keepdims=True),
    "columns": lambda x, y: x + (y * 0.1).sum(axis=0, keepdims=True),
    "total": lambda x, y: x + nova.tanh(y.sum()),
    "scaled": lambda x, y: x / (y.shape[0] + 1) + y,
    "gram": _gram,
    "joined": _joined,
    "reshaped": _reshaped,
    "padded": _padded,
    "cumsum": lambda x, y: nova.tanh(nova.cumsum(x, axis=0)) + y,
    "flip": lambda x, y: nova.flip(x, 0) + y,
    "where": lambda x, y: nova.where(x > 0, x, y),
}
CONTROL = ("cond", "fori", "scan", "while")


def statements(depth: int, control: bool) -> st.SearchStrategy[list[Statement]]:
    """Lists of statements; loops and branches are nested up to `depth`."""
    plain = st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 2), st.integers(0, 2))
    choice: st.SearchStrategy[Statement] = plain
    if control and depth:
        nested = statements(depth - 1, control)
        loops = st.tuples(
            st.sampled_from(CONTROL), st.integers(0, 2), st.integers(0, 2), nested, nested
        )
        choice = st.one_of(plain, loops)
    return st.lists(choice, min_size=1, max_size=3 if control else 5)


def apply(program: Sequence[Statement], values: Sequence[Tensor]) -> list[Tensor]:
    """The values after the statements; each replaces one of them."""
    state = list(values)
    for name, first, second, *regions in program:
        x, y = state[first], state[second]
        if name in OPS:
            state[first] = OPS[name](x, y)
        elif name == "cond":
            then, otherwise = (lambda *v, r=r: apply(r, v)[0] for r in regions)
            state[first] = nova.cond(y.sum() > 0, then, otherwise, x, y, x + y)
        elif name == "fori":

            def body(i: Any, v: Tensor, region: Any = regions[0], y: Tensor = y) -> Tensor:
                return nova.tanh(apply(region, [v, y, v + y])[0])

            state[first] = nova.fori_loop(0, 2, body, x)
        elif name == "while":

            def again(carry: Any) -> Any:
                return carry[0] < 3

            def more(carry: Any, region: Any = regions[0], y: Tensor = y) -> Any:
                count, v = carry
                return count + 1, nova.tanh(apply(region, [v, y, v - y])[0])

            state[first] = nova.while_loop(again, more, (nova.tensor(0), x))[1]
        else:

            def step(h: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
                h = nova.tanh(h * 0.5 + row)
                return h, h * 2

            last, rows = nova.scan(step, nova.tensor(np.zeros(WIDTH, "f4")), x)
            state[first] = apply(regions[0], [rows, y, rows + last])[0]
    return state


# --- checks ---------------------------------------------------------------------------------------


def outputs_of(program: Sequence[Statement], values: Sequence[Tensor], grad: bool) -> list[Tensor]:
    results = apply(program, values)
    if not grad:
        return results
    loss = sum(((r * r).mean() for r in results), start=nova.tensor(0.0))
    return [*results, *gradients(loss, list(values))]


def check(program: Sequence[Statement], sizes: Sequence[int], grad: bool, static: bool) -> None:
    # A mean over no rows is NaN: gradients are taken of one row or more.
    n = nova.dim("n", min=1 if grad else 0, max=4096)
    inputs = [nova.input((n, WIDTH), name=f"x{i}") for i in range(3)]
    compiled = nova.compile(outputs_of(program, inputs, grad), inputs=inputs)
    rng = np.random.default_rng(1)
    for size in sizes:
        if grad and size == 0:
            continue
        arrays = [rng.standard_normal((size, WIDTH)).astype("f4") for _ in range(3)]
        leaves = [nova.tensor(array, name=f"x{i}") for i, array in enumerate(arrays)]
        wanted = outputs_of(program, leaves, grad)
        if static:
            other = nova.compile(wanted, inputs=leaves).run(arrays)
            expected = other if isinstance(other, tuple) else (other,)
        else:
            expected = evaluate(wanted)
        results = compiled(*arrays)
        for actual, right in zip(results, expected, strict=True):
            assert actual.shape == right.shape
            np.testing.assert_allclose(actual, right, rtol=2e-3, atol=2e-4, err_msg=f"n = {size}")


def generated(examples: int, *, control: bool, grad: bool, static: bool) -> Callable[..., None]:
    """A test over that many programs, each at three sizes."""

    @settings(
        max_examples=examples,
        deadline=None,
        print_blob=True,
        derandomize=examples < 10,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        statements(2, control),
        st.lists(st.sampled_from(SIZES), min_size=3, max_size=3, unique=True),
    )
    def test(program: list[Statement], sizes: list[int]) -> None:
        check(program, sizes, grad and not uses_while(program), static)

    return test


def uses_while(program: Sequence[Statement]) -> bool:
    """A while loop has no gradient."""
    return any(s[0] == "while" or any(map(uses_while, s[3:])) for s in program)


test_random_programs = generated(4, control=False, grad=False, static=False)
test_random_gradients = generated(3, control=False, grad=True, static=False)
test_random_control_flow = generated(4, control=True, grad=False, static=False)

test_many_programs = pytest.mark.slow(generated(60, control=False, grad=False, static=True))
test_many_gradients = pytest.mark.slow(generated(40, control=False, grad=True, static=True))
test_much_control_flow = pytest.mark.slow(generated(60, control=True, grad=False, static=False))
test_gradients_of_control_flow = pytest.mark.slow(
    generated(25, control=True, grad=True, static=False)
)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_every_statement_is_of_any_size(name: str) -> None:
    """One statement at a time, so that a failure above says less than this."""
    check([(name, 0, 1)], (1, 17), grad=False, static=False)
