"""Gradients of slices are joined where they lie side by side, and are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova import ops
from nova.graph.autodiff import gradients
from nova.graph.interpret import evaluate

F = ops.F
VALUES = np.random.default_rng(0).standard_normal((3, 12, 2)).astype(np.float32)


def cut(x, *positions):
    """Parts of the second axis, each with a function of its own."""
    parts = [x[:, a:b] for a, b in positions]
    return sum(F.sum(F.exp(F.mul(p, float(i + 1) / 4))) for i, p in enumerate(parts))


def wanted(*positions):
    grad = np.zeros_like(VALUES, np.float64)
    for i, (a, b) in enumerate(positions):
        scale = (i + 1) / 4
        grad[:, a:b] += scale * np.exp(VALUES[:, a:b].astype(np.float64) * scale)
    return grad


CASES = {
    "two halves": [(0, 6), (6, 12)],
    "three equal parts": [(0, 4), (4, 8), (8, 12)],
    "backwards": [(8, 12), (4, 8), (0, 4)],
    "unequal parts": [(0, 5), (5, 7), (7, 12)],
    "six parts": [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 12)],
    "one part twice": [(0, 6), (0, 6), (6, 12)],
    "a gap": [(0, 3), (5, 12)],
    "an overlap": [(0, 7), (5, 12)],
    "an inner part": [(2, 5), (5, 9)],
}


@pytest.mark.parametrize("positions", CASES.values(), ids=CASES)
def test_gradient_of_parts(positions):
    x = nova.tensor(VALUES, name="x", requires_grad=True)
    (grad,) = gradients(cut(x, *positions), [x])
    program = nova.compile(grad, inputs=[x])
    result = program.run([VALUES])
    np.testing.assert_allclose(result, wanted(*positions), rtol=1e-5)
    np.testing.assert_allclose(evaluate([grad])[0], result, rtol=1e-5)


@pytest.mark.parametrize("name", ["two halves", "three equal parts", "backwards", "unequal parts"])
def test_parts_that_cover_the_value_are_joined_once(name):
    x = nova.tensor(VALUES, name="x", requires_grad=True)
    (grad,) = gradients(cut(x, *CASES[name]), [x])
    assert grad.op.name == "join" and len(grad.inputs) == len(CASES[name])
    assert "pad(" not in str(nova.compile(grad, inputs=[x]).plan)


def test_an_inner_part_is_padded_once():
    x = nova.tensor(VALUES, name="x", requires_grad=True)
    (grad,) = gradients(cut(x, *CASES["an inner part"]), [x])
    assert grad.op.name == "pad" and grad.inputs[0].op.name == "join"


def test_one_part_twice_is_added_before_it_is_padded():
    x = nova.tensor(VALUES, name="x", requires_grad=True)
    (grad,) = gradients(cut(x, (0, 6), (0, 6)), [x])
    assert grad.op.name == "pad" and grad.inputs[0].op.name == "add"


@pytest.mark.parametrize("first", [True, False], ids=["rows first", "rows last"])
@pytest.mark.parametrize(("op", "name"), [(F.take, "index_add"), (F.gather, "scatter_add")])
def test_selected_rows_are_added_to_the_other_gradient(op, name, first):
    """The weight of an embedding and of the scores: no zeros, one sum."""
    x = nova.tensor(VALUES[0], name="x", requires_grad=True)
    index = np.array([3, 0, 3, 11])
    if op is F.gather:
        index = np.stack([index, index[::-1]], 1)
    selected = F.sum(F.exp(op(x, nova.tensor(index), axis=0)))
    rest = F.sum(F.sin(x))
    (grad,) = gradients(selected + rest if first else rest + selected, [x])
    assert grad.op.name == name and grad.inputs[0].op.name != "full"
    expected = np.cos(VALUES[0].astype(np.float64))
    places = (index, np.arange(2)) if op is F.gather else (index,)
    np.add.at(expected, places, np.exp(VALUES[0].astype(np.float64)[places]))
    result = nova.compile(grad, inputs=[x]).run([VALUES[0]])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_corners_are_not_joined():
    x = nova.tensor(VALUES, name="x", requires_grad=True)
    loss = F.sum(F.exp(x[:1, :6])) + F.sum(F.exp(x[1:, 6:]))
    (grad,) = gradients(loss, [x])
    assert grad.op.name == "add"
    expected = np.zeros_like(VALUES)
    expected[:1, :6], expected[1:, 6:] = np.exp(VALUES[:1, :6]), np.exp(VALUES[1:, 6:])
    np.testing.assert_allclose(nova.compile(grad, inputs=[x]).run([VALUES]), expected, rtol=1e-5)


def test_checked_programs_keep_every_contribution():
    with nova.knobs.override(check="1"):
        x = nova.tensor(VALUES, name="x", requires_grad=True)
        (grad,) = gradients(cut(x, *CASES["two halves"]), [x])
    assert grad.op.name == "add"
