"""The last, partial vector of a loop writes its own elements and nothing after them."""

from __future__ import annotations

import numpy as np
import pytest

import nova

_GUARD = 64


@pytest.mark.parametrize("source", ["f8", "f4", "i8"])
@pytest.mark.parametrize("target", ["i32", "i16", "u8", "f16"])
def test_a_conversion_stays_inside_of_its_result(source: str, target: str) -> None:
    for size in (9, 17):  # one element after whole vectors of 8 or 16 lanes
        x = np.linspace(1, 100, size).astype(source)
        X = nova.tensor(x, name="x")
        out = nova.cast(X + X, dtype=target)
        memory = np.full(size + 2 * _GUARD, 77).astype(out.dtype.numpy)
        result = memory[_GUARD : _GUARD + size]
        nova.compile(out, inputs=[X]).run([x], out=result)
        expected = (x + x).astype("i8").astype(out.dtype.numpy) if target[0] in "iu" else None
        if expected is None:
            expected = (x + x).astype(out.dtype.numpy)
        np.testing.assert_array_equal(result, expected)
        guards = np.concatenate([memory[:_GUARD], memory[_GUARD + size :]])
        assert (guards == np.asarray(77).astype(out.dtype.numpy)).all()
