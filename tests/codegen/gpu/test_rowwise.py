"""Rows and columns on a device: what is kept in registers, shared, guarded and stored."""

from __future__ import annotations

import re

import numpy as np
import pytest
from device_runs import DeviceProgram, check, compile_function

import nova

_RANDOM = np.random.default_rng(0)


def _array(*shape: int, dtype: str = "f4") -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _launches(program: DeviceProgram) -> list[tuple[int, int]]:
    return [(k.device.grid[0], k.device.block[0]) for k in program.kernels]


def _count(program: DeviceProgram, instruction: str) -> int:
    return len(re.findall(rf"\b{re.escape(instruction)}\b", program.ptx))


@pytest.mark.parametrize(
    ("shape", "launch"),
    [
        ((64, 256), (64, 64)),  # a vector for each of two warps
        ((33, 1000), (33, 256)),  # threads without elements
        ((50, 3, 257), (150, 512)),  # rows that are not aligned
        ((9, 4096), (9, 1024)),
        ((3, 8192), (3, 1024)),  # two vectors a thread
        ((129, 64), (65, 32)),  # two rows per warp, and half a warp too much
        ((1001, 40), (501, 32)),
    ],
)
def test_softmax_is_one_launch_that_reads_and_writes_once(shape, launch):
    program = check(nova.softmax, _array(*shape))
    assert _launches(program) == [launch]
    vectors = -(-shape[-1] // (launch[1] if shape[-1] % 4 else 4 * launch[1]))
    loads = "ld.global.b32" if shape[-1] % 4 else "ld.global.v4.b32"
    assert _count(program, loads) == max(1, vectors) and "st.local" not in program.ptx


def test_norms_store_only_what_they_return():
    for norm in (
        lambda x, w, b: nova.layer_norm(x, w, b),
        lambda x, w, b: nova.rms_norm(x, w) + b,
    ):
        program = check(norm, _array(7, 11, 768), _array(768), _array(768))
        assert len(program.kernels) == 1
        assert len(re.findall(r"st\.global", program.ptx)) == 1


def test_gradients_of_rows():
    def step(x, w, b, y):
        for tensor in (x, w, b):
            tensor.requires_grad = True
        loss = nova.sum(nova.log_softmax(nova.layer_norm(x, w, b)) * y)
        nova.backward(loss)
        return [loss, x.grad, w.grad, b.grad]

    check(step, _array(130, 200), _array(200), _array(200), _array(130, 200), tolerance=1e-4)


def test_numbers_of_rows_are_stored_once():
    program = check(
        lambda x: [nova.max(x, axis=-1), x - nova.max(x, axis=-1, keepdims=True)], _array(150, 333)
    )
    assert len(program.kernels) == 1


def test_other_types():
    check(nova.softmax, _array(64, 130, dtype="f8"), tolerance=1e-12)
    check(lambda x: nova.sum(x, axis=-1), _RANDOM.integers(-9, 9, (70, 333)))
    check(lambda x: nova.any(x > 2.5, axis=-1), _array(70, 333))
    half = _array(64, 512).astype("f2")
    check(lambda x: nova.softmax(x), half, tolerance=2e-3)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [((512, 256), 32), ((500, 300), 20), ((4097, 33), 16), ((8, 512, 40), 40), ((64, 8, 40), 8)],
)
def test_columns_are_read_in_rows(shape, blocks):
    program = check(
        lambda x: nova.sum(nova.exp(x), axis=tuple(range(len(shape) - 1))), _array(*shape)
    )
    # With few columns, blocks have few of them; with many rows, the blocks of a cluster share them.
    assert _launches(program)[0][0] == blocks
    assert len(program.kernels) == 1


def test_columns_in_the_middle():
    check(lambda x: nova.softmax(x, axis=1), _array(3, 200, 70))


def test_what_follows_a_column():
    def update(x, p):
        return [p - 0.1 * nova.max(x, axis=(0, 1)), nova.mean(x, axis=(0, 1))]

    check(update, _array(16, 100, 33), _array(33))


def test_quotients_with_one_divisor_are_off_by_one_place_at_most():
    """A thread divides its elements of a row by one number with a single division."""
    x = (_array(64, 256) * 10.0 ** _RANDOM.integers(-18, 18, (64, 256))).astype("f4")
    divisors = (_array(64, 1) * 10.0 ** _RANDOM.integers(-12, 12, (64, 1))).astype("f4")
    divisors[:6, 0] = (np.inf, -np.inf, 0.0, -0.0, np.nan, 1e38)
    x[:, :6] = (np.inf, -np.inf, 0.0, -0.0, np.nan, 1e-38)

    def divide(x, d):
        return [x / d, nova.sum(x / d, axis=-1)]

    program, _ = compile_function(divide, [x, divisors])
    inputs, _ = program.run([x.copy(), divisors.copy()])
    with np.errstate(all="ignore"):
        right = x / divisors
    normal = np.isnan(right) | (np.abs(right) >= 2.0**-125) | (right == 0)
    np.testing.assert_allclose(inputs[normal], right[normal], rtol=2.0**-23, atol=0)
    identical = (inputs == right) | np.isnan(right)
    assert identical[normal].mean() > 0.999
    np.testing.assert_array_equal(np.signbit(inputs[right == 0]), np.signbit(right[right == 0]))
    assert _count(program, "div.rn.f32") == 0 and _count(program, "rcp.rn.f32") == 1
