"""MLIR bytecode as text, read by a process of its own.

MLIR's reader of bytecode crashes or never ends on some damaged files, so it runs where it can do no
harm. `text_of_bytecode` is called by `nova.frontends.source`; it starts `main` of this module in
a child, which gets the bytes on stdin and writes the text, with locations, to stdout.
"""

from __future__ import annotations

import sys

from nova.codegen.apart import limit_memory, run_apart
from nova.errors import ImportedProgramError

MAGIC = b"ML\xefR"
# What jax.export writes: VHLO, the form of StableHLO that newer versions still read.
_PORTABLE = b"StableHLO_v"
_SECONDS = 120


def text_of_bytecode(data: bytes, filename: str) -> str:
    """The module of a bytecode file or a portable artifact as text, with StableHLO as StableHLO."""
    ended = run_apart("nova.frontends.bytecode", [], data, _SECONDS)
    if ended.status is None:
        raise _damaged(f"reading it took more than {_SECONDS} seconds", filename)
    if ended.status < 0:
        raise _damaged("MLIR's reader crashed on it", filename)
    if ended.status:
        said = ended.said.splitlines()
        raise _damaged(said[-1] if said else "MLIR does not read it", filename)
    return ended.data.decode()


def _damaged(why: str, filename: str) -> ImportedProgramError:
    return ImportedProgramError(
        f"the bytecode cannot be read: {why}",
        where=filename,
        hint="write it again; a portable artifact must be for this version of StableHLO or before",
    )


def main() -> int:
    """Bytecode on stdin, text on stdout; 1 and a message on stderr where MLIR refuses."""
    from nova.mlir.bindings import ir, stablehlo
    from nova.mlir.context import make_context
    from nova.mlir.diagnostics import capture_diagnostics

    data = sys.stdin.buffer.read()
    limit_memory(len(data))
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
            print("; ".join(messages) or str(error), file=sys.stderr)
            return 1
    sys.stdout.write(module.operation.get_asm(enable_debug_info=True, assume_verified=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
