"""The MLIR bindings: the only file of Nova that imports the MLIR wheel.

All code that uses MLIR imports names from here, so a change of wheel changes one file, and `import
nova` does not load MLIR until something is compiled.
"""

import sys
from types import ModuleType

from nova.core.gc_pause import paused_gc
from nova.core.packages import compiler_missing

try:
    # The import creates so many classes that garbage collection would take a seventh of the time.
    with paused_gc():
        from torch_mlir import ir, passmanager, rewrite
        from torch_mlir._mlir_libs import _mlir
        from torch_mlir._mlir_libs import _mlirDialectsLLVM as llvm
        from torch_mlir._mlir_libs import _stablehlo as stablehlo
        from torch_mlir._mlir_libs._mlirDialectsIRDL import load_dialects as load_irdl
        from torch_mlir._mlir_libs._mlirDialectsLinalg import fill_builtin_region
        from torch_mlir.dialects import (
            arith,
            bufferization,
            builtin,
            func,
            math,
            memref,
            scf,
            tensor,
            vector,
        )
except (ImportError, OSError) as error:
    raise compiler_missing(error) from error

# For every op the bindings try to import a Python module of its dialect until one exists; an empty
# module ends the search. The ops of the first three have no classes. The modules of the other two
# dialects take 100 ms to load, and Nova needs little of them (`nova/ir/linalg/ops.py`); an import
# by name still gets them.
_mlir.globals.dialect_search_modules = [__name__, *_mlir.globals.dialect_search_modules]
for _dialect in ("nova", "stablehlo", "chlo", "linalg", "llvm"):
    sys.modules[f"{__name__}.{_dialect}"] = ModuleType(f"{__name__}.{_dialect}")

# Registers the passes for every pass manager; a dialect is registered per context.
stablehlo.register_stablehlo_passes()

__all__ = [
    "arith",
    "bufferization",
    "builtin",
    "fill_builtin_region",
    "func",
    "ir",
    "llvm",
    "load_irdl",
    "math",
    "memref",
    "passmanager",
    "rewrite",
    "scf",
    "stablehlo",
    "tensor",
    "vector",
]
