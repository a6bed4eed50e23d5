"""`pass-tensor-maps`: tensor maps become parameters of device functions."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.walk import device_modules, find_ops
from nova.passes.base import Pass

_PLACEHOLDER = re.compile(r"nova\.tensor_map (\d+) ")
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64


@record
class PassTensorMaps(Pass):
    """Replace the placeholders of tensor maps by parameters, after those of the buffers.

    A map is a struct of 128 bytes that is passed by value and stays in the memory of parameters
    (`nvvm.grid_constant`), where the copy engine reads it. The runtime encodes it from the record
    of the attribute `nova.tensor_maps` and the address of the buffer.
    """

    name: ClassVar[str] = "pass-tensor-maps"

    def concerns(self, text: str) -> bool:
        return "nova.tensor_map " in text

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            for part in device_modules(module):
                for op in part.regions[0].blocks[0].operations:
                    if op.operation.name == "llvm.func":
                        _add_parameters(op.operation)


def _add_parameters(function: Any) -> None:
    placeholders: dict[int, list[Any]] = {}
    for op in find_ops(function, "llvm.inline_asm"):
        if match := _PLACEHOLDER.match(op.attributes["asm_string"].value):
            placeholders.setdefault(int(match[1]), []).append(op)
    if not placeholders:
        return
    entry = function.regions[0].blocks[0]
    pointer = ir.Type.parse("!llvm.ptr")
    attributes = _argument_attributes(function, len(entry.arguments))
    for number in range(max(placeholders) + 1):
        argument = entry.add_argument(pointer, function.location)
        attributes.append(
            ir.Attribute.parse(
                f"{{llvm.byval = !llvm.array<{_MAP_BYTES} x i8>, "
                f"llvm.align = {_MAP_ALIGNMENT} : i64, nvvm.grid_constant}}"
            )
        )
        for op in placeholders.get(number, ()):
            with ir.InsertionPoint(op), op.location:
                address = ir.Operation.create(
                    "llvm.ptrtoint", results=[op.results[0].type], operands=[argument]
                )
            op.results[0].replace_all_uses_with(address.results[0])
            op.erase()
    types = ", ".join(str(argument.type) for argument in entry.arguments)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.Type.parse(f"!llvm.func<void ({types})>")
    )
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def _argument_attributes(function: Any, count: int) -> list[Any]:
    if "arg_attrs" in function.attributes:
        return list(function.attributes["arg_attrs"])
    return [ir.DictAttr.get({})] * count
