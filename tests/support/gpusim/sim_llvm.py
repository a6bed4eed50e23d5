"""PTX as LLVM writes it: kernels of one expression from LLVM IR, for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from llvmlite import binding as llvm

DTYPES: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
}
BITS = {
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "half": 16,
    "bfloat": 16,
    "float": 32,
    "double": 64,
}


@dataclass(frozen=True)
class Case:
    """A kernel: result type, operand types, and lines of IR from %a, %b, %c to %out."""

    out: str
    ins: tuple[str, ...]
    lines: str
    declares: str = ""

    def kernel(self, name: str) -> str:
        pointers = ", ".join(f"ptr addrspace(1) align 16 %p{i}" for i in range(1 + len(self.ins)))
        body = []
        for number, type_ in enumerate(self.ins):
            value = "abc"[number]
            body += [
                f"%q{value} = getelementptr {type_}, ptr addrspace(1) %p{number + 1}, i32 %i",
                f"%{value} = load {type_}, ptr addrspace(1) %q{value}",
            ]
        body += [
            self.lines,
            f"%qo = getelementptr {self.out}, ptr addrspace(1) %p0, i32 %i",
            f"store {self.out} %out, ptr addrspace(1) %qo",
        ]
        return (
            f"define ptx_kernel void @{name}({pointers}) {{\n"
            "%i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n" + "\n".join(body) + "\nret void\n}\n"
        )


@cache
def _machine(arch: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    return target.create_target_machine(cpu=arch, features="+ptx86", opt=3)


def emit_ptx(ir: str, arch: str = "sm_90a") -> str:
    """The PTX of a module of LLVM IR."""
    module = llvm.parse_assembly('target triple = "nvptx64-nvidia-cuda"\n' + ir)
    module.verify()
    return str(_machine(arch).emit_assembly(module))


def emit_cases(cases: Sequence[Case], arch: str) -> str:
    """One module with a kernel `k0`, `k1`, ... for each case."""
    declares = {"declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()"}
    declares |= {line for case in cases for line in case.declares.splitlines() if line}
    kernels = [case.kernel(f"k{number}") for number, case in enumerate(cases)]
    return emit_ptx("\n".join([*sorted(declares), *kernels]), arch)
