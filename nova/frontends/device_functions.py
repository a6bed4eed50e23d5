"""Hand-written device functions: the allowed ops, and the arguments that they write.

In: a module whose launches are outlined. Out: an error at the line of the first op without device
code in Nova, functions with unique names, and the arguments that a launch writes. Called by
`nova.frontends.launches`.
"""

from __future__ import annotations

from typing import Any

from nova.errors import UnsupportedOpError
from nova.frontends.checks import place
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS
from nova.ir.walk import every_op, find_ops

# Dialects that are lowered to NVVM as a whole, and the supported ops of others.
_DIALECTS = ("arith", "index", "llvm", "math", "nvvm", "scf", "vector")
_OPS = VIEWS | {
    "affine.apply",
    "affine.for",
    "affine.if",
    "affine.load",
    "affine.store",
    "affine.yield",
    "cf.br",
    "cf.cond_br",
    "gpu.barrier",
    "gpu.block_dim",
    "gpu.block_id",
    "gpu.dynamic_shared_memory",
    "gpu.func",
    "gpu.global_id",
    "gpu.grid_dim",
    "gpu.lane_id",
    "gpu.module",
    "gpu.return",
    "gpu.shuffle",
    "gpu.subgroup_id",
    "gpu.thread_id",
    "memref.alloca",
    "memref.atomic_rmw",
    "memref.dim",
    "memref.load",
    "memref.store",
    "memref.subview",
    "memref.view",
    "ub.poison",
}
_READS = ("memref.load", "vector.load", "affine.load", "memref.dim", "vector.transfer_read")
_SAME_MEMORY = VIEWS | {"memref.subview", "memref.view"}


def check_device_functions(module: ir.Module, filename: str) -> None:
    """Refuse ops that cannot be lowered to instructions."""
    for part in find_ops(module, "gpu.module"):
        for op in every_op(part, outer_first=True):
            if op.name not in _OPS and op.name.partition(".")[0] not in _DIALECTS:
                raise UnsupportedOpError(
                    f"{op.name} has no device code in Nova",
                    where=place(op, filename),
                    hint="kernels hold arith, math, scf, vector, loads and stores, nvvm and "
                    "barriers and shuffles of gpu",
                )


def make_unique(module: ir.Module) -> None:
    """Give every device function a unique name: one PTX text holds them all."""
    renamed: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for part in find_ops(module, "gpu.module"):
        outer = part.attributes["sym_name"].value
        for function in find_ops(part, "gpu.func"):
            old = function.attributes["sym_name"].value
            name = old if old not in taken else f"{outer}_{old}"
            while name in taken:
                name += "_"
            taken.add(name)
            renamed[outer, old] = name
            function.attributes["sym_name"] = ir.StringAttr.get(name)
    for launch in find_ops(module, "gpu.launch_func"):
        outer, old = launch.attributes["kernel"].value
        if (outer, old) in renamed:  # else the verifier reports a missing function
            symbols = [outer, renamed[outer, old]]
            launch.attributes["kernel"] = ir.SymbolRefAttr.get(symbols)


def written_arguments(module: ir.Module, symbols: tuple[str, str]) -> list[int]:
    """The indices of the operands that launches of a function may write."""
    outer, name = symbols
    for part in find_ops(module, "gpu.module"):
        if part.attributes["sym_name"].value != outer:
            continue
        for function in find_ops(part, "gpu.func"):
            if function.attributes["sym_name"].value == name:
                given = ir.FunctionType(function.attributes["function_type"].value).inputs
                arguments = list(function.regions[0].blocks[0].arguments)[: len(given)]
                return [i for i, value in enumerate(arguments) if _is_written(value)]
    raise AssertionError(f"the verifier knows no @{outer}::@{name}")


def _is_written(value: Any) -> bool:
    """Whether a buffer has a use other than a read, through any of its views."""
    if not isinstance(value.type, ir.MemRefType):
        return False
    for use in value.uses:
        op = use.owner.operation
        if op.name in _READS:
            continue
        if op.name in _SAME_MEMORY:
            if any(_is_written(result) for result in op.results):
                return True
            continue
        return True
    return False
