"""Runs a module of Nova in a process of its own: for libraries that crash on wrong input.

`run_apart` starts `python -m MODULE`, gives it bytes on stdin, and tells how it ended; the module's
`main` calls `limit_memory` before the library sees the input. Called for MLIR's reader of bytecode
(`nova/frontends/bytecode.py`) and for LLVM on a text of somebody's (`nova/codegen/llvm_text.py`).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_MEMORY = 8 << 30


@dataclass(frozen=True)
class Ended:
    """How such a process ended: `data` is its stdout; `said` its stderr.

    `status` is that of the process, negative for the signal that ended it, and None where it did
    not end in time.
    """

    data: bytes
    said: str
    status: int | None


def run_apart(module: str, arguments: Sequence[str], data: bytes, seconds: float) -> Ended:
    """Run `module` on `data` for at most some seconds."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            input=data,
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(b"", "", None)
    return Ended(done.stdout, done.stderr.decode(errors="replace").strip(), done.returncode)


def limit_memory(size: int) -> None:
    """In the child: what an input of `size` bytes may take, and no file when it crashes."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY + 16 * size,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
