"""The disk cache: one folder, one file an entry, each file a whole artifact.

The compile driver calls `get` with a key from `cache_key` and, after a miss, `put` with the bytes
of `write_artifact`. Many processes may share the folder without locks: an entry appears by rename,
so a reader sees a whole file or none, and whoever has it open keeps it when it is evicted. Nothing
here raises for a bad folder or a bad file: there is one `CacheWarning`, and the program compiles.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nova.artifact.elf_shared import fail
from nova.artifact.files import TEMPORARY, write_atomically
from nova.artifact.format import Artifact, read_artifact
from nova.artifact.key import cache_key, explain
from nova.errors import ArtifactError, CacheWarning

__all__ = ["CacheEntry", "CacheStats", "DiskCache", "cache_key", "default_folder", "explain"]

_SUFFIX = ".nova"
_KEY = re.compile(r"[0-9a-f]{64}")
_STALE_SECONDS = 3600  # a temporary file this old belongs to a process that was killed

_warned_folders: set[Path] = set()  # one warning a folder and process, not one a compile


@dataclass(frozen=True)
class CacheStats:
    """What one `DiskCache` object did since it was made."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    evictions: int = 0
    damaged: int = 0


@dataclass(frozen=True)
class CacheEntry:
    """One file of the cache; `used` is the time of the last hit or of the write, in ns."""

    key: str
    path: Path
    nbytes: int
    used: int


def default_folder() -> Path:
    """The user's cache folder for Nova on this platform."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("nova", appauthor=False))


class DiskCache:
    """Artifacts by key in `folder`, at most `max_bytes` of them; the least recently used go first.

    Thread-safe. Reading goes on where writing is not possible.
    """

    def __init__(self, folder: Path, max_bytes: int):
        self.folder, self.max_bytes = Path(folder), max_bytes
        self._counts = dict.fromkeys(CacheStats.__dataclass_fields__, 0)
        self._lock = threading.Lock()
        self._trusted: bool | None = None  # None: the folder was not looked at yet
        self._writable = True

    @property
    def stats(self) -> CacheStats:
        """Counts of this object; other processes that use the folder have their own."""
        with self._lock:
            return CacheStats(**self._counts)

    def path(self, key: str) -> Path:
        """Where the entry of a key is, or would be."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"a cache key is 64 hexadecimal digits, not {key!r}")
        return self.folder / (key + _SUFFIX)

    def get(self, key: str) -> Artifact | None:
        """The entry, marked as used now; None on a miss. A damaged entry is removed: a miss."""
        path = self.path(key)
        artifact = self._read(path, key) if self._is_trusted() else None
        self._count("misses" if artifact is None else "hits")
        return artifact

    def put(self, key: str, data: bytes) -> None:
        """Store an artifact, then evict until the folder keeps to its bound."""
        path = self.path(key)
        if not self._writable:
            return
        if len(data) > self.max_bytes:
            self._warn_folder(f"may hold {self.max_bytes} bytes, fewer than one entry has")
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._trusted = None  # it may have been made just now
            if not self._is_trusted():
                return
            # No flush to the disk: a file that a power cut damages fails its hash and is rebuilt.
            write_atomically(path, data, mode=0o600, sync=False)
            with suppress(FileNotFoundError):  # another process evicted it already
                _touch(path)
        except OSError as error:
            self._writable = False
            self._warn_folder(f"cannot be written ({error.strerror or error})")
            return
        self._count("puts")
        self._evict(keep=key)

    def entries(self) -> list[CacheEntry]:
        """All entries, the least recently used first."""
        return self._scan() if self._is_trusted() else []

    def verify(self) -> dict[Path, str]:
        """Read every entry; gives the failed check of each damaged one, and removes nothing."""
        problems = {}
        for entry in self.entries():
            with suppress(FileNotFoundError):  # evicted meanwhile
                try:
                    _open_entry(entry.path, entry.key)
                except (ArtifactError, OSError) as error:
                    problems[entry.path] = str(error)
        return problems

    def clear(self) -> int:
        """Remove every entry; gives how many went."""
        return sum(_remove(entry.path) for entry in self.entries())

    # --- inside ---------------------------------------------------------------------------------

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def _read(self, path: Path, key: str) -> Artifact | None:
        try:
            artifact = _open_entry(path, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ArtifactError as error:
            self._count("damaged")
            _remove(path)
            warnings.warn(
                f"removed the damaged cache entry {path}: {error.what}; it will be built again",
                CacheWarning,
                stacklevel=3,
            )
            return None
        except OSError as error:  # too many open files, no permission: the entry may be sound
            self._warn_folder(f"cannot be read ({error.strerror})")
            return None
        with suppress(OSError):  # a read-only folder still serves
            _touch(path)
        return artifact

    def _is_trusted(self) -> bool:
        """Whether nobody else could have put code into the folder; a missing folder is fine."""
        if self._trusted is None:
            try:
                found = os.stat(self.folder)
            except (FileNotFoundError, NotADirectoryError):
                return True
            except OSError as error:
                return self._distrust(f"cannot be read ({error.strerror})")
            if not stat.S_ISDIR(found.st_mode):
                return self._distrust("is not a folder")
            if found.st_uid != os.geteuid():
                return self._distrust(f"belongs to user {found.st_uid}, not to this one")
            if found.st_mode & 0o022:
                return self._distrust("can be written by other users (chmod go-w it)")
            self._trusted = True
        return self._trusted

    def _distrust(self, why: str) -> bool:
        self._trusted, self._writable = False, False
        self._warn_folder(why)
        return False

    def _warn_folder(self, why: str) -> None:
        with self._lock:
            if self.folder in _warned_folders:
                return
            _warned_folders.add(self.folder)
        warnings.warn(
            f"the cache folder {self.folder} {why}; compiling goes on without it. "
            "Set NOVA_CACHE_DIR to another folder, or NOVA_CACHE=0 to switch the cache off",
            CacheWarning,
            stacklevel=4,
        )

    def _scan(self) -> list[CacheEntry]:
        """Entries by last use; temporary files that nobody can be writing are removed."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as items:
            for item in items:
                with suppress(FileNotFoundError):
                    info = item.stat(follow_symlinks=False)
                    path, key = Path(item.path), item.name.removesuffix(_SUFFIX)
                    if item.name.endswith(_SUFFIX) and _KEY.fullmatch(key):
                        found.append(CacheEntry(key, path, info.st_size, info.st_mtime_ns))
                    stale = time.time() - info.st_mtime > _STALE_SECONDS
                    if item.name.startswith(TEMPORARY) and stale:
                        _remove(path)
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def _evict(self, keep: str) -> None:
        with suppress(OSError):
            entries = self._scan()
            total = sum(entry.nbytes for entry in entries)
            for entry in entries:
                if total <= self.max_bytes:
                    return
                if entry.key != keep:
                    total -= entry.nbytes
                    if _remove(entry.path):
                        self._count("evictions")


def _open_entry(path: Path, key: str) -> Artifact:
    """Read and check one entry, which must be a file of this user and hold its own key."""
    with open(path, "rb", opener=_open_here) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            fail("entry-owner", "not a plain file of this user")
        data = file.read()
    artifact = read_artifact(data)
    if artifact.manifest.key and cache_key(artifact.manifest.key) != key:
        fail("entry-key", "the file holds the artifact of another key")
    return artifact


def _open_here(path: str, flags: int) -> int:
    """No link is followed, and a pipe does not block: the checks after it see what is there."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            fail("entry-owner", "a symbolic link")
        raise


def _touch(path: Path) -> None:
    """Mark as used now. Explicit, because the file system's own clock ticks in milliseconds."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
