"""`hoist-regions`: the modules of regions dissolve into the module that contains them."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import REGION
from nova.ir.bindings import ir
from nova.ir.control_flow.functions import host_functions, name_of, region_modules
from nova.ir.kernel import is_kernel
from nova.ir.walk import find_ops, functions, main_function
from nova.passes.base import Pass


@record
class HoistRegions(Pass):
    """Move the functions and constants of the modules of regions into the module.

    The `main` of a region becomes a private function with the name of its module and the attribute
    `nova.region`; its kernels and constants get that name as a prefix. From here on the kernels of
    all regions are those of one module.
    """

    name: ClassVar[str] = "hoist-regions"
    reads_regions: ClassVar[bool] = True

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        for region in region_modules(module):
            _hoist(region, main)


def _prefixed(name: str, ops: list[Any]) -> dict[str, str]:
    """The new names of ops; those of regions inside have the prefix already."""
    old = [name_of(op) for op in ops]
    return {n: n if n.startswith(f"{name}_") else f"{name}_{n}" for n in old}


def _hoist(region: Any, main: Any) -> None:
    name = name_of(region)
    renamed = _prefixed(name, [f for f in functions(region) if is_kernel(f)])
    globals_ = [op for op in region.body.operations if op.operation.name == "memref.global"]
    constants = _prefixed(name, globals_)
    for function in host_functions(region):
        for op in function.entry_block.operations:
            op = op.operation
            if op.name == "func.call" and op.attributes["callee"].value in renamed:
                callee = renamed[op.attributes["callee"].value]
                op.attributes["callee"] = ir.FlatSymbolRefAttr.get(callee)
    for op in find_ops(region, "memref.get_global"):
        op.attributes["name"] = ir.FlatSymbolRefAttr.get(constants[op.attributes["name"].value])
    body = main_function(region)
    REGION.set(body)
    body.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for op in list(region.body.operations):
        op = op.operation
        old = name_of(op)
        new = name if op == body.operation else {**renamed, **constants}.get(old, old)
        op.attributes["sym_name"] = ir.StringAttr.get(new)
        op.move_before(main.operation)
    region.operation.erase()
