"""Tensor maps of the simulated GPU: the bytes that `cuTensorMapEncodeTiled` gives, for kernels that
copy boxes of tensors with `cp.async.bulk.tensor`.

The checks are those of the driver; the bytes are opaque, and of the simulator alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from nova import _native
from nova.errors import SimulationError

TENSOR_DTYPES = (
    *("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32"),
    "tf32_ftz",
)
"""The data types of the driver, in the order of their numbers."""
_MAP = struct.Struct("<Q2I5Q4Q5II5BB10x")  # sim_tensor_map of native/src/gpusim/sim.h
_MOST_DIMS = 5


def tensor_map(
    address: int,
    dtype: str,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """The 128 bytes of a map, for a parameter with an alignment of 64.

    Dimensions are innermost first; `strides` are in bytes, from the second dimension on; `swizzle`
    is 0, 32, 64 or 128 bytes. A map that the driver would refuse is a `SimulationError`.
    """
    steps = [1] * len(dims) if element_strides is None else element_strides
    rank = len(dims)
    wrong: str | None = None
    if dtype not in TENSOR_DTYPES:
        wrong = f"the data type {dtype} is not known"
    elif not 1 <= rank <= _MOST_DIMS or len(strides) != rank - 1:
        wrong = f"{rank} dimensions and {len(strides)} strides"
    elif len(box) != rank or len(steps) != rank:
        wrong = f"{rank} dimensions, a box of {len(box)} and {len(steps)} element strides"
    elif not all(1 <= step <= 8 for step in steps):
        wrong = "an element stride is not 1 to 8"
    if wrong is None:
        fields = (
            *(address, TENSOR_DTYPES.index(dtype), rank),
            *_padded(dims, _MOST_DIMS),
            *_padded(strides, _MOST_DIMS - 1),
            *_padded(box, _MOST_DIMS),
            swizzle,
            *_padded(steps, _MOST_DIMS),
            int(fill_nan),
        )
        try:
            packed = _MAP.pack(*fields)
        except struct.error as error:
            wrong = str(error)
        else:
            wrong = _native.sim_check_tensor_map(packed)
            if wrong is None:
                return packed
    raise SimulationError(f"a tensor map that the driver refuses: {wrong}")


def _padded(numbers: Sequence[int], count: int) -> list[int]:
    return [*numbers, *([0] * (count - len(numbers)))]
