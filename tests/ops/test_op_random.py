"""Random rows: the published generator, the same bits for a seed on every target and layout."""

from __future__ import annotations

import numpy as np
import pytest
from op_philox import philox, uniforms
from processors import runnable

import nova
from nova.core.dtypes import f32, i64
from nova.graph.tensor import placeholder
from nova.ops.randomness import philox_numpy

# Counter, key and result from the reference implementation's known answers.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize("counter, key, wanted", KNOWN)
def test_known_answers(counter: list[int], key: list[int], wanted: list[int]) -> None:
    assert philox(counter, key) == wanted
    words = philox_numpy([np.uint64(c) for c in counter], [np.uint64(k) for k in key])
    assert [int(w) for w in words] == wanted


def draw(seed: int, target: str = "cpu", shape: tuple[int, ...] = (7, 333)) -> list[np.ndarray]:
    key, x = placeholder((), i64), placeholder(shape, f32)
    outputs = [
        nova.uniform(key, shape=shape),
        nova.uniform(key, shape=shape, stream=3),
        nova.dropout(x, key, p=0.3),
    ]
    program = nova.compile(outputs, inputs=[key, x], target=target)
    return list(program.run([np.asarray(seed), np.ones(shape, np.float32)]))


@pytest.mark.parametrize("seed", [0, 1, -1, 2**40 + 17])
def test_same_seed_same_bits_everywhere(seed: int) -> None:
    local, again = draw(seed), draw(seed)
    for target in runnable("x86_64-v3", "x86_64", "aarch64"):
        present = draw(seed, target)
        for a, b, c in zip(local, again, present, strict=True):
            assert a.tobytes() == b.tobytes() == c.tobytes()
    assert np.array_equal(local[0], uniforms(seed, local[0].shape, 0))
    assert np.array_equal(local[2] == 0, local[0] < np.float32(0.3))


def test_seeds_and_streams_differ() -> None:
    single, two = draw(1), draw(2)
    assert not np.array_equal(single[0], two[0])
    assert not np.array_equal(single[0], single[1])
    assert not np.array_equal(single[2], two[2])


def test_dropout_of_arrays() -> None:
    x = np.arange(1, 7, dtype="f4").reshape(2, 3)
    is_dropped = uniforms(0, x.shape, 0) < 0.5
    for operand in (x, x.astype("i4"), x.tolist(), nova.tensor(x)):
        actual = nova.dropout(operand, 0, p=0.5).numpy()
        np.testing.assert_array_equal(actual, np.where(is_dropped, 0, x * 2))
        np.testing.assert_array_equal(nova.dropout(operand, 0, training=False).numpy(), x)


def test_shape_does_not_change_the_sequence() -> None:
    assert np.array_equal(draw(5)[0].reshape(-1), draw(5, shape=(333, 7))[0].reshape(-1))


def test_distribution() -> None:
    key = placeholder((), i64)
    outputs = [nova.uniform(key, shape=(100_000,)), nova.normal(key, shape=(100_000,))]
    u, z = nova.compile(outputs, inputs=[key]).run([np.asarray(3)])
    assert u.min() >= 0 and u.max() < 1
    counts = np.histogram(u, 16, (0, 1))[0]
    # Chi squared with 15 degrees of freedom exceeds 45 once in ten thousand times.
    assert ((counts - 6250) ** 2 / 6250).sum() < 45
    assert np.isfinite(z).all() and abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02


def test_gradient_of_dropout_uses_the_same_mask() -> None:
    key, x = placeholder((), i64), placeholder((333,), f32)
    out = nova.dropout(x, key, p=0.4)
    grad = nova.grad(lambda t: nova.sum(nova.dropout(t, key, p=0.4)))(x)
    program = nova.compile([out, grad], inputs=[key, x])
    value, slope = program.run([np.asarray(9), np.ones(333, np.float32)])
    assert np.array_equal(value, slope)
