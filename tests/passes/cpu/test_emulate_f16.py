"""f16 conversions without the instruction: every half, and every rounding boundary between."""

import numpy as np
import pytest

import nova


@pytest.fixture(scope="module")
def convert():
    half = nova.tensor(np.zeros(65536, np.float16))
    single = nova.tensor(np.zeros(65536 * 8, np.float32))
    return nova.compile(
        [half.cast(nova.f32), single.cast(nova.f16)], inputs=[half, single], target="x86_64"
    )


def test_every_half_and_the_floats_around_it(convert):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    exact = halves.astype(np.float32).view(np.uint32)
    # Around each half: the value, its neighbours, and the ties between it and the next half.
    offsets = np.array([0, 1, -1, 0xFFF, 0x1000, 0x1001, 0x800, 0x1800], np.int64)
    floats = (exact[:, None].astype(np.int64) + offsets).astype(np.uint32).view(np.float32).ravel()
    wide, narrow = convert.run([halves, floats])
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    assert (np.signbit(wide) == np.signbit(halves)).all()
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    identical = (narrow.view(np.uint16) == expected.view(np.uint16)) | (
        np.isnan(narrow) & np.isnan(expected)
    )
    assert identical.all(), floats[~identical][:5]


def test_small_floats_round_to_subnormal_halves(convert):
    rng = np.random.default_rng(0)
    floats = (rng.uniform(-1, 1, 65536 * 8) * 2.0**-13).astype(np.float32)
    floats[:4] = [2.0**-25, np.nextafter(np.float32(2.0**-25), np.float32(1)), 3 * 2.0**-26, -0.0]
    _, narrow = convert.run([np.zeros(65536, np.float16), floats])
    np.testing.assert_array_equal(narrow.view(np.uint16), floats.astype(np.float16).view(np.uint16))
