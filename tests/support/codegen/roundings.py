"""Floats around every boundary of a 16-bit type, and what each rounds to.

The results follow from how the floats are made, so that nothing that converts has to be trusted.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

SHORT = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def boundaries(name: str, wide: Any) -> tuple[NDArray[Any], NDArray[np.uint16]]:
    """Values of type `wide`, and the bits of the 16-bit float nearest to each, ties to even.

    Every finite value of the type, and the middle between each two neighbours with the values of
    `wide` next to it, in both signs; infinities too.
    """
    short = SHORT[name]
    top = int(np.array(np.inf, short).view(np.uint16))
    codes = np.arange(top, dtype=np.uint16)
    exact = codes.view(short).astype(np.float64)
    # What follows the largest value is not infinity here, but the next power of two.
    after = np.append(exact[1:], exact[-1] + (exact[-1] - exact[-2]))
    middle = (exact + after) / 2  # exact: a f64 has digits to spare
    even = codes + (codes & 1)
    values = [exact.astype(wide), middle.astype(wide)]
    bits = [codes, even]
    fits = values[1].astype(np.float64) == middle  # a f32 lacks what is below its subnormals
    values[1], bits[1] = values[1][fits], even[fits]
    for toward, result in ((0.0, codes), (np.inf, codes + 1)):
        with np.errstate(over="ignore", under="ignore"):
            values.append(np.nextafter(values[1], wide(toward)))
        bits.append(result[fits])
    values.append(np.array([np.inf, np.finfo(wide).max], wide))
    bits.append(np.array([top, top], np.uint16))
    all_values, all_bits = np.concatenate(values), np.concatenate(bits).astype(np.uint16)
    return (
        np.concatenate([all_values, -all_values]),
        np.concatenate([all_bits, all_bits | np.uint16(0x8000)]),
    )
