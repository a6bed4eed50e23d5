"""`pack-constants`: constant weights are stored in the packed layout that GEMMs read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.prepacked_constants import (
    PrepackedPanels,
    find_prepacked,
    find_prepacked_rows,
    pack_array,
    packed_size,
    view_prepacked,
    write_prepacked,
)
from nova.codegen.cpu.schedule import KernelSchedule
from nova.codegen.cpu.winograd.kernel import find_weights
from nova.codegen.cpu.winograd.plan import WinogradPlan
from nova.codegen.cpu.winograd.weights import transform_array
from nova.core.records import record
from nova.core.targets import parse_target
from nova.ir.attributes import UNPACKED
from nova.ir.bindings import ir, memref
from nova.ir.kernel import Kernel
from nova.ir.symbolic.size_table import sizes_of
from nova.ir.types import constant_values, dense_bytes, memory_dtype
from nova.ir.walk import kernels, main_function
from nova.passes.base import Pass

Packing = tuple[Contraction, PrepackedPanels]
Pack = Callable[[np.ndarray], np.ndarray]

_RESHAPES = ("memref.collapse_shape", "memref.expand_shape")


@record
class PackConstants(Pass):
    """Replace constants that a kernel only multiplies by with copies in the GEMM's packed layout.

    The GEMM then packs no constant at run time. The kernel's attribute `nova.packed` says which
    arguments are packed, and how; `lower-kernels` must choose the same layout. A global of which
    only the packed copies are used keeps its values for the text, with the attribute
    `nova.unpacked`. The weights of a convolution for which Winograd's algorithm is faster are
    transformed instead, and its kernel has the attribute `nova.winograd`; the knob `winograd`
    decides otherwise.
    """

    name: ClassVar[str] = "pack-constants"
    target: str = "cpu"
    tile_work: int = 65_536
    winograd: str = "auto"

    def run(self, module: ir.Module) -> None:
        constants = constant_arguments(module)
        if not constants:
            return
        with sizes_of(main_function(module)):
            self._pack(module, constants)

    def _pack(self, module: ir.Module, constants: dict[str, frozenset[int]]) -> None:
        target = parse_target(self.target)
        packer = _Packer(module)
        calls = _calls(module)
        for kernel in kernels(module):
            name = kernel.name.value
            if name not in constants:
                continue
            ops = [op.operation for op in kernel.entry_block.operations][:-1]
            schedule = KernelSchedule(kernel, ops, target, self.tile_work)
            transform = find_weights(schedule, kernel, self.winograd, constants[name])
            if transform is not None:
                packer.transform(kernel, calls[name], *transform)
                continue
            # The right operand where a GEMM has two constants.
            candidates = find_prepacked_rows(schedule, kernel) | find_prepacked(schedule, kernel)
            packings = {i: candidates[i] for i in sorted(constants[name]) if i in candidates}
            if packings:
                packer.pack(kernel, calls[name], packings)
        packer.finish()


def constant_arguments(module: ir.Module) -> dict[str, frozenset[int]]:
    """The arguments of kernels, by name, that are constants at every call."""
    constants = {
        op.sym_name.value
        for op in module.body.operations
        if op.operation.name == "memref.global"
        and "constant" in op.attributes
        and "initial_value" in op.attributes
    }
    arguments = {
        name: frozenset.intersection(
            *(
                frozenset(i for i, v in enumerate(op.operands) if _global_name(v) in constants)
                for op in callers
            )
        )
        for name, callers in (_calls(module) if constants else {}).items()
    }
    return {name: numbers for name, numbers in arguments.items() if numbers}


def _calls(module: ir.Module) -> dict[str, list[Any]]:
    """The calls of main, by the name of the callee."""
    calls: dict[str, list[Any]] = {}
    for op in main_function(module).entry_block.operations:
        if op.operation.name == "func.call":
            calls.setdefault(op.callee.value, []).append(op.operation)
    return calls


class _Packer:
    """The constants of one module: their uses, and their packed copies."""

    def __init__(self, module: ir.Module):
        self.module = module
        self.globals = {
            op.sym_name.value: op
            for op in module.body.operations
            if op.operation.name == "memref.global"
        }
        self.copies: dict[tuple[str, Any], Any] = {}

    def pack(self, kernel: Any, callers: list[Any], packings: dict[int, Packing]) -> None:
        sizes = {number: packed_size(*packing) for number, packing in packings.items()}
        view_prepacked(kernel, sizes)
        write_prepacked(kernel, {number: panels for number, (_, panels) in packings.items()})
        for number, packing in packings.items():
            spec, panels = packing
            pack = functools.partial(pack_array, spec=spec, panels=panels)
            self._replace(callers, number, packing, pack)

    def transform(self, kernel: Any, callers: list[Any], number: int, plan: WinogradPlan) -> None:
        view_prepacked(kernel, {number: plan.weight_elements})
        Kernel(kernel).winograd = ((number, plan.size),)
        self._replace(callers, number, plan, lambda flat: transform_array(flat, plan))

    def _replace(self, callers: list[Any], number: int, layout: Any, pack: Pack) -> None:
        """Let calls pass a copy of a constant in another layout."""
        for op in callers:
            name = _global_name(op.operands[number])
            assert name is not None
            packed = self._copy(name, layout, pack)
            with ir.InsertionPoint(op), op.location:
                op.operands[number] = memref.get_global(packed.type_.value, packed.sym_name.value)

    def _copy(self, name: str, layout: Any, pack: Pack) -> Any:
        """A global with the packed values of another one."""
        key = (name, layout)
        if key not in self.copies:
            source = self.globals[name]
            element = source.type_.value.element_type
            packed = pack(np.frombuffer(dense_bytes(source.initial_value), memory_dtype(element)))
            type_ = ir.MemRefType.get([len(packed)], element)
            values = constant_values(packed, element)
            label = f"{name}_packed{len(self.copies)}"
            with ir.InsertionPoint(source), source.location:
                self.copies[key] = memref.global_(
                    label, type_, sym_visibility="private", initial_value=values, constant=True
                )
        return self.copies[key]

    def finish(self) -> None:
        """Drop unused constants, and mark those that only the text has."""
        main = main_function(self.module)
        read = set()
        for op in reversed(list(main.entry_block.operations)):
            if op.operation.name in _RESHAPES and not any(
                True for _ in op.operation.results[0].uses
            ):
                op.operation.erase()
                continue
            if op.operation.name == "memref.get_global":
                if any(True for _ in op.operation.results[0].uses):
                    read.add(op.operation.attributes["name"].value)
                else:
                    op.operation.erase()
        for name in {name for name, _ in self.copies}:
            if name not in read:
                UNPACKED.set(self.globals[name])


def _global_name(value: Any) -> str | None:
    """The name of the global that defines a value of main, perhaps in another shape."""
    while isinstance(value, ir.OpResult) and value.owner.operation.name in _RESHAPES:
        value = value.owner.operation.operands[0]
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "memref.get_global":
        return None
    name: str = value.owner.operation.attributes["name"].value
    return name if prod(value.type.shape) else None
