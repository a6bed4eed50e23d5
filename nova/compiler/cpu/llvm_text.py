"""LLVM IR text to code, for `nova.translate`: assembly, an object or PTX.

LLVM ends the process on some wrong texts, at times in its parser and at times only where it selects
instructions: a text of unknown origin is compiled in a child process (`sandbox.py`).
"""

from __future__ import annotations

from nova import knobs
from nova.compiler.cpu.llvm import Unit, assembly, compile_objects
from nova.core.targets import parse_target


def compile_text(text: str, target: str, emit: str) -> bytes:
    """The code of a text for a target: `asm`, `obj`, or `ptx` for a device."""
    machine = parse_target(target)
    if emit == "ptx":
        from nova.compiler.gpu.ptx import compile_ptx  # loads what only devices need

        return compile_ptx(text, machine).encode()
    unit = Unit(text, unroll=False)
    if emit == "asm":
        return assembly(unit, machine).encode()
    [data] = compile_objects([unit], machine, knobs.get("threads"))
    return data
