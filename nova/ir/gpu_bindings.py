"""The MLIR bindings of the device dialects; only a compile for a device loads them."""

from torch_mlir.dialects import gpu, llvm, nvvm

__all__ = ["gpu", "llvm", "nvvm"]
