"""Device code: a module at the stage `nvvm` to PTX, with llvmlite.

In: `gpu.module`s in the LLVM and NVVM dialects, and a device target. Out: one PTX text with all of
their kernels. An error inside LLVM would end the process, and an unknown intrinsic becomes a call
of an undefined function. Both are checked first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nova.artifact.device_image import check_calls
from nova.compiler.llvm.bindings import binding as llvmlite
from nova.compiler.llvm.compat import normalise
from nova.compiler.llvm.machine_code import (
    ASSEMBLY,
    default_passes,
    emit,
    initialise,
    is_portable,
    parse_module,
    run_passes,
)
from nova.core.targets import Target
from nova.errors import CodegenError
from nova.ir.bindings import ir, llvm
from nova.ir.diagnostics import place_of
from nova.ir.walk import every_op

_SHARED = "__dynamic_shmem__"
_DEFINITION = re.compile(r"^define ", re.MULTILINE)
_KERNEL = "define ptx_kernel "
_SHARED_DECLARATION = re.compile(r"^\.extern \.shared \.align (\d+) (.*);$", re.MULTILINE)
# Inline assembly that the lanes of a warp execute together: barriers, and all `.sync` instructions.
_OF_A_WARP = re.compile(r' asm (?:\w+ )*"[^"\n]*(?:\.sync\b|\bbar(?:rier)?\.)[^"\n]*".*\)')
_PART = 150_000
"""Characters of LLVM IR that one thread compiles: about a tenth of a second."""
# MLIR's translation aborts on intrinsics that it does not know; Nova itself calls these.
_DEVICE_INTRINSICS = frozenset(("llvm.nvvm.ex2.approx.ftz.f", "llvm.nvvm.vote.ballot.sync"))
# Library calls of LLVM for integers wider than 64 bits, which devices do not have.
_OF_A_LIBRARY = frozenset(
    f"llvm.{name}"
    for name in ("sdiv", "udiv", "srem", "urem", "fptosi", "fptoui", "sitofp", "uitofp")
)


def device_ir(module: ir.Module) -> str:
    """The LLVM IR of all device functions of a module."""
    with module.context, ir.Location.unknown():
        part = ir.Module.create()
        shared_names: set[str] = set()
        with ir.InsertionPoint(part.body):
            for outer in module.body.operations:
                if outer.operation.name != "gpu.module":
                    continue
                _check_lowered(outer.operation)
                for op in outer.operation.regions[0].blocks[0].operations:
                    if op.operation.name == "llvm.mlir.global":
                        _clone_variable(op.operation, shared_names)
                    else:
                        op.operation.clone()
        return mark_convergent(normalise(llvm.translate_module_to_llvmir(part.operation)))


def mark_convergent(text: str) -> str:
    """Mark inline assembly that the lanes of a warp execute together as `convergent`.

    Without the mark, LLVM copies a barrier into both sides of a branch around it (jump threading):
    lanes that branch differently would wait at two different barriers. Ops of the nvvm dialect are
    marked, but `llvm.inline_asm` has no attribute for it.
    """
    return _OF_A_WARP.sub(r"\g<0> convergent", text)


def _check_lowered(device: Any) -> None:
    """Refuse ops on which MLIR's translation or LLVM aborts, and ops that were not lowered."""
    for op in every_op(device)[:-1]:
        if not op.name.startswith(("llvm.", "nvvm.")):
            raise CodegenError(f"{op.name} is left in the device code", where=place_of(op.location))
        if op.name == "llvm.call_intrinsic":
            name = op.attributes["intrin"].value
            if name not in _DEVICE_INTRINSICS and not is_portable(name):
                raise CodegenError(
                    f"the intrinsic {name} is not one that Nova makes device code of",
                    where=place_of(op.location),
                    hint="ops of the nvvm dialect and llvm.inline_asm name instructions, too",
                )
        if op.name in _OF_A_LIBRARY and any(map(_is_wide, [*op.operands, *op.results])):
            raise CodegenError(
                f"{op.name} of integers wider than 64 bits has no device code",
                where=place_of(op.location),
            )


def _is_wide(value: Any) -> bool:
    return isinstance(value.type, ir.IntegerType) and value.type.width > 64


def _clone_variable(op: Any, shared_names: set[str]) -> None:
    """Copy a variable of a device module; its name may also be used in other modules.

    The conversion to NVVM represents dynamic shared memory, whose size is set at the launch, as a
    variable without a size and with internal linkage: LLVM would treat it as private. It is the
    same memory in all modules.
    """
    name = op.attributes["sym_name"].value
    if not name.startswith(_SHARED):
        op.clone()
        return
    if name in shared_names:
        return
    shared_names.add(name)
    copy = op.clone()
    copy.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")


def compile_ptx(text: str, target: Target) -> str:
    """Compile LLVM IR to PTX; the long calls of LLVM release the GIL."""
    initialise()
    context = llvmlite.create_context()
    module = parse_module(text.encode(), context)
    machine = llvmlite.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.llvm_features(), opt=3
    )
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    options = llvmlite.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = False
    builder = llvmlite.create_pass_builder(machine, options)
    run_passes(default_passes(builder), module, builder)
    ptx = emit(machine, module, ASSEMBLY).decode()
    check_calls(ptx, target.cpu)
    return ptx


def split_kernels(text: str) -> list[str]:
    """Modules with some kernels each, in order, of LLVM IR with many: threads compile them.

    The cut depends on the text alone. A text with functions other than kernels stays whole.
    """
    starts = [match.start() for match in _DEFINITION.finditer(text)]
    if len(text) < 2 * _PART or not all(text.startswith(_KERNEL, at) for at in starts):
        return [text]
    end = text.index("\n}\n", starts[-1]) + 3
    bounds = [starts[0]]
    for at in starts[1:]:
        if at - bounds[-1] >= _PART:
            bounds.append(at)
    pieces = [text[a:b] for a, b in pairwise([*bounds, end])]
    return [text[: starts[0]] + piece + text[end:] for piece in pieces]


def join_ptx(parts: Sequence[str]) -> str:
    """One PTX module of several, which have the same header.

    Dynamic shared memory of one name is declared once, with the largest alignment.
    """
    if len(parts) == 1:
        return parts[0]
    declared: dict[str, int] = {}
    bodies = []
    for part in parts:
        header, _, body = part.partition(".address_size 64\n")
        for align, name in _SHARED_DECLARATION.findall(body):
            declared[name] = max(declared.get(name, 0), int(align))
        bodies.append(_SHARED_DECLARATION.sub("", body))
    declarations = "".join(
        f".extern .shared .align {align} {name};\n" for name, align in declared.items()
    )
    return f"{header}.address_size 64\n\n{declarations}{''.join(bodies)}"
