"""`updates=`: parameters are updated in place, and never before their old value was read.

Each case is compiled as one small kernel, as larger kernels and in tiles of few rows, and compared
with numpy on the old values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import DTypeError, GraphError, ShapeError

SIZES = {"serial": 4, "large": 192, "tiled": 24}


def _param(name: str, shape: tuple[int, ...], seed: int) -> tuple[Any, np.ndarray]:
    data = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return nova.tensor(data, name=name, requires_grad=True), data


class Case:
    """Params with values; `run` compiles and checks outputs and updates."""

    def __init__(self, n: int, *names: str):
        created = [_param(name, (n, n), i) for i, name in enumerate(names)]
        self.tensors = [t for t, _ in created]
        self.old = [a for _, a in created]

    def run(
        self,
        outputs: Callable[..., list[Any]],
        updates: Callable[..., list[Any]],
        inputs: int = 0,
        tolerance: float = 2e-5,
    ) -> Any:
        """`outputs` and `updates` build tensors, and with arrays the expected values.

        The first `inputs` of the tensors are inputs; a None among the updates changes nothing.
        """
        params = self.tensors[inputs:]
        new = updates(*self.tensors)
        program = nova.compile(
            outputs(*self.tensors),
            inputs=self.tensors[:inputs],
            params=params,
            updates={p: v for p, v in zip(params, new, strict=True) if v is not None},
        )
        arrays = [a.copy() for a in self.old]
        # Twice: a second run must see the first one's updates, and nothing else of it.
        for _ in range(2):
            before = [a.copy() for a in arrays]
            results = program.run(arrays[:inputs], arrays[inputs:])
            results = results if isinstance(results, tuple) else (results,)
            for result, expected in zip(results, outputs(*before), strict=True):
                np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
            for i, expected in enumerate([None] * inputs + updates(*before)):
                reference = before[i] if expected is None else expected
                np.testing.assert_allclose(arrays[i], reference, rtol=tolerance, atol=tolerance)
        return program


def _main(program: Any) -> str:
    """main at the `buffers` stage."""
    return program.stages["buffers"].partition("func.func @main")[2]


@pytest.fixture(params=SIZES)
def n(request: pytest.FixtureRequest) -> Iterator[int]:
    knobs = {"serial_work": 0, "tile_work": 100} if request.param == "tiled" else {}
    with nova.knobs.override(**knobs):
        yield SIZES[request.param]


def test_elementwise_update_needs_no_copy(n: int) -> None:
    program = Case(n, "w", "g").run(
        lambda w, g: [],
        lambda w, g: [w - g * np.float32(0.1), None],
    )
    assert program.workspace_size == 0
    assert "copy_" not in _main(program)


def test_value_of_the_old_param_is_also_an_output(n: int) -> None:
    Case(n, "w", "g").run(lambda w, g: [w, w + g], lambda w, g: [w - g, None])


def test_param_is_still_read_by_a_later_output(n: int) -> None:
    """The output's kernel needs whole rows and columns of the old value."""
    Case(n, "x", "w").run(lambda x, w: [x @ w], lambda x, w: [w * 0.5 + 1.0], inputs=1)


def test_param_is_read_by_another_update(n: int) -> None:
    Case(n, "v", "w").run(lambda v, w: [], lambda v, w: [w + v, v @ w / n])


def test_momentum(n: int) -> None:
    def updates(w: Any, m: Any, g: Any) -> list[Any]:
        new_m = m * np.float32(0.9) + g
        return [w - new_m * np.float32(0.1), new_m, None]

    program = Case(n, "w", "m", "g").run(lambda w, m, g: [], updates)
    assert "copy_" not in _main(program)


def test_new_value_is_an_output_too(n: int) -> None:
    def new(w: Any, g: Any) -> Any:
        return w - g * np.float32(0.1)

    Case(n, "w", "g").run(lambda w, g: [new(w, g)], lambda w, g: [new(w, g), None])


def test_exchange_of_two_params(n: int) -> None:
    Case(n, "v", "w").run(lambda v, w: [], lambda v, w: [w, v])


def test_rotation_of_three_params(n: int) -> None:
    Case(n, "u", "v", "w").run(lambda u, v, w: [u + v], lambda u, v, w: [v, w, u])


def test_update_that_reads_the_old_value_transposed(n: int) -> None:
    Case(n, "w").run(lambda w: [], lambda w: [w.transpose() + w])


def test_update_to_the_transposed_old_value(n: int) -> None:
    Case(n, "w").run(lambda w: [], lambda w: [w.transpose()])


