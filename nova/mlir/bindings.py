"""The MLIR bindings: the only file of Nova that imports the MLIR wheel.

Everything that touches MLIR imports names from here, so that a change of wheel is a change of one
file, and `import nova` stays free of MLIR until something is compiled.
"""

import sys
from types import ModuleType

from torch_mlir import ir, passmanager, rewrite
from torch_mlir._mlir_libs import _stablehlo as stablehlo
from torch_mlir.dialects import (
    arith,
    bufferization,
    builtin,
    ext,
    func,
    linalg,
    llvm,
    math,
    memref,
    scf,
    tensor,
    vector,
)

# At every op the bindings try to import a Python module of its dialect, until there is one. Nova's
# op classes register themselves, and an empty module ends the search.
sys.modules.setdefault("torch_mlir.dialects.nova", ModuleType("torch_mlir.dialects.nova"))

# Its passes are known to every pass manager from here on; a dialect is registered per context.
stablehlo.register_stablehlo_passes()

__all__ = [
    "arith",
    "bufferization",
    "builtin",
    "ext",
    "func",
    "ir",
    "linalg",
    "llvm",
    "math",
    "memref",
    "passmanager",
    "rewrite",
    "scf",
    "stablehlo",
    "tensor",
    "vector",
]
