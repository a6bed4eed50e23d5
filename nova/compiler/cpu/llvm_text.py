"""LLVM IR text to code, for `nova.translate`: assembly, an object or PTX.

LLVM aborts on some invalid texts, either in its parser or in instruction selection. A text of
unknown origin is compiled in a child process (`sandbox.py`).
"""

from __future__ import annotations

from nova import knobs
from nova.compiler.cpu.llvm import Unit, assembly, compile_objects
from nova.core.targets import parse_target


def compile_text(text: str, target: str, emit: str) -> bytes:
    """Compile a text for a target to `asm`, `obj`, or `ptx` for a device."""
    machine = parse_target(target)
    if emit == "ptx":
        from nova.compiler.gpu.ptx import compile_ptx  # only for devices

        return compile_ptx(text, machine).encode()
    unit = Unit(text, unroll=False)
    if emit == "asm":
        return assembly(unit, machine).encode()
    [data] = compile_objects([unit], machine, knobs.get("threads"))
    return data
