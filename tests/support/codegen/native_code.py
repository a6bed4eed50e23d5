"""Machine code in this process, for tests of code that is not in a file."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def load_objects(objects: Sequence[bytes]) -> ctypes.CDLL:
    """The functions of position-independent objects, linked with binutils and opened.

    LLVM's own loader would end a large process, where it finds no room for data within 2 GB of
    the code.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(objects):
            Path(folder, f"{number}.o").write_bytes(data)
        names = [f"{number}.o" for number in range(len(objects))]
        subprocess.run(["ld", "-shared", "-o", "code.so", *names], cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/code.so")


def address_of(library: ctypes.CDLL, name: str) -> int:
    """Where a function is."""
    result = ctypes.cast(library[name], ctypes.c_void_p).value
    assert result is not None
    return result
