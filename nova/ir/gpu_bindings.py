"""The MLIR bindings of the device dialects, which only a compile for a device loads."""

from torch_mlir.dialects import gpu, llvm, nvvm

__all__ = ["gpu", "llvm", "nvvm"]
