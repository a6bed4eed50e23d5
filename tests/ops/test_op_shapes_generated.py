"""Shapes by hypothesis: broadcasting, reductions, products, indexing and movement against numpy.

Each check has a short run in every test run and a long one under the `slow` marker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_reference import check

import nova
from nova.core.dtypes import f64
from nova.graph.autodiff import gradients
from nova.graph.tensor import placeholder

SHORT, LONG = 25, 200
SIZES = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 33])
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


def generated(examples: int, body: Callable[[st.DataObject], None]) -> Callable[..., None]:
    """`body` as a test over that many examples."""
    quick = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    return quick(given(st.data())(body))


def run(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    inputs = [placeholder(a.shape, a.dtype) for a in arrays]
    return nova.compile(function(*inputs), inputs=inputs).run(list(arrays))


def values(shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return np.asarray(rng.standard_normal(shape))


def broadcast_from(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`."""
    retained = data.draw(st.integers(0, len(shape)))
    items = data.draw(st.lists(st.booleans(), min_size=retained, max_size=retained))
    tail = shape[len(shape) - retained :]
    return tuple(1 if single else n for n, single in zip(tail, items, strict=True))


def check_broadcasting(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    a, b, c = (values(broadcast_from(data, shape)) for _ in range(3))
    check(run(nova.add, a, b), np.asarray(a + b), "add")
    actual = run(lambda x, y, z: nova.where(x > 0, y, z * 2), a, b, c)
    check(actual, np.where(a > 0, b, c * 2), "where")
    inputs = [placeholder(t.shape, f64) for t in (a, b)]
    slope = gradients(nova.sum(inputs[0] * inputs[1]), inputs)
    results = nova.compile(slope, inputs=inputs).run([a, b])
    for private, second, actual in zip((a, b), (b, a), results, strict=True):
        spread = np.broadcast_to(second, np.broadcast_shapes(a.shape, b.shape))
        lead = spread.ndim - private.ndim
        axes = tuple(range(lead)) + tuple(
            lead + i for i, n in enumerate(private.shape) if n == 1 != spread.shape[lead + i]
        )
        check(actual, spread.sum(axes).reshape(private.shape), "gradient", tolerance=(1e-12, 1e-13))


def check_reduction(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axes = data.draw(st.none() | st.sets(st.integers(0, max(len(shape) - 1, 0))).map(tuple))
    if axes is not None and not shape:
        axes = ()
    negative = data.draw(st.booleans())
    given_axes = axes if axes is None or not negative else tuple(a - len(shape) for a in axes)
    keepdims = data.draw(st.booleans())
    x = values(shape)
    for name, peer in (("sum", np.sum), ("prod", np.prod), ("any", np.any), ("max", np.max)):
        folded = range(len(shape)) if axes is None else axes
        if name == "max" and any(shape[a] == 0 for a in folded):
            continue
        computed = getattr(nova, name)
        actual = run(
            lambda t, function=computed: function(t, axis=given_axes, keepdims=keepdims), x
        )
        want = np.asarray(peer(x, axis=axes, keepdims=keepdims))
        check(actual, want, f"{name} of {shape} over {axes}", tolerance=(1e-12, 1e-13))


def check_matmul(data: st.DataObject) -> None:
    m, k, n = (data.draw(st.sampled_from([0, 1, 2, 3, 7, 8, 17, 33])) for _ in range(3))
    batch = data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=2).map(tuple))
    a_vector, b_vector = data.draw(st.booleans()), data.draw(st.booleans())
    a = values((k,) if a_vector else (*broadcast_from(data, batch), m, k))
    b = values((k,) if b_vector else (*broadcast_from(data, batch), k, n))
    close = (1e-12, 1e-13)
    check(run(nova.matmul, a, b), np.asarray(a @ b), f"{a.shape} @ {b.shape}", tolerance=close)
    single = [t.astype(np.float32) for t in (a, b)]
    check(run(nova.matmul, *single), np.asarray(a @ b), "f32", tolerance=(1e-5, 1e-5))


def index_item(data: st.DataObject, n: int) -> Any:
    bound = st.none() | st.integers(-n - 2, n + 2)
    step = st.none() | st.sampled_from([1, 2, 3, -1, -2])
    item = st.builds(slice, bound, bound, step)
    return data.draw(item | st.integers(-n, n - 1) if n else item)


def check_indexing(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    used = data.draw(st.integers(0, len(shape)))
    key: list[Any] = [index_item(data, n) for n in shape[:used]]
    if data.draw(st.booleans()):
        key.insert(data.draw(st.integers(0, len(key))), None)
    if data.draw(st.booleans()):
        key.append(Ellipsis)
    x = values(shape)
    want = np.asarray(x[tuple(key)])
    inputs = [placeholder(shape, f64), placeholder(want.shape, f64)]
    picked = inputs[0][tuple(key)]
    slope = gradients(nova.sum(picked * inputs[1]), inputs[:1])[0]
    weights = values(want.shape)
    actual, grad = nova.compile([picked, slope], inputs=inputs).run([x, weights])
    assert np.array_equal(actual, want), (shape, key)
    spread = np.zeros(shape)
    spread[tuple(key)] = weights
    assert np.array_equal(grad, spread), (shape, key)


def check_movement(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axes = data.draw(st.permutations(range(len(shape))))
    flipped = data.draw(st.sets(st.sampled_from(axes)).map(tuple)) if axes else ()
    permuted = tuple(shape[a] for a in axes)
    target = data.draw(st.permutations(permuted).map(tuple)) if permuted else (1, 1)
    low = data.draw(st.lists(st.integers(0, 3), min_size=len(target), max_size=len(target)))
    x = values(shape)

    def actual(t: Any) -> Any:
        t = nova.flip(nova.permute(t, tuple(axes)), axes=flipped)
        return nova.pad(nova.reshape(t, target), tuple(low), tuple(reversed(low)), value=2)

    moved = np.flip(x.transpose(axes), flipped).reshape(target)
    widths = list(zip(low, reversed(low), strict=True))
    assert np.array_equal(run(actual, x), np.pad(moved, widths, constant_values=2))


def check_joining(data: st.DataObject) -> None:
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for n in data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=7)):
        private = list(shape)
        private[axis] = n
        parts.append(values(tuple(private)))
    actual = run(lambda *t: nova.concat(list(t), axis=axis), *parts)
    assert np.array_equal(actual, np.concatenate(parts, axis))


test_broadcasting = generated(SHORT, check_broadcasting)
test_reduction = generated(SHORT, check_reduction)
test_matmul = generated(SHORT, check_matmul)
test_indexing = generated(SHORT, check_indexing)
test_movement = generated(SHORT, check_movement)
test_joining = generated(SHORT, check_joining)

test_broadcasting_at_length = pytest.mark.slow(generated(LONG, check_broadcasting))
test_reduction_at_length = pytest.mark.slow(generated(LONG, check_reduction))
test_matmul_at_length = pytest.mark.slow(generated(LONG, check_matmul))
test_indexing_at_length = pytest.mark.slow(generated(LONG, check_indexing))
test_movement_at_length = pytest.mark.slow(generated(LONG, check_movement))
test_joining_at_length = pytest.mark.slow(generated(LONG, check_joining))
