"""The MLIR bindings: the only file of Nova that imports the MLIR wheel.

Everything that touches MLIR imports names from here, so that a change of wheel is a change of one
file, and `import nova` stays free of MLIR until something is compiled.
"""

import sys
from types import ModuleType

from nova.core.gc_pause import paused_gc
from nova.core.packages import compiler_missing

try:
    # So many classes come in that collecting would take a seventh of the time.
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

# At every op the bindings try to import a Python module of its dialect, until there is one, and an
# empty module ends the search. Nova's ops have no classes. The modules of the other two dialects
# take 100 ms to load, for little that Nova needs (`nova/ir/linalg_ops.py`); who imports them by
# name
# still gets them.
_mlir.globals.dialect_search_modules = [__name__, *_mlir.globals.dialect_search_modules]
for _dialect in ("nova", "linalg", "llvm"):
    sys.modules[f"{__name__}.{_dialect}"] = ModuleType(f"{__name__}.{_dialect}")

# Its passes are known to every pass manager from here on; a dialect is registered per context.
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
