"""Every row with symbolic sizes: one program against the static rules, over many sizes.

A case of a sample gets a symbol for each size of its operands, all of them or one at a time. The
program compiled for the symbols must give what the numpy interpreter gives for the static shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from op_cases import FUNCTIONS, Case, Draw, build, draw
from op_programs import interpret, run
from op_samples import SAMPLES

import nova
from nova.core.dtypes import dtype
from nova.errors import NovaError, ShapeError, SymbolicSizeError
from nova.graph import Tensor

# Sizes of an axis: a unit, odd, prime, and around the widths of vectors and tiles.
SIZES = (1, 2, 7, 13, 16, 17, 31, 33, 64, 67)

# Rows whose samples have no case with symbolic sizes, and why.
STATIC = {
    "arange": "no operands",
    "extent": "no operands",
    "full": "no operands",
    "zeros": "no operands",
    "ones": "no operands",
    "eye": "no operands",
    "uniform": "its operand is the seed",
    "normal": "its operand is the seed",
}

FAST = (
    *("add", "where", "sum", "mean", "var", "max", "argmax", "softmax", "layer_norm", "matmul"),
    *("take", "pad", "concat", "flip", "cumsum", "cross_entropy", "scatter_add", "dropout"),
)


def chosen_sizes(case: Case) -> Iterator[tuple[int, ...]]:
    """The sizes that become symbols: all of a case, then one at a time."""
    sizes = sorted({n for d in case.operands for n in d.shape if n > 1})
    if len(sizes) > 1:
        yield tuple(sizes)
    yield from ((n,) for n in sizes)


def symbolic(name: str, case: Case, chosen: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The placeholders and results of a case, with a symbol for each chosen size."""
    symbols = {n: nova.dim(f"N{n}", min=1, max=4096) for n in chosen}
    inputs = [
        nova.input(tuple(symbols.get(n, n) for n in a.shape), dtype(a.dtype))
        for a in draw(name, case, SAMPLES[name].usual)
    ]
    result = FUNCTIONS[name](*inputs, **case.attrs)
    return inputs, list(result) if isinstance(result, tuple) else [result]


def find_symbolic(
    name: str,
) -> tuple[Case, tuple[int, ...], list[Tensor], list[Tensor]] | None:
    """The first case and sizes of a row whose rules take symbols."""
    for case in SAMPLES[name].cases[:4]:
        for chosen in chosen_sizes(case):
            try:
                inputs, outputs = symbolic(name, case, chosen)
            except (SymbolicSizeError, ShapeError) as error:
                assert "N" in str(error)  # it names a symbol
                continue
            return case, chosen, inputs, outputs
    return None


def resized(case: Case, sizes: dict[int, int]) -> Case:
    """The case with other sizes of its operands."""
    operands = [
        Draw(tuple(sizes.get(n, n) for n in d.shape), d.domain, sizes.get(d.size, d.size))
        for d in case.operands
    ]
    return replace(case, operands=tuple(operands))


def check_sizes(name: str, sizes: tuple[int, ...]) -> int:
    """Run the symbolic program of a row for other sizes; returns how many were compared."""
    found = find_symbolic(name)
    assert found is not None, f"no case of {name} takes symbolic sizes"
    case, chosen, inputs, outputs = found
    program = nova.compile(outputs, inputs=inputs)
    compared = 0
    for step, size in enumerate((0, *sizes)):
        # The first is the case itself; the others differ from axis to axis.
        values = {n: n if step == 0 else max(1, size + i) for i, n in enumerate(chosen)}
        other = resized(case, values)
        try:
            static = build(name, other, SAMPLES[name].usual)
        except NovaError:
            continue  # attributes of the case do not fit these sizes
        results = run(program, static.arrays)
        for actual, expected in zip(results, interpret(static), strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(
                np.asarray(actual, np.float64),
                np.asarray(expected, np.float64),
                rtol=3e-4,
                atol=3e-5,
                err_msg=f"{name} {other}",
            )
        compared += 1
    return compared


@pytest.mark.parametrize("name", FAST)
def test_symbolic_sizes(name: str) -> None:
    assert check_sizes(name, (1, 17, 33)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SAMPLES if n not in STATIC])
def test_symbolic_sizes_of_all_rows(name: str) -> None:
    assert check_sizes(name, SIZES) >= 1


@pytest.mark.parametrize("name", STATIC)
def test_static_rows_have_no_operands_to_mark(name: str) -> None:
    if name in SAMPLES:
        assert find_symbolic(name) is None


# --- gradients ------------------------------------------------------------------------------------


def differentiate(inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
    from nova.graph import gradients

    sources = [t for t in inputs if t.dtype.is_float]
    total = sum(((o * o).sum() for o in outputs if o.dtype.is_float), start=nova.tensor(0.0))
    return gradients(total, sources)


def check_gradient(name: str, sizes: tuple[int, ...]) -> None:
    found = find_symbolic(name)
    assert found is not None
    case, chosen, inputs, outputs = found
    program = nova.compile(differentiate(inputs, outputs), inputs=inputs)
    for size in sizes:
        other = resized(case, {n: size + i for i, n in enumerate(chosen)})
        try:
            static = build(name, other, SAMPLES[name].usual)
        except NovaError:
            continue
        expected = run(
            nova.compile(differentiate(static.inputs, static.outputs), inputs=static.inputs),
            static.arrays,
        )
        for actual, want in zip(run(program, static.arrays), expected, strict=True):
            np.testing.assert_allclose(
                actual, want, rtol=1e-3, atol=1e-4, err_msg=f"gradient of {name} {other}"
            )


GRADIENTS = ("mul", "matmul", "mean", "softmax", "layer_norm", "take", "concat")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str) -> None:
    check_gradient(name, (9,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, s in SAMPLES.items() if n not in STATIC and s.grad and n not in GRADIENTS]
)
def test_gradient_of_all_rows(name: str) -> None:
    try:
        check_gradient(name, (1, 9, 17))
    except SymbolicSizeError as error:  # such as the gradient of prod along a symbolic axis
        assert "known at run time" in str(error) or "not a polynomial" in str(error)
