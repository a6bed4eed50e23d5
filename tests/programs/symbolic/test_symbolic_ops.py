"""Every row with symbolic sizes: one program against the static rules, over many sizes.

A case of a sample gets a symbol for each size of its operands, all of them or one at a time. The
program compiled for the symbols must give what the numpy interpreter gives for the static shapes.
Every row is checked with a few sizes, many rows in one program; the slow tests take all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from op_cases import FUNCTIONS, Case, Draw, build, case, draw, index
from op_programs import interpret, run
from op_samples import SAMPLES

import nova
from nova.core.dtypes import dtype
from nova.core.records import record
from nova.errors import NovaError, ShapeError, SymbolicSizeError
from nova.graph import Tensor, gradients

# Sizes of an axis: a unit, odd, prime, and around the widths of vectors and tiles.
SIZES = (1, 2, 7, 13, 15, 16, 17, 31, 33, 63, 64, 65, 67, 129)

# Rows whose samples have no case with symbolic sizes, and why.
STATIC = {
    "arange": "no operands",
    "conv_channels_last": "convolve-channels-last writes it for static shapes",
    "conv_channels_last_weight_gradient": "convolve-channels-last writes it for static shapes",
    "dequantize": "weights in blocks have static shapes",
    "extent": "no operands",
    "full": "no operands",
    "zeros": "no operands",
    "ones": "no operands",
    "eye": "no operands",
    "uniform": "its operand is the seed",
    "normal": "its operand is the seed",
    "kept_weights": "its operand is the seed",
}

# Cases whose attributes depend on the sizes of their operands, and the sizes that are symbols.
Sizes = Mapping[int, Any]
SIZED: dict[str, tuple[Case, Callable[[Sizes], dict[str, Any]], tuple[int, ...]]] = {
    "slice": (
        case((5, 13)),
        lambda n: {"starts": (1, 2), "stops": (n[5], n[13] - 1), "steps": (1, 1)},
        (5, 13),
    ),
    "unslice": (
        case((3, 4)),
        lambda n: {"shape": (n[3] * 2 + 2, n[4] + 5), "starts": (1, 2), "steps": (2, 1)},
        (3, 4),
    ),
    "dynamic_slice": (
        case((5, 7), index((2,), 5)),
        lambda n: {"slice_sizes": (n[5] - 3, n[7])},
        (5, 7),
    ),
    # The diagonal of a symbolic axis would have the size of a minimum.
    "diagonal": (case((5, 4, 3)), lambda n: {"offset": 1}, (5,)),
}

# Rows that take the unit axes of static shapes away; a symbolic size stays an axis if it is 1.
KEEPS_UNITS = {"squeeze"}


@record
class Symbolic:
    """A case of a row with symbols for the `chosen` sizes."""

    name: str
    case: Case
    chosen: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    least: int

    def values(self, size: int) -> dict[int, int]:
        """The sizes of the symbols: `size` or a little more, which differ from axis to axis."""
        return {n: size + n % 3 for n in self.chosen}

    def resized(self, size: int) -> Case:
        """The case with other sizes of its operands."""
        sizes = self.values(size)
        operands = [
            Draw(tuple(sizes.get(n, n) for n in d.shape), d.domain, sizes.get(d.size, d.size))
            for d in self.case.operands
        ]
        attrs = attrs_of(self.name, sizes) or self.case.attrs
        return replace(self.case, operands=tuple(operands), attrs=attrs)

    def arrays(self, size: int) -> list[np.ndarray]:
        return draw(self.name, self.resized(size), SAMPLES[self.name].usual)

    def expected(self, size: int) -> list[np.ndarray] | None:
        """The results of the interpreter for the static case; None if its attributes do not fit."""
        if self.name in KEEPS_UNITS and size <= 1:
            return None
        try:
            static = build(self.name, self.resized(size), SAMPLES[self.name].usual)
        except NovaError:
            return None
        return interpret(static)


def attrs_of(name: str, sizes: Sizes) -> dict[str, Any]:
    return SIZED[name][1](sizes) if name in SIZED else {}


def chosen_sizes(example: Case) -> Iterator[tuple[int, ...]]:
    """The sizes that become symbols: all of a case, then one at a time."""
    sizes = sorted({n for d in example.operands for n in d.shape if n > 1})
    if len(sizes) > 1:
        yield tuple(sizes)
    yield from ((n,) for n in sizes)


def symbolic(name: str, example: Case, chosen: tuple[int, ...], low: int) -> Symbolic:
    """A case with a symbol of `low` or more for each chosen size."""
    least = max(low, 4) if name in SIZED else low
    symbols = {n: nova.dim(f"N{n}_{least}", min=least, max=4096) for n in chosen}
    inputs = tuple(
        nova.input(tuple(symbols.get(n, n) for n in a.shape), dtype(a.dtype))
        for a in draw(name, example, SAMPLES[name].usual)
    )
    result = FUNCTIONS[name](*inputs, **(attrs_of(name, symbols) or example.attrs))
    outputs = tuple(result) if isinstance(result, tuple) else (result,)
    return Symbolic(name, example, chosen, inputs, outputs, least)


def find_symbolic(name: str, low: int = 1) -> Symbolic | None:
    """The first case and sizes of a row whose rules take symbols."""
    cases = (SIZED[name][0],) if name in SIZED else SAMPLES[name].cases[:4]
    for example in cases:
        choices = [SIZED[name][2]] if name in SIZED else chosen_sizes(example)
        for chosen in choices:
            try:
                return symbolic(name, example, chosen, low)
            except (SymbolicSizeError, ShapeError) as error:
                assert "N" in str(error)  # it names a symbol
    return None


def compare(actual: Sequence[Any], expected: Sequence[Any], text: str, rtol: float) -> None:
    for got, right in zip(actual, expected, strict=True):
        assert got.shape == right.shape, text
        np.testing.assert_allclose(
            np.asarray(got, np.float64),
            np.asarray(right, np.float64),
            rtol=rtol,
            atol=rtol / 10,
            err_msg=text,
        )


def check_sizes(name: str, sizes: tuple[int, ...], low: int = 1, **options: Any) -> int:
    """Run the symbolic program of a row for sizes; returns how many were compared."""
    row = find_symbolic(name, low)
    if row is None:
        return 0
    program = nova.compile(list(row.outputs), inputs=list(row.inputs), **options)
    compared = 0
    for size in sizes:
        expected = None if size < row.least else row.expected(size)
        if expected is not None:
            compare(run(program, row.arrays(size)), expected, f"{name} of {size}", 3e-4)
            compared += 1
    return compared


SYMBOLIC = [name for name in SAMPLES if name not in STATIC]
GROUP = 25


@pytest.mark.parametrize("first", range(0, len(SYMBOLIC), GROUP))
def test_every_row_with_symbolic_sizes(first: int) -> None:
    """Several rows in one program; equal sizes of their cases are one symbol."""
    names = SYMBOLIC[first : first + GROUP]
    rows = [row for name in names if (row := find_symbolic(name)) is not None]
    assert [row.name for row in rows] == names
    outputs = [t for row in rows for t in row.outputs]
    program = nova.compile(outputs, inputs=[t for row in rows for t in row.inputs])
    compared = set()
    for size in (5, 17, 33):
        results = iter(run(program, [a for row in rows for a in row.arrays(size)]))
        for row in rows:
            actual = list(islice(results, len(row.outputs)))
            expected = row.expected(size)
            if expected is not None:
                compare(actual, expected, f"{row.name} of {size}", 3e-4)
                compared.add(row.name)
    assert compared == set(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes_of_all_rows(name: str) -> None:
    assert check_sizes(name, SIZES) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SYMBOLIC)
def test_all_rows_on_a_device(name: str, on_device: dict[str, Any]) -> None:
    assert check_sizes(name, (1, 5, 33, 64), **on_device) >= 1


# Rows whose rules need an axis that is not empty: reductions without an identity, and indices.
NEVER_EMPTY: set[str] = set()


@pytest.mark.slow
@pytest.mark.parametrize("name", SYMBOLIC)
def test_axes_that_may_be_empty(name: str) -> None:
    compared = check_sizes(name, (0, 1, 5, 33), low=0)
    assert compared >= 1 or name in NEVER_EMPTY


@pytest.mark.parametrize("name", STATIC)
def test_static_rows_have_no_operands_to_mark(name: str) -> None:
    if name in SAMPLES:
        assert find_symbolic(name) is None


# --- gradients ------------------------------------------------------------------------------------


def differentiate(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    sources = [t for t in inputs if t.dtype.is_float]
    total = sum(((o * o).sum() for o in outputs if o.dtype.is_float), start=nova.tensor(0.0))
    return gradients(total, sources)


def check_gradient(name: str, sizes: tuple[int, ...]) -> None:
    row = find_symbolic(name)
    assert row is not None
    program = nova.compile(differentiate(row.inputs, row.outputs), inputs=list(row.inputs))
    for size in sizes:
        if size < row.least or row.expected(size) is None:
            continue
        static = build(name, row.resized(size), SAMPLES[name].usual)
        other = nova.compile(differentiate(static.inputs, static.outputs), inputs=static.inputs)
        arrays = row.arrays(size)
        compare(run(program, arrays), run(other, arrays), f"gradient of {name} of {size}", 1e-3)


GRADIENTS = [name for name in SYMBOLIC if SAMPLES[name].grad]

# Gradients that need a number for an axis of the first case, and say so.
STATIC_GRADIENTS = {"prod"}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n else [])
        for n in range(0, len(GRADIENTS), GROUP)
    ],
)
def test_gradients_with_symbolic_sizes(first: int) -> None:
    """Several rows in one program, against a program of the same rows with static sizes."""
    names = [n for n in GRADIENTS[first : first + GROUP] if n not in STATIC_GRADIENTS]
    rows = [row for name in names if (row := find_symbolic(name)) is not None]
    size = 9
    fitting = [row for row in rows if row.expected(size) is not None]
    grads = [differentiate(row.inputs, row.outputs) for row in fitting]
    program = nova.compile(
        [g for row in grads for g in row], inputs=[t for row in fitting for t in row.inputs]
    )
    statics = [build(row.name, row.resized(size), SAMPLES[row.name].usual) for row in fitting]
    other = nova.compile(
        [g for s in statics for g in differentiate(s.inputs, s.outputs)],
        inputs=[t for s in statics for t in s.inputs],
    )
    arrays = [a for row in fitting for a in row.arrays(size)]
    actual, expected = iter(run(program, arrays)), iter(run(other, arrays))
    for row, own in zip(fitting, grads, strict=True):
        pair = [list(islice(values, len(own))) for values in (actual, expected)]
        compare(*pair, f"gradient of {row.name}", 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_of_all_rows(name: str) -> None:
    if name not in STATIC_GRADIENTS:
        check_gradient(name, (1, 9, 17, 65))
        return
    with pytest.raises(SymbolicSizeError, match="known at run time"):
        check_gradient(name, (9,))
