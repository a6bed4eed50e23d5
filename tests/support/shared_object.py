"""Machine code that tests call: objects linked into a shared object by the system's linker.

LLVM's own loader (MCJIT) puts sections where there is room, and ends the process when two of them
are further apart than a relocation reaches; in a large process that happens now and then.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path


def load_objects(objects: Iterable[bytes]) -> ctypes.CDLL:
    """The functions of position-independent objects, for the rest of the process."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for i, data in enumerate(objects):
            (path := Path(folder, f"{i}.o")).write_bytes(data)
            names.append(str(path))
        library = str(Path(folder, "code.so"))
        command = ["gcc", "-shared", "-nostartfiles", "-Wl,-z,noexecstack", "-o", library, *names]
        subprocess.run([*command, "-lm"], check=True)
        return ctypes.CDLL(library)
