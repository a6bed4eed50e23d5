"""Writes files atomically.

In: bytes. Out: a whole file under its name. Called by the cache, by `Compiled.save` and by the
writers of other formats. The temporary file is in the same folder and locked by its writer while it
lives. So the file of a killed writer can be distinguished from one that is being written, and the
next writer removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from nova.errors import ArgumentTypeError, ArtifactError

Piece = bytes | bytearray | memoryview

_TEMPORARY = re.compile(r"\.nova-tmp-[0-9a-f]{16}")


def write_atomically(
    path: Path,
    data: Piece | Iterable[Piece],
    *,
    mode: int | None = None,
    like: Path | None = None,
    sync: bool = True,
) -> None:
    """Write `data` to `path`: a temporary file in the same folder, `fsync`, and a rename.

    A kill at any moment leaves the old file or the new one. Large data comes in pieces, so that it
    need not be joined in memory. `sync=False` omits the flush to the disk, for files that may be
    lost in a power cut. The permission bits are `mode`, less the umask; without `mode` they are
    those of the file `like`, by default the old file at `path`. A pipe or a device such as
    /dev/null is written directly: a rename would replace it by a file.
    """
    pieces = [data] if isinstance(data, Piece) else data
    if _is_special(path):
        with open(path, "wb") as file:
            file.writelines(pieces)
        return
    remove_abandoned(path.parent)
    old_mode = _permissions(like or path) if mode is None else None
    try:
        # Never with more bits than the final file: the data must not be visible in between.
        created = mode if mode is not None else 0o666 if old_mode is None else old_mode & 0o666
        temporary, descriptor = _create(path.parent, created)
    except OSError as error:
        error.filename = os.fspath(path)  # the requested name
        raise
    try:
        with open(descriptor, "wb") as file:
            if old_mode is not None:
                os.fchmod(descriptor, old_mode)
            file.writelines(pieces)
            file.flush()
            if sync:
                os.fsync(descriptor)
            # Before the file is closed, which releases its lock.
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


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path of a caller, if it is a valid file name on this system."""
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(
            f"the path of the file is of type {type(path).__name__}, not a str or a pathlib.Path",
            hint="give it a name: 'model.nova'",
        )
    text = os.fspath(path)
    if not text:
        raise ArtifactError("the path of the file is empty", hint="give it a name: 'model.nova'")
    if "\0" in text:
        raise ArtifactError(f"a path has no NUL character: {text!r}")
    return Path(text)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading. OSError at once for a pipe, a device or a folder.

    Opening a pipe would wait for its writer, perhaps forever, and a device may have no end. Links
    are followed: mounted volumes and model hubs are full of them.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(
            number, f"it is not a regular file but {_describe_type(mode)}", os.fspath(path)
        )
    return open(descriptor, "rb")


def _describe_type(mode: int) -> str:
    names = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def is_temporary(name: str) -> bool:
    """Whether the name is that of an unfinished file of `write_atomically`."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_abandoned(folder: Path) -> int:
    """Remove the temporary files of killed writers; returns their number."""
    removed = 0
    with suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if is_temporary(item.name):
                with suppress(OSError):
                    removed += _remove_if_abandoned(item.path)
    return removed


def _permissions(path: Path) -> int | None:
    """The permission bits of a file, None if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o777
    except OSError:
        return None


def _is_special(path: Path) -> bool:
    """Whether the system owns the name: a device or pipe, or a link in /dev to an open file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    if path.is_symlink() and os.path.dirname(os.path.abspath(path)) == "/dev":
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _create(folder: Path, mode: int) -> tuple[Path, int]:
    """A new temporary file, open for writing and locked."""
    while True:
        path = folder / f".nova-tmp-{os.urandom(8).hex()}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with suppress(OSError):  # a file system without locks: no file counts as abandoned
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another writer may have seen the file just before it was locked.
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)


def _remove_if_abandoned(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
        return True
    finally:
        os.close(descriptor)
