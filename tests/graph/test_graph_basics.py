"""The graph itself: gradients accumulate, stop where they are told to, and can be drawn."""

import re

import numpy as np
import pytest

import nova
from nova.errors import GradientError
from nova.graph.interpret import evaluate


def value(tensor):
    return evaluate([tensor])[0]


@pytest.fixture
def w():
    return nova.tensor(np.array([1.0, -2.0, 3.0]), requires_grad=True, name="w")


def test_diamonds_and_tied_weights_accumulate(w):
    nova.backward((w * w + w).sum())
    np.testing.assert_array_equal(value(w.grad), 2 * w.data + 1)


def test_backward_adds_to_a_gradient_that_is_there(w):
    nova.backward((2.0 * w).sum())
    nova.backward((3.0 * w).sum())
    np.testing.assert_array_equal(value(w.grad), [5.0, 5.0, 5.0])


def test_detach_and_no_grad_stop_gradients(w):
    with nova.no_grad():
        scale = w * w
    loss = (w * scale + w * w.detach()).sum()
    nova.backward(loss)
    np.testing.assert_array_equal(value(w.grad), w.data**2 + w.data)


def test_gradients_of_gradients(w):
    (first,) = nova.graph.gradients((w**3).sum(), [w])
    (second,) = nova.graph.gradients(first.sum(), [w])
    np.testing.assert_allclose(value(second), 6 * w.data)


def test_what_a_loss_does_not_reach_has_gradient_zero(w):
    second = nova.tensor(np.ones((2, 2)), requires_grad=True)
    (grad,) = nova.graph.gradients(w.sum(), [second])
    np.testing.assert_array_equal(value(grad), np.zeros((2, 2)))


def test_backward_wants_one_number(w):
    with pytest.raises(GradientError, match="start from one number") as caught:
        nova.backward(w * 2.0)
    assert "test_graph_basics.py" in caught.value.where


def test_dot_shows_forward_and_backward(w):
    loss = nova.tanh(w).sum()
    forward = nova.dump_dot(loss)
    assert "dashed" not in forward and "tanh" in forward and "test_graph_basics.py" in forward
    nova.backward(loss)
    both = nova.dump_dot(loss)
    nodes = re.findall(r"^  (n\d+) \[", both, re.MULTILINE)
    edges = re.findall(r"^  (n\d+) -> (n\d+)", both, re.MULTILINE)
    assert len(nodes) == len(set(nodes)) > len(re.findall(r"^  n\d+ \[", forward, re.MULTILINE))
    assert {n for edge in edges for n in edge} <= set(nodes)
    assert "style=dashed" in both and 'label="grad"' in both