def test_update_that_reads_the_old_value_flipped(n: int) -> None:
    def updates(w: Any) -> list[Any]:
        flipped = w[::-1] if isinstance(w, np.ndarray) else nova.flip(w, axes=(0,))
        return [flipped - w]

    Case(n, "w").run(lambda w: [], updates)


def test_update_to_a_product_with_the_old_value(n: int) -> None:
    Case(n, "w", "x").run(lambda w, x: [], lambda w, x: [w @ x / n, None])


def test_update_to_another_param(n: int) -> None:
    Case(n, "v", "w").run(lambda v, w: [], lambda v, w: [w, None])


def test_two_params_get_one_value(n: int) -> None:
    def updates(v: Any, w: Any) -> list[Any]:
        mean = (v + w) * np.float32(0.5)
        return [mean, mean]

    Case(n, "v", "w").run(lambda v, w: [v], updates)


def test_update_to_another_param_that_is_updated(n: int) -> None:
    Case(n, "v", "w").run(lambda v, w: [], lambda v, w: [w, w + v])


def test_update_to_an_input(n: int) -> None:
    Case(n, "x", "w").run(lambda x, w: [w], lambda x, w: [x], inputs=1)


def test_update_to_itself(n: int) -> None:
    Case(n, "w").run(lambda w: [w * np.float32(2.0)], lambda w: [w])


def test_update_to_a_constant(n: int) -> None:
    items = np.ones((n, n), np.float32)

    def updates(w: Any) -> list[Any]:
        return [items if isinstance(w, np.ndarray) else nova.tensor(items)]

    Case(n, "w").run(lambda w: [w], updates)


def test_update_that_normalises_rows(n: int) -> None:
    """Rows are read by a reduction and written, in one kernel with one tile a block of rows."""

    def updates(w: Any) -> list[Any]:
        if isinstance(w, np.ndarray):
            return [w / np.abs(w).sum(1, keepdims=True)]
        return [w / nova.sum(nova.abs(w), axis=1, keepdims=True)]

    Case(n, "w").run(lambda w: [], updates)


def test_update_that_normalises_columns(n: int) -> None:
    def updates(w: Any) -> list[Any]:
        if isinstance(w, np.ndarray):
            return [w / np.abs(w).sum(0, keepdims=True)]
        return [w / nova.sum(nova.abs(w), axis=0, keepdims=True)]

    Case(n, "w").run(lambda w: [], updates)


def test_update_that_reads_one_row_of_the_old_value(n: int) -> None:
    Case(n, "w").run(lambda w: [], lambda w: [w + w[n - 1]])


def test_update_that_reads_the_old_value_through_a_reshape(n: int) -> None:
    def updates(w: Any) -> list[Any]:
        first = w.reshape((n * n,))[:n].reshape((n, 1))
        exp = np.exp if isinstance(w, np.ndarray) else nova.exp
        shared = exp(first + w)
        total = shared.sum(axis=1, keepdims=True)
        return [w + shared / total]

    Case(n, "w").run(lambda w: [], updates)


def test_update_by_index(n: int) -> None:
    index = np.arange(n, dtype=np.int64)[::-1].copy()

    def updates(w: Any) -> list[Any]:
        if isinstance(w, np.ndarray):
            return [w + w[index]]
        return [w + nova.take(w, nova.tensor(index), axis=0)]

    Case(n, "w").run(lambda w: [], updates)


def test_scatter_into_the_old_value(n: int) -> None:
    index = np.array([0, 1, 0], dtype=np.int64)
    rows = np.ones((3, n), np.float32)

    def updates(w: Any) -> list[Any]:
        if isinstance(w, np.ndarray):
            new = w.copy()
            np.add.at(new, index, rows)
            return [new]
        return [nova.index_add(w, nova.tensor(index), nova.tensor(rows), axis=0)]

    Case(n, "w").run(lambda w: [w], updates)


def test_inputs_are_never_written(n: int) -> None:
    """What bufferization may do in place it does in buffers of its own."""
    index = nova.tensor(np.array([0, 1, 0], dtype=np.int64))
    rows = nova.tensor(np.ones((3, n), np.float32))
    x, data = _param("x", (n, n), 0)
    program = nova.compile(
        [nova.index_add(x, index, rows, axis=0), nova.exp(x)], inputs=[x], params=[]
    )
    array = data.copy()
    program.run([array])
    np.testing.assert_array_equal(array, data)


