"""`nova.jit(dynamic=...)`: marked and learned axes, sizes 0 and 1, explanations and counts."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.errors import ArgumentShapeError, AttributeValueError

W = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)


def rows(n: int, columns: int = 4) -> np.ndarray:
    return np.arange(n * columns, dtype="f4").reshape(n, columns) / 10


def test_the_second_size_of_an_axis_makes_it_symbolic():
    @nova.jit(dynamic=True)
    def f(x, w):
        return nova.relu(x @ w)

    for n in (5, 7, 100, 33, 5):
        np.testing.assert_allclose(f(rows(n), W), np.maximum(rows(n) @ W, 0), rtol=1e-5)
    assert f.cache_info().misses == 2
    assert f.cache_info().symbolic == 1
    assert "axis 0 of x was 5 and 7: it is symbolic now, x_0" in f.explain()


def test_sizes_zero_and_one_keep_programs_of_their_own():
    @nova.jit(dynamic=True)
    def f(x):
        return x.sum(axis=0)

    for n in (3, 8, 1, 0, 5, 1):
        np.testing.assert_allclose(f(rows(n)), rows(n).sum(axis=0), rtol=1e-6)
    assert f.cache_info().misses == 4  # 3, the symbol, 1 and 0
    assert f.cache_info().symbolic == 1


def test_axes_of_equal_sizes_share_a_symbol_until_they_differ():
    @nova.jit(dynamic=True)
    def f(x, y):
        return x.sum(axis=0) + y.sum(axis=0)

    for n, m in ((3, 3), (5, 5), (6, 7), (8, 2)):
        expected = rows(n).sum(axis=0) + rows(m).sum(axis=0)
        np.testing.assert_allclose(f(rows(n), rows(m)), expected, rtol=1e-6)
    assert f.cache_info().misses == 3


def test_a_branch_on_a_learned_size_keeps_it_static():
    @nova.jit(dynamic=True)
    def f(x):
        return x * 2 if x.shape[0] == 3 else x

    for n in (3, 4, 5, 3):
        np.testing.assert_array_equal(f(rows(n)), rows(n) * (2 if n == 3 else 1))
    assert f.cache_info().symbolic == 0
    assert "sizes are static: whether x_0 == 3 depends" in f.explain()


def test_a_learned_size_starts_at_the_smallest_seen_if_it_has_to():
    @nova.jit(dynamic=True)
    def f(x):
        return nova.conv1d(x, np.ones((1, 1, 3), "f4"))

    for n in (8, 10, 30, 9, 4, 4):
        array = rows(1, n)[None]
        expected = np.convolve(array[0, 0], np.ones(3, "f4"), "valid")
        np.testing.assert_allclose(f(array)[0, 0], expected, rtol=1e-6)
    assert f.cache_info().symbolic == 1
    assert f.cache_info().hits == 3  # 30 and 9 of the symbolic program, 4 of its own


def test_marked_axes():
    batch = nova.dim("B", min=1, max=64)

    @nova.jit(dynamic={"x": {0: batch, 1: "C"}, "scale": {-1: "C"}})
    def f(x, *, scale):
        return x * scale

    for n, columns in ((3, 4), (1, 5), (64, 4)):
        x = rows(n, columns)
        np.testing.assert_array_equal(f(x, scale=x[:1]), x * x[:1])
    assert f.cache_info().symbolic == f.cache_info().misses == 1
    with pytest.raises(ArgumentShapeError, match=r"axis 0 of 'x' is 65, so B is 65: .* 1\.\.64"):
        f(rows(65), scale=rows(1))


def test_marked_axes_of_one_name_have_one_size():
    @nova.jit(dynamic={"x": {0: "B"}, "y": {0: "B"}})
    def f(x, y):
        return x + y

    assert f(rows(3), rows(3)).shape == (3, 4)
    match = "axis 0 of 'y' is 5, and B is 4: B is 4, from axis 0 of 'x'"
    with pytest.raises(ArgumentShapeError, match=match):
        f(rows(4), rows(5))


def test_a_branch_on_a_marked_size_is_an_error():
    @nova.jit(dynamic={"x": {0: "B"}})
    def f(x):
        return x * 2 if x.shape[0] > 3 else x

    with pytest.raises(nova.NovaError, match="whether B > 3 depends on sizes"):
        f(rows(4))


def test_a_learned_function_as_a_method():
    class Model:
        def __init__(self) -> None:
            self.w = nova.tensor(W)

        @nova.jit(dynamic=True)
        def __call__(self, x):
            return x @ self.w

    model = Model()
    for n in (2, 3, 9):
        np.testing.assert_allclose(model(rows(n)), rows(n) @ W, rtol=1e-5)


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        (3, "dynamic is a int"),
        ({"x": 0}, "dynamic has 'x': 0"),
        ({"x": {"0": "B"}}, "marks axis '0' of 'x'"),
        ({"x": {0: 5}}, "marks axis 0 of 'x' with 5"),
        ({"x": {0: "2B"}}, "identifier"),
    ],
)
def test_dynamic_is_checked(dynamic, message):
    with pytest.raises(AttributeValueError, match=message):
        nova.jit(lambda x: x, dynamic=dynamic)


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [({"y": {0: "B"}}, "'y', which is not an argument"), ({"x": {2: "B"}}, "marks axis 2 of 'x'")],
)
def test_marks_that_no_argument_has(dynamic, message):
    def f(x):
        return x

    with pytest.raises(AttributeValueError, match=message):
        nova.jit(f, dynamic=dynamic)(rows(2))


def test_halves_of_a_symbolic_axis():
    """`n // 2` is at most `n`, so both halves are slices of known sizes."""

    @nova.jit(dynamic={"x": {0: nova.dim("n", min=0)}})
    def halves(x):
        n = x.shape[0]
        return x[: n // 2], x[n // 2 :], x[: n - n // 3], x[n // 3 : n // 2]

    for n in (0, 1, 2, 7, 40):
        x = np.arange(n * 3, dtype="f4").reshape(n, 3)
        parts = (x[: n // 2], x[n // 2 :], x[: n - n // 3], x[n // 3 : n // 2])
        for actual, expected in zip(halves(x), parts, strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert halves.cache_info().misses == 1


def test_a_slice_of_a_static_table_up_to_a_dynamic_length():
    @nova.jit(dynamic={"x": {0: nova.dim("n", min=1, max=256)}})
    def rows(x, table):
        return x * table[: x.shape[0]]

    table = np.arange(256 * 3, dtype="f4").reshape(256, 3)
    for size in (5, 6, 256):
        np.testing.assert_array_equal(rows(np.ones((size, 3), "f4"), table), table[:size])
    assert rows.cache_info().symbolic == 1
