"""Writes files so that nobody ever sees half of one. Called by the cache and by `Compiled.save`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tmp-"


def write_atomically(
    path: Path, data: bytes | memoryview, *, mode: int = 0o666, sync: bool = True
) -> None:
    """Put `data` at `path`: a temporary file in the same folder, `fsync`, and a rename.

    `sync=False` leaves out the flush to the disk, for files whose damage is noticed and harmless.
    """
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if sync:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