def test_training_step_matches_numpy() -> None:
    """Forward, backward and update of a two-layer model in one program, for ten steps."""
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((32, 16)).astype(np.float32) for _ in range(2))
    w1, w2 = (rng.standard_normal((16, 16)).astype(np.float32) * 0.3 for _ in range(2))
    X, Y = nova.tensor(x, name="X"), nova.tensor(y, name="Y")
    W1 = nova.tensor(w1, requires_grad=True, name="W1")
    W2 = nova.tensor(w2, requires_grad=True, name="W2")
    loss = nova.mse_loss(nova.tanh(X @ W1) @ W2, Y)
    nova.backward(loss)
    step = nova.compile(
        loss,
        inputs=[X, Y],
        params=[W1, W2],
        updates={W1: W1 - 0.1 * W1.grad, W2: W2 - 0.1 * W2.grad},
    )
    a, b = w1.copy(), w2.copy()
    p, q = w1.astype(np.float64), w2.astype(np.float64)
    for _ in range(10):
        hidden = np.tanh(x @ p)
        difference = hidden @ q - y
        value = step.run([x, y], [a, b])
        np.testing.assert_allclose(value, (difference**2).mean(), rtol=1e-5)
        out = 2 * difference / difference.size
        grad_q = hidden.T @ out
        grad_p = x.T @ ((out @ q.T) * (1 - hidden**2))
        p, q = p - 0.1 * grad_p, q - 0.1 * grad_q
        np.testing.assert_allclose(a, p, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b, q, rtol=1e-4, atol=1e-5)


def test_wrong_updates_are_refused() -> None:
    w, _ = _param("w", (2, 2), 0)
    x, _ = _param("x", (2, 2), 1)
    with pytest.raises(GraphError, match="not among the params"):
        nova.compile(w, params=[w], updates={x: w})
    with pytest.raises(ShapeError, match="update of"):
        nova.compile(w, params=[w], updates={w: w[0]})
    with pytest.raises(DTypeError, match="update of"):
        nova.compile(w, params=[w], updates={w: nova.cast(w, dtype="f64")})


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_calls_of_one_kernel_are_in_place_or_not(order):
    """Kernels of repeated layers are one: what is done to it for one call is not done to others."""
    n = 192
    created = {name: _param(name, (n, n), i) for i, name in enumerate("abc")}
    params = [created[name][0] for name in order]
    halves = {name: tensor * 0.5 for name, (tensor, _) in created.items()}
    program = nova.compile(
        [halves["c"], nova.sum(created["b"][0])],
        params=params,
        updates={created[name][0]: halves[name] for name in "ab"},
    )
    assert program.stages["kernels"].count("nova.kernel,") == 2
    assert program.stages["buffers"].count("nova.kernel,") == 3
    arrays = {name: array.copy() for name, (_, array) in created.items()}
    half, total = program.run([], [arrays[name] for name in order])
    old = {name: array for name, (_, array) in created.items()}
    np.testing.assert_array_equal(half, old["c"] * np.float32(0.5))
    np.testing.assert_allclose(total, old["b"].sum(dtype=np.float64), rtol=1e-4, atol=1e-3)
    for name, factor in (("a", 0.5), ("b", 0.5), ("c", 1.0)):
        np.testing.assert_array_equal(arrays[name], old[name] * np.float32(factor))


def test_two_updates_of_one_kernel_and_a_call_that_updates_one_of_them():
    """The second change of a kernel is not given to calls that wanted the first one only."""
    n = 192
    names = "pqrstu"
    created = {name: _param(name, (n, n), i) for i, name in enumerate(names)}
    new = {}
    for first, second in ("pq", "rs", "tu"):
        x, y = created[first][0], created[second][0]
        mixed = x * 0.5 + y * 0.25
        new[first], new[second] = mixed, mixed * y
    program = nova.compile(
        [nova.sum(new["u"]), new["s"]],
        params=[created[name][0] for name in names],
        updates={created[name][0]: new[name] for name in "pqrt"},
    )
    arrays = [created[name][1].copy() for name in names]
    _, s = program.run([], arrays)
    old = {name: created[name][1] for name in names}
    half, quarter = np.float32(0.5), np.float32(0.25)
    for first, second in ("pq", "rs", "tu"):
        mixed = old[first] * half + old[second] * quarter
        product = mixed * old[second]
        np.testing.assert_allclose(arrays[names.index(first)], mixed, rtol=1e-5, atol=1e-6)
        retained = product if second == "q" else old[second]
        np.testing.assert_allclose(arrays[names.index(second)], retained, rtol=1e-5, atol=1e-6)
        if second == "s":
            np.testing.assert_allclose(s, product, rtol=1e-5, atol=1e-6)
