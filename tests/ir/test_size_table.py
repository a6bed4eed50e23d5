"""Representatives of symbolic sizes: numbers of the IR decode to one expression each."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.core.sizes import Dim, size_of
from nova.graph.interpret import evaluate
from nova.ir.symbolic.size_table import choose_representatives
from nova.ops.randomness import code_constants

A, B, C = Dim("A", 1), Dim("B", 1), Dim("C", 1)
a, b, c = map(size_of, (A, B, C))


def test_a_sum_is_never_the_representative_of_another_dim() -> None:
    """Primes in a row have small differences, which are static numbers of programs."""
    sums = [x + n for x in (a, b, c) for n in range(1, 200)]
    table = choose_representatives([A, B, C], sums, [])
    values = [table.representative(size) for size in (a, b, c, *sums)]
    assert len(set(values)) == len(values)
    for size in (a, b, c, *sums, a * 6, b * c * 4, (a + 7) * 3):
        assert str(table.size(table.representative(size))) == str(size)


def test_static_numbers_are_not_sizes() -> None:
    numbers = {*code_constants(0), *code_constants(1), 4099, 4111, 8222}
    table = choose_representatives([A, B], [a * 2 + 2, a + b + 5, (b + 31) // 32], numbers)
    for number in numbers:
        assert table.position(number) == number


def test_quotients_by_large_numbers() -> None:
    table = choose_representatives([A], [a // 1_000_000], [])
    assert str(table.size(table.representative(a // 1_000_000))) == "A // 1000000"


@pytest.mark.parametrize("dims", [2, 6, 14])
def test_draws_in_programs_with_many_dims(dims: int) -> None:
    """The constants of the generator are no sizes, whatever primes were chosen."""
    symbols = [nova.dim(f"N{i}") for i in range(dims)]
    inputs = [nova.input((n, 3)) for n in symbols]
    seed = nova.input((), "i64")
    outputs = [nova.dropout(x[1:] * 2, seed) for x in inputs]
    program = nova.compile(outputs, inputs=[*inputs, seed])
    arrays = [np.ones((i + 2, 3), "f4") for i in range(dims)]
    feed = dict(zip([*inputs, seed], [*arrays, np.int64(5)], strict=True))
    for actual, expected in zip(
        program(*arrays, np.int64(5)), evaluate(outputs, feed), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
