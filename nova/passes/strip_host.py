"""`strip-host`: leaves only the kernels, for code generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nova.mlir.bindings import ir
from nova.passes.base import Pass


@dataclass(frozen=True)
class StripHost(Pass):
    """Erase `main` and the constants.

    By this point the host side has become the launch table and the constant section of the
    artifact (`nova/codegen/tables.py`); kernels reach constants through their arguments.
    """

    name: ClassVar[str] = "strip-host"

    def run(self, module: ir.Module) -> None:
        for op in list(module.body.operations):
            op = op.operation
            if op.name == "memref.global" or (
                op.name == "func.func" and "nova.kernel" not in op.attributes
            ):
                op.erase()
