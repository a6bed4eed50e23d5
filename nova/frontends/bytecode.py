"""MLIR bytecode to text, in a child process.

MLIR's bytecode reader crashes or hangs on some damaged files. `nova.frontends.source` calls
`text_of_bytecode`; `read_bytecode` runs in a child (`nova/compiler/sandbox.py`).
"""

from __future__ import annotations

from nova.compiler.sandbox import is_inside, run_sandboxed
from nova.errors import ImportedProgramError, SandboxError
from nova.ir.context import print_op

MAGIC = b"ML\xefR"
# The output of jax.export: VHLO, the form of StableHLO that newer versions still read.
_PORTABLE = b"StableHLO_v"
_SECONDS = 120


def text_of_bytecode(data: bytes, filename: str) -> str:
    """The module of a bytecode file or a portable artifact as text, with VHLO as StableHLO."""
    if is_inside():
        return read_bytecode(data, filename)
    try:
        text: str = run_sandboxed(
            f"{__name__}:read_bytecode", data, filename, stage="bytecode", seconds=_SECONDS
        )
    except SandboxError as error:
        raise _damaged(error.what, filename) from None
    return text


def _damaged(why: str, filename: str) -> ImportedProgramError:
    hint = "write it again; a portable artifact must be for this version of StableHLO or before"
    if "dialect 'sdy'" in why:
        hint = "its shardings can be read in text only: pass the text of the program"
    return ImportedProgramError(f"the bytecode cannot be read: {why}", where=filename, hint=hint)


def read_bytecode(data: bytes, filename: str) -> str:
    """In the child, where MLIR may crash: the same."""
    from nova.ir.bindings import ir, stablehlo
    from nova.ir.context import make_context
    from nova.ir.diagnostics import capture_diagnostics

    context = make_context()
    context.allow_unregistered_dialects = True
    with capture_diagnostics(context) as said:
        try:
            if data[len(MAGIC) + 1 :].startswith(_PORTABLE):
                module = stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = ir.Module.parse(data, context)
            module.operation.verify()
        except (ir.MLIRError, ValueError) as error:
            messages = [d.message for d in said if d.severity == "error"]
            raise _damaged("; ".join(messages) or str(error), filename) from None
    return print_op(module.operation, enable_debug_info=True)
