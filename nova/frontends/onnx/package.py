"""The optional package `onnx`, imported on first use: the only module of Nova that imports it."""

from __future__ import annotations

from functools import cache
from typing import Any

from nova.errors import MissingPackageError


@cache
def onnx_package() -> Any:
    """The module `onnx` with its helpers; MissingPackageError if it is not installed."""
    try:
        import onnx
        import onnx.defs
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise MissingPackageError(
            f"ONNX models need the package onnx, which cannot be imported: {error}",
            hint="pip install -e '.[onnx]' in the clone of Nova",
        ) from None
    return onnx
