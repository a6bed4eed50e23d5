"""Element types of torch as those of Nova."""

from __future__ import annotations

from functools import cache

import torch

from nova.core.dtypes import (
    DType,
    bf16,
    bool_,
    complex64,
    complex128,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from nova.errors import DTypeError

_DTYPES: dict[torch.dtype, DType] = {
    torch.float64: f64,
    torch.float32: f32,
    torch.float16: f16,
    torch.bfloat16: bf16,
    torch.float8_e4m3fn: f8e4m3,
    torch.float8_e5m2: f8e5m2,
    torch.int64: i64,
    torch.int32: i32,
    torch.int16: i16,
    torch.int8: i8,
    torch.uint64: u64,
    torch.uint32: u32,
    torch.uint16: u16,
    torch.uint8: u8,
    torch.bool: bool_,
    torch.complex64: complex64,
    torch.complex128: complex128,
}


def nova_dtype(dtype: torch.dtype) -> DType:
    """The dtype of Nova's ops for tensors of torch; DTypeError if there is none."""
    try:
        return _DTYPES[dtype]
    except KeyError:
        names = ", ".join(str(d).removeprefix("torch.") for d in _DTYPES)
        raise DTypeError(
            f"{dtype} is not an element type of Nova's ops", hint=f"the types are {names}"
        ) from None


@cache
def saturates(dtype: DType) -> bool:
    """Whether this version of torch limits numbers to the range of an 8-bit float in a cast."""
    narrow = next(theirs for theirs, ours in _DTYPES.items() if ours is dtype)
    return bool(torch.tensor(1e9).to(narrow).to(torch.float32).isfinite())
