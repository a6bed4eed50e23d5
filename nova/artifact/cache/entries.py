"""The files of the disk cache: names, LRU order, and reading an untrusted entry.

Called by `DiskCache`. A key maps to a path and a path to an `Artifact`, or an ArtifactError that
names the failed check.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from nova.artifact.cache.key import cache_key
from nova.artifact.check import fail
from nova.artifact.format import Artifact, read_artifact
from nova.core.records import record

_SUFFIX = ".nova"
_KEY = re.compile(r"[0-9a-f]{64}")


@record
class CacheEntry:
    """One file of the cache; `used` is the time of the last hit or of the write, in ns."""

    key: str
    path: Path
    nbytes: int
    used: int


def entry_path(folder: Path, key: str) -> Path:
    """The path of the entry of a key, which may not exist."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"a cache key is 64 hexadecimal digits, not {key!r}")
    return folder / (key + _SUFFIX)


def scan_folder(folder: Path) -> list[CacheEntry]:
    """The entries, the least recently used first."""
    entries = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as items:
        for item in items:
            key = item.name.removesuffix(_SUFFIX)
            if item.name.endswith(_SUFFIX) and _KEY.fullmatch(key):
                with suppress(FileNotFoundError):
                    info = item.stat(follow_symlinks=False)
                    entries.append(CacheEntry(key, Path(item.path), info.st_size, info.st_mtime_ns))
    return sorted(entries, key=lambda entry: (entry.used, entry.key))


def open_entry(path: Path, key: str) -> Artifact:
    """Read and check one entry, which must be a file of this user and contain its own key."""
    with open(path, "rb", opener=_open_here) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            fail("entry-owner", "not a plain file of this user")
        data = file.read()
    artifact = read_artifact(data)
    if cache_key(artifact.manifest.key) != key:
        fail("entry-key", "the file holds the artifact of another key")
    return artifact


def _open_here(path: str, flags: int) -> int:
    """Open without following links or blocking on a pipe: later checks see the file itself."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            fail("entry-owner", "a symbolic link")
        raise


def mark_used(path: Path) -> None:
    """Mark as used now. Explicit, because the file system's own clock ticks in milliseconds."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def remove_file(path: Path) -> bool:
    """Remove a file; returns whether it existed and was removed."""
    try:
        path.unlink()
    except OSError:
        return False
    return True
