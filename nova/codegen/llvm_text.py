"""LLVM IR text to code, for `nova.translate`: assembly, an object or PTX.

`compile_text` does it here. `compile_foreign` is for a text of somebody's: LLVM ends the process on
a wrong one, at times in its parser and at times only where it selects instructions, so it runs in
a child. That is `main` of this module, which gets the text on stdin and writes the code to stdout.
"""

from __future__ import annotations

import re
import sys

from nova import knobs
from nova.codegen.apart import limit_memory, run_apart
from nova.codegen.llvm import Unit, assembly, compile_objects
from nova.errors import CodegenError
from nova.targets import parse_target

_SECONDS = 600
# The line of a crash that says why: LLVM's, or that of its assembler.
_REASON = re.compile(r"^(?:LLVM ERROR: |.*\berror: )(.+)", re.MULTILINE)


def compile_text(text: str, target: str, emit: str) -> bytes:
    """The code of a text for a target: `asm`, `obj`, or `ptx` for a device."""
    machine = parse_target(target)
    if emit == "ptx":
        from nova.codegen.ptx import compile_ptx  # loads what only devices need

        return compile_ptx(text, machine).encode()
    unit = Unit(text, unroll=False)
    if emit == "asm":
        return assembly(unit, machine).encode()
    [data] = compile_objects([unit], machine, knobs.get("threads"))
    return data


def compile_foreign(text: str, target: str, emit: str) -> bytes:
    """The same for a text that LLVM may crash on; a crash is a CodegenError with what it said."""
    ended = run_apart("nova.codegen.llvm_text", [target, emit], text.encode(), _SECONDS)
    if ended.status == 0:
        return ended.data
    if ended.status is None:
        raise CodegenError(f"LLVM took more than {_SECONDS} seconds for the text")
    if ended.status == _REFUSED:
        raise CodegenError(ended.said)
    found = _REASON.search(ended.said)
    why = found[1] if found else (ended.said.splitlines() or ["it says nothing"])[0]
    raise CodegenError(
        f"LLVM crashed on the text: {why}", hint="LLVM's tool `opt -passes=verify` may say more"
    )


# The exit status for a text that was refused in good order; LLVM's own is 1.
_REFUSED = 3


def main() -> int:
    """The text on stdin, code for the target and of the kind in the arguments on stdout."""
    target, emit = sys.argv[1:]
    data = sys.stdin.buffer.read()
    limit_memory(len(data))
    try:
        code = compile_text(data.decode(), target, emit)
    except CodegenError as error:
        print(error.what, file=sys.stderr)
        return _REFUSED
    sys.stdout.buffer.write(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
