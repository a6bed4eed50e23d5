"""Symbolic sizes: the canonical form against Python's integers, text, bounds and decisions."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest

from nova.core.sizes import (
    Dim,
    SizeExpr,
    bounds,
    ceildiv,
    dim,
    evaluate,
    is_static,
    is_static_shape,
    known_equal,
    known_less,
    parse_size,
    same_shape,
    size_max,
    size_min,
    substitute,
    symbols_of,
)
from nova.errors import AttributeValueError, SymbolicSizeError

B, S = dim("B", min=1, max=4096), dim("S", min=0, max=99)
DIMS = {d.name: d for d in symbols_of((B, S))}


def random_expression(rng: random.Random, depth: int) -> str:
    """Text of an expression over B and S that Python itself evaluates."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["B", "S", str(rng.randint(0, 9))])
    left, right = (random_expression(rng, depth - 1) for _ in range(2))
    match rng.choice("+-*/mM"):
        case "/":
            return f"(({left}) // {rng.choice(['B', *range(1, 9)])})"
        case "m":
            return f"min({left}, {right})"
        case "M":
            return f"max({left}, {right})"
        case sign:
            return f"(({left}) {sign} ({right}))"


def test_quotients_by_a_symbolic_divisor_are_compared_with_their_dividend():
    assert known_less(S - (S // B) * B, B) and known_less(-1, S % B)
    assert known_less((S // B) * B, S + 1) and known_less(S // B, S + 1)
    assert bounds(S % B) == (0, 99) and bounds(S // B) == (0, 99)
    assert parse_size(str(S % B), DIMS) == S % B


@pytest.mark.parametrize("seed", range(200))
def test_expressions_agree_with_the_integers_of_python(seed):
    rng = random.Random(seed)
    text = random_expression(rng, 4)
    size = parse_size(text, DIMS)
    low, high = bounds(size)
    for values in [{"B": rng.randint(1, 4096), "S": rng.randint(0, 99)} for _ in range(5)]:
        expected = eval(text, {"min": min, "max": max}, values)
        assert evaluate(size, values) == expected
        assert low <= expected <= high
    assert isinstance(size, int) == is_static(size)
    printed = parse_size(str(size), DIMS)
    assert known_equal(printed, size)
    assert str(printed) == str(size)
    assert hash(printed) == hash(size)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (B * 64 + 1, "B*64 + 1"),
        (1 + 64 * B, "B*64 + 1"),
        (B - S, "B - S"),
        (4 - B, "-B + 4"),
        (B * S * B, "B*B*S"),
        ((B + 1) * (B - 1), "B*B - 1"),
        (B // 2, "B // 2"),
        ((B + 63) // 64 * 64, "((B + 63) // 64)*64"),
        ((B * 64 + 63) // 64, "B"),
        ((B * 6 + 5) // 4, "B + B // 2 + 1"),
        ((B // 3) // 5, "B // 15"),
        (B % 8, "B - (B // 8)*8"),
        (ceildiv(B, 32), "(B + 31) // 32"),
        (size_min(B, 128), "min(B, 128)"),
        (size_max(128, B), "max(B, 128)"),
        (B * S * 64 // S, "B*64"),
        ((B * B - 1) // (B + 1), "B - 1"),
        (S // B, "S // B"),
        ((S + 1) // (B + 1), "(S + 1) // (B + 1)"),
    ],
)
def test_canonical_form(size, text):
    assert str(size) == text
    assert known_equal(parse_size(text, DIMS), size)


def test_constants_are_plain_numbers():
    for size in (B - B, B * 0 + 7, (B + 1) - B, B * 4 // B, size_min(B, 5000) - B, S // 100):
        assert type(size) is int
    assert size_max(B, 1) is B
    assert size_min(B, 1) == 1
    assert evaluate(3, {}) == 3
    assert bounds(3) == (3, 3)
    assert is_static_shape((1, 2)) and not is_static_shape((1, B))


def test_integers_of_numpy_are_sizes():
    assert np.int64(3) * B == B * 3
    assert isinstance(np.int64(3) + B, SizeExpr)
    with pytest.raises(TypeError):
        B * 1.5


def test_comparisons_that_bounds_decide():
    assert B == B + 0 and B != 0 and B != 5000 and B > 0 and B >= 1 and B <= 4096 and B < 4097
    assert not B < 1
    assert S < B + 99
    assert bool(B)
    assert known_less(S, 100) and not known_less(S, B)
    assert not known_equal(B, S) and not known_equal(B, 4)
    assert same_shape((B, 2), (B, 2)) and not same_shape((B, 2), (S, 2))
    assert not same_shape((B,), (B, 1))


@pytest.mark.parametrize(
    "compare",
    [
        lambda: B == 4,
        lambda: B != S,
        lambda: B < S,
        lambda: B <= 7,
        lambda: B > 7,
        lambda: bool(S),
        lambda: (B, 3) == (4, 3),
        lambda: B in (1, 2),
    ],
)
def test_comparisons_that_bounds_do_not_decide_raise(compare):
    with pytest.raises(SymbolicSizeError, match=r"depends on sizes.* is in \[\d+, \d+\]"):
        compare()


@pytest.mark.parametrize("convert", [int, float, range, [0].__mul__])
def test_a_size_is_not_a_number(convert):
    with pytest.raises(SymbolicSizeError, match="the size B is known at run time"):
        convert(B)


def test_division_by_a_size_that_may_be_zero():
    with pytest.raises(SymbolicSizeError, match="may be 0"):
        B // S
    with pytest.raises(SymbolicSizeError, match="may be 0"):
        B // 0


def test_sizes_are_keys_and_values():
    assert {B * 2: 1}[B + B] == 1
    assert pickle.loads(pickle.dumps(B * 2 + S)) == B * 2 + S
    assert copy.deepcopy((B, 3)) == (B, 3)
    assert pickle.loads(pickle.dumps(B)).bounds() == (1, 4096)
    assert (B * 2).symbol is None and B.symbol == Dim("B")
    assert (B * S).symbols == (Dim("B"), Dim("S"))


def test_substitution():
    assert substitute((B + 1) // 2 * S, {"B": 7}) == 4 * S
    assert substitute(size_min(B, S), {"B": S + 1}) == S
    assert substitute(B + S, {"B": 1, "S": 2}) == 3


@pytest.mark.parametrize(
    "text", ["", "B +", "B / 2", "f(B)", "B[0]", "1.5", "True", "max(B)", "B;B"]
)
def test_text_that_is_not_a_size(text):
    with pytest.raises(AttributeValueError, match="is not a size"):
        parse_size(text)


def test_text_that_names_an_unknown_dim():
    with pytest.raises(AttributeValueError, match="'T', which is not a dim"):
        parse_size("T + 1", DIMS)
    assert str(parse_size("T + 1")) == "T + 1"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("2x",), "identifier"),
        ((3,), "identifier"),
        (("max",), "identifier"),
        (("B", -1), "min of dim 'B' is -1"),
        (("B", 1, 2**40), "max of dim 'B'"),
        (("B", 4, 2), "min=4 above max=2"),
        (("B", 1.0), "min of dim 'B' is 1.0"),
    ],
)
def test_a_dim_checks_its_arguments(args, message):
    with pytest.raises(AttributeValueError, match=message):
        dim(*args)


def test_a_value_for_every_symbol():
    with pytest.raises(SymbolicSizeError, match="S has no value"):
        (B + S).evaluate({"B": 1})
    with pytest.raises(SymbolicSizeError, match="divides by zero"):
        (S // B).evaluate({"B": 0, "S": 1})


def test_quotients_are_compared_with_their_dividends():
    n, m = dim("n", min=0, max=100), dim("m", min=3, max=7)
    assert str(size_min(n, n // 2)) == "n // 2" and str(size_max(n // 2, n)) == "n"
    assert str(size_min(n // 3 * 3, n)) == str(n // 3 * 3)
    assert str(size_min(n // 2, n - n // 2)) == "n // 2"
    assert (n // 2) * 2 <= n and n - n // 2 >= 0 and (n + m) // 4 + 1 <= n + m + 1
    assert str(size_min(n, n // 2 + 1)).startswith("min(")  # n = 0 and n = 1 differ


def test_bounds_of_quotients_hold():
    """Random expressions with quotients: no value is out of their bounds."""
    rng = random.Random(5)
    n, m = dim("n", min=0, max=9), dim("m", min=1, max=5)
    for _ in range(200):
        size = n * rng.randint(-3, 3) + m * rng.randint(-2, 2) + rng.randint(-3, 3)
        for _ in range(rng.randint(1, 3)):
            dividend = n * rng.randint(-2, 3) + m * rng.randint(-2, 3) + rng.randint(-4, 4)
            size += (dividend // rng.randint(1, 5)) * rng.randint(-3, 3)
        low, high = bounds(size)
        values = [evaluate(size, {"n": a, "m": b}) for a in range(10) for b in range(1, 6)]
        assert low <= min(values) and max(values) <= high, size
