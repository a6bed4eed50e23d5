"""Element types of torch as those of Nova."""

from __future__ import annotations

import torch

from nova.core.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from nova.errors import DTypeError

_DTYPES: dict[torch.dtype, DType] = {
    torch.float64: f64,
    torch.float32: f32,
    torch.float16: f16,
    torch.bfloat16: bf16,
    torch.int64: i64,
    torch.int32: i32,
    torch.int8: i8,
    torch.uint8: u8,
    torch.bool: bool_,
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
