"""Huge pages for large results of torch programs.

In: the sizes of a new tensor on the CPU. Out: the tensor, from torch's allocator. `call_source.py`
calls `empty_in_huge_pages` for results of at least `LARGE` bytes. A large result is fresh memory in
most calls, and its page faults take several times as long as the stores: the system is advised to
use huge pages for it.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

empty_on_cpu = torch._C._dynamo.guards._empty_strided_cpu

LARGE = 4 << 20
"""Bytes of a tensor that has at least one whole huge page, wherever it begins."""

_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
"""Of Linux; other systems have none."""


def _find_madvise() -> Any:
    if _ADVICE is None:
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


_madvise = _find_madvise()


def empty_in_huge_pages(
    size: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """An uninitialized tensor, in huge pages where the system has them."""
    tensor: torch.Tensor = empty_on_cpu(size, strides, dtype)
    if _madvise is not None:
        start = tensor.data_ptr()
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + tensor.untyped_storage().nbytes()) // mmap.PAGESIZE * mmap.PAGESIZE
        # Only a hint: small pages work as well.
        _madvise(first, last - first, _ADVICE)
    return tensor
