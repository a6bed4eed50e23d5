"""`export-kernels`: the C entry points `void k(void *const *buf, int64_t begin, int64_t end)`.

A kernel whose buffers `allocate-scratch` has placed takes `void *scratch` as well.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import MATH, NOALIAS, SCRATCH_OFFSETS, SHARED, noalias_dictionaries
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.kernel import is_kernel
from nova.passes.base import Pass

BODY = "_body"


@record
class ExportKernels(Pass):
    """Give every kernel (now an llvm.func over bare pointers) its exported entry point.

    The entry loads the buffer pointers from `buf` and calls the body, which becomes internal and is
    inlined. The body's pointers are `noalias`: an argument that a kernel writes does not overlap
    with another. `no-builtins` keeps LLVM from turning loops into calls of memset and memcpy, which
    a self-contained object does not have. Shared functions of kernels become hidden symbols: only
    kernels of other objects call them. Math functions are internal to their object. `tune` is
    LLVM's name of the processor whose cost model applies.
    """

    name: ClassVar[str] = "export-kernels"
    vector_bits: int = 0
    tune: str = ""

    def run(self, module: ir.Module) -> None:
        for op in list(module.body.operations):
            if op.operation.name != "llvm.func":
                continue
            attributes = op.operation.attributes
            if MATH.has(op):
                attributes["passthrough"] = self._passthrough("noinline")
                attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
            elif SHARED.has(op):
                attributes["passthrough"] = self._passthrough("noinline")
                attributes["visibility_"] = ir.Attribute.parse("1 : i64")  # hidden
            elif is_kernel(op):
                if "passthrough" in attributes:
                    name = attributes["sym_name"].value
                    raise LoweringError(f"@{name} is exported already", where=place_of(op.location))
                self._export(op.operation)

    def _passthrough(self, *more: str) -> ir.Attribute:
        entries = [f'"{entry}"' for entry in ("no-builtins", "nounwind", *more)]
        if self.vector_bits:
            entries.append(f'["prefer-vector-width", "{self.vector_bits}"]')
        if self.tune:
            entries.append(f'["tune-cpu", "{self.tune}"]')
        return ir.Attribute.parse(f"[{', '.join(entries)}]")

    def _export(self, body: Any) -> None:
        name = body.attributes["sym_name"].value
        body.attributes["sym_name"] = ir.StringAttr.get(name + BODY)
        body.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
        body.attributes["passthrough"] = self._passthrough("alwaysinline")
        arguments = list(body.regions[0].blocks[0].arguments)
        offsets = SCRATCH_OFFSETS.find(body) or ()
        pointers = len(arguments) - 2 - len(offsets)
        aligned = ir.Attribute.parse(f"{{llvm.align = 64 : i64, {NOALIAS.name}}}")
        body.attributes["arg_attrs"] = ir.ArrayAttr.get(
            noalias_dictionaries([True] * pointers + [False] * 2) + [aligned] * len(offsets)
        )
        helper = ir.Module.parse(_entry_text(name, pointers, offsets, self._passthrough()))
        helper.body.operations[1].operation.move_before(body)


def _entry_text(name: str, pointers: int, offsets: tuple[int, ...], attributes: Any) -> str:
    numbers = range(pointers)
    types = ", ".join(["!llvm.ptr"] * pointers + ["i64", "i64"] + ["!llvm.ptr"] * len(offsets))
    areas = [f"%s{i}" for i in range(len(offsets))]
    operands = ", ".join([*(f"%v{i}" for i in numbers), "%begin", "%end", *areas])
    scratch = ", %scratch: !llvm.ptr" if offsets else ""
    loads = "\n".join(
        f"%p{i} = llvm.getelementptr %buf[{i}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr\n"
        f"%v{i} = llvm.load %p{i} : !llvm.ptr -> !llvm.ptr"
        for i in numbers
    )
    loads += "".join(
        f"\n{area} = llvm.getelementptr %scratch[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
        for area, offset in zip(areas, offsets, strict=True)
    )
    # The declaration is there for the verifier; only the entry is used from this module.
    return f"""
      llvm.func @{name}{BODY}({types})
      llvm.func @{name}(%buf: !llvm.ptr, %begin: i64, %end: i64{scratch})
          attributes {{passthrough = {attributes}}} {{
        {loads}
        llvm.call @{name}{BODY}({operands}) : ({types}) -> ()
        llvm.return
      }}"""
