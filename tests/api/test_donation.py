"""Updated params: changed in place, all or nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nova
from nova.errors import (
    ArgumentDTypeError,
    ArgumentShapeError,
    DonationError,
    DTypeError,
    GraphError,
    OutputError,
    ShapeError,
)

W0 = np.arange(6, dtype="f4").reshape(2, 3)
B0 = np.array([10, 20, 30], "f4")
X0 = np.array([[1, 2], [3, 4]], "f4")


@pytest.fixture(scope="module")
def step():
    """Returns the loss; W and b move against their gradients, c does not change."""
    x = nova.tensor(X0, name="x")
    w = nova.tensor(W0, requires_grad=True, name="W")
    b = nova.tensor(B0, requires_grad=True, name="b")
    c = nova.tensor(B0, name="c")
    loss = nova.square(x @ w + b - c).sum()
    nova.backward(loss)
    return nova.compile(
        loss,
        inputs=[x],
        params=[w, b, c],
        updates={w: w - 0.5 * w.grad, b: b - 0.5 * b.grad},
    )


def expected(w, b, c):
    error = X0 @ w + b - c
    return (error**2).sum(), w - X0.T @ error, b - error.sum(0)


def test_arrays_are_changed_in_place(step):
    w, b, c = W0.copy(), B0.copy(), np.zeros(3, "f4")
    for _ in range(3):
        loss, new_w, new_b = expected(w, b, c)
        result = step.run([X0], [w, b, c])
        np.testing.assert_allclose(result, loss, rtol=1e-5)
        np.testing.assert_allclose(w, new_w, rtol=1e-5)
        np.testing.assert_allclose(b, new_b, rtol=1e-5)
        assert not c.any()


def test_torch_parameters_share_their_memory(step):
    model = [torch.tensor(W0), torch.nn.Parameter(torch.tensor(B0)), torch.zeros(3)]
    _, new_w, new_b = expected(W0, B0, np.zeros(3, "f4"))
    step.run([torch.tensor(X0)], model)
    np.testing.assert_allclose(model[0].numpy(), new_w, rtol=1e-5)
    np.testing.assert_allclose(model[1].detach().numpy(), new_b, rtol=1e-5)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    result = np.zeros(array.nbytes + 1, np.uint8)[1:].view("f4").reshape(array.shape)
    result[...] = array
    return result


@pytest.mark.parametrize(
    ("position", "make", "error", "message"),
    [
        (0, read_only, DonationError, "'W' is updated in place but read-only"),
        (1, read_only, DonationError, "'b' is updated in place but read-only"),
        (0, lambda a: a.T.copy().T, DonationError, "'W'.*not contiguous"),
        (1, lambda a: np.repeat(a, 2)[::2], DonationError, "'b'.*not contiguous"),
        (1, unaligned, DonationError, "'b'.*not contiguous"),
        (1, lambda a: torch.from_numpy(np.repeat(a, 2))[::2], DonationError, "not contiguous"),
        (1, lambda a: a.astype(">f4"), ArgumentDTypeError, ">f4"),
        (1, lambda a: a.astype("f8"), ArgumentDTypeError, "float64"),
        (2, lambda a: a[:2], ArgumentShapeError, r"\(2,\)"),
    ],
)
def test_what_cannot_be_updated_changes_nothing(step, position, make, error, message):
    params = [W0.copy(), B0.copy(), np.zeros(3, "f4")]
    params[position] = make(params[position])
    before = [np.asarray(p).copy() for p in params]
    with pytest.raises(error, match=message) as caught:
        step.run([X0], params)
    assert __file__ in caught.value.where
    for array, old in zip(params, before, strict=True):
        np.testing.assert_array_equal(np.asarray(array), old)


def test_overlapping_params_are_refused(step):
    pool = np.zeros(16, "f4")
    w, b, c = pool[:6].reshape(2, 3), pool[5:8], pool[8:11]
    x = pool[12:].reshape(2, 2)
    pool[...] = np.arange(16)
    before = pool.copy()
    for params in ([w, b, c], [w.copy(), b, b], [w, pool[6:9], pool[3:6]]):
        with pytest.raises(DonationError, match="shares memory with another argument"):
            step.run([x], params)
    with pytest.raises(DonationError, match="'W' is updated in place and shares memory"):
        step.run([pool[2:6].reshape(2, 2)], [w, pool[6:9], c])
    with pytest.raises(DonationError, match="shares memory"):
        step.run([x], [w, torch.from_numpy(pool)[6:9], torch.from_numpy(pool)[7:10]])
    np.testing.assert_array_equal(pool, before)
    # Next to each other is not over each other; what is only read may be shared.
    step.run([x], [w, pool[6:9], pool[9:12]])
    assert (pool[:6] != before[:6]).any()


def test_out_over_a_param_is_refused(step):
    params = [W0.copy(), B0.copy(), np.zeros(3, "f4")]
    with pytest.raises(OutputError, match="shares memory"):
        step.run([X0], params, out=params[1][:1].reshape(()))
    np.testing.assert_array_equal(params[1], B0)


def test_updates_see_old_values():
    """A swap, a chain, a copy, an update with itself; results are the values before the run."""
    p, q, r, s = (nova.tensor(np.zeros(4, "f4"), name=n) for n in "pqrs")
    program = nova.compile(
        [p, r * 2, q + 1],
        params=[p, q, r, s],
        updates={p: q, q: p, r: r + p, s: s},
    )
    arrays = [np.full(4, v, "f4") for v in (1, 2, 3, 4)]
    results = program(*arrays)
    assert [a[0] for a in results] == [1, 6, 3]
    assert [a[0] for a in arrays] == [2, 1, 4, 4]
    program(*arrays)
    assert [a[0] for a in arrays] == [1, 2, 6, 4]


def test_updates_with_one_value_and_a_returned_one():
    p, q, x = (nova.tensor(np.zeros(4, "f4"), name=n) for n in "pqx")
    value = p * 10 + x
    program = nova.compile(
        [value, value + p], inputs=[x], params=[p, q], updates={p: value, q: value}
    )
    single, two = np.ones(4, "f4"), np.full(4, 2, "f4")
    new, mixed = program(np.full(4, 5, "f4"), single, two)
    assert new[0] == 15 and mixed[0] == 16 and single[0] == 15 and two[0] == 15
    assert not np.shares_memory(new, single)


def test_an_update_that_reads_other_elements():
    """The new value needs elements that were overwritten already, if it were done in place."""
    w = nova.tensor(np.zeros((5, 5), "f4"), name="w")
    v = nova.tensor(np.zeros((5, 5), "f4"), name="v")
    program = nova.compile(w.sum(), params=[w, v], updates={w: w.T + 1, v: v @ w})
    a, b = np.arange(25, dtype="f4").reshape(5, 5), np.eye(5, dtype="f4")
    old = a.copy()
    assert program(a, b) == old.sum()
    np.testing.assert_array_equal(a, old.T + 1)
    np.testing.assert_array_equal(b, old)


def test_bad_updates():
    w, x = nova.tensor(W0, name="w"), nova.tensor(W0, name="x")
    cases = [
        ({x: x + 1}, GraphError, "not among the params"),
        ({w: w.sum(axis=0)}, ShapeError, r"f32\[2,3\] with f32\[3\]"),
        ({w: w.cast("f64")}, DTypeError, "f64"),
        ({w: W0}, GraphError, "ndarray, not a Tensor"),
    ]
    for updates, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            nova.compile([], inputs=[x], params=[w], updates=updates)
        assert __file__ in caught.value.where
