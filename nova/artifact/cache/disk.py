"""The disk cache: one folder, one file per entry, each file a whole artifact.

The compile driver opens a `building` block with a key from `cache_key`, and gets the entry. After a
miss it compiles inside the block, while other processes with the same key wait for it, and calls
`put` with the bytes of `write_artifact`. An entry appears by rename, so a reader sees a whole file
or none, and a reader that has it open keeps it when it is evicted. Nothing here raises for a bad
folder or a bad file: there is one `CacheWarning`, and the program is compiled.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from nova import knobs
from nova.artifact.cache.entries import (
    CacheEntry,
    entry_path,
    mark_used,
    open_entry,
    remove_file,
    scan_folder,
)
from nova.artifact.cache.folder import find_problem, make_folder, tag_folder
from nova.artifact.cache.key import cache_key, explain
from nova.artifact.cache.locks import try_lock, unlock, wait_for_lock
from nova.artifact.files import write_atomically
from nova.artifact.format import Artifact
from nova.core.log import log, progress
from nova.core.records import record
from nova.errors import ArtifactError, CacheFolderError, CacheWarning

__all__ = ["CacheEntry", "CacheStats", "DiskCache", "cache_key", "explain", "open_cache"]

_warned_folders: set[Path] = set()  # one warning per folder and process, not per compile
_warned_homeless: list[str] = []


@record
class CacheStats:
    """Counters of one `DiskCache` object since its creation."""

    hits: int = 0
    misses: int = 0
    waits: int = 0
    puts: int = 0
    evictions: int = 0
    damaged: int = 0


def open_cache() -> DiskCache | None:
    """The disk cache that the knobs describe, enabled or not; None without a folder."""
    folder = cache_folder()
    if folder is None:
        return None
    return _shared_cache(folder, knobs.get("cache_size"), knobs.get("cache_wait"))


def trusted_folder() -> Path | None:
    """The folder of the cache; None if the cache is off, or others may write to its folder."""
    cache = open_cache() if knobs.get("cache") else None
    return None if cache is None or cache.problem() else cache.folder


def cache_folder() -> Path | None:
    """The folder from the knobs, or the user's; None, and one warning, if there is none."""
    folder = knobs.get("cache_dir")
    if folder:
        return Path(folder)
    try:
        return default_folder()
    except CacheFolderError as error:
        if not _warned_homeless:
            _warned_homeless.append(error.what)
            warnings.warn(
                f"{error.what}; compiled programs are not kept on disk. {error.hint}",
                CacheWarning,
                stacklevel=3,
            )
        return None


def default_folder() -> Path:
    """The user's cache folder for Nova on this platform; CacheFolderError if there is none."""
    hint = "Set NOVA_CACHE_DIR to a folder, or NOVA_CACHE=0 to switch the cache off"
    try:
        import platformdirs

        folder = Path(platformdirs.user_cache_dir("nova", appauthor=False))
    except ImportError:
        raise CacheFolderError(
            "the user's cache folder is not known without the package platformdirs", hint=hint
        ) from None
    except (RuntimeError, KeyError, OSError):  # HOME is not set, and the user id is unknown
        folder = Path("~")
    if not folder.is_absolute():
        raise CacheFolderError("this user has no home folder, and so no cache folder", hint=hint)
    return folder


class DiskCache:
    """Artifacts by key in `folder`, at most `max_bytes`, with LRU eviction.

    A process waits at most `wait` seconds for another one that builds the same key. Thread-safe.
    Reading works even if writing is not possible.
    """

    def __init__(self, folder: Path, max_bytes: int, wait: float = 300):
        self.folder, self.max_bytes, self.wait = Path(folder), max_bytes, wait
        self._counts = dict.fromkeys(CacheStats.__dataclass_fields__, 0)
        self._lock = threading.Lock()
        self._trusted: bool | None = None  # None: the folder was not checked yet
        self._writable = True

    @property
    def stats(self) -> CacheStats:
        """Counters of this object; other processes that use the folder have their own."""
        with self._lock:
            return CacheStats(**self._counts)

    def path(self, key: str) -> Path:
        """The path of the entry of a key, which may not exist."""
        return entry_path(self.folder, key)

    def get(self, key: str) -> Artifact | None:
        """The entry, marked as used now; None on a miss. A damaged entry is removed: a miss."""
        path = self.path(key)
        artifact = self._read(path, key) if self._is_trusted() else None
        self._count("misses" if artifact is None else "hits")
        return artifact

    @contextmanager
    def building(self, key: str) -> Iterator[Artifact | None]:
        """Yields the entry, or None for a block that must build the key and `put` it.

        One process builds, and the others get its entry. If it takes longer than `wait`, or if
        there are no locks, they build too: their results are the same.
        """
        artifact, lock = self.get(key), None
        if artifact is None and self._prepare():
            artifact, lock = self._take_lock(key)
        try:
            yield artifact
        finally:
            if lock is not None:
                unlock(lock)

    def put(self, key: str, data: bytes) -> None:
        """Store an artifact, then evict until the folder is within its limit."""
        path = self.path(key)
        if self._writable and len(data) > self.max_bytes:
            self._warn_folder(f"may hold {self.max_bytes} bytes, fewer than one entry has")
            return
        if not self._prepare():
            return
        try:
            # Not synced: the seal detects a file that a power cut has damaged, when it is read.
            write_atomically(path, data, mode=0o600, sync=False)
            with suppress(FileNotFoundError):  # another process has already evicted it
                mark_used(path)
            tag_folder(self.folder)
        except OSError as error:
            self._refuse_writing(error)
            return
        self._count("puts")
        self._evict(keep=key)

    def problem(self) -> str | None:
        """Why the folder is not used, or None."""
        return find_problem(self.folder)

    def entries(self) -> list[CacheEntry]:
        """All entries, the least recently used first."""
        return scan_folder(self.folder) if self._is_trusted() else []

    def read(self, entry: CacheEntry) -> Artifact:
        """Read an entry for inspection: not marked as used, not removed if damaged.

        ArtifactError for a damaged entry, FileNotFoundError for one that was evicted concurrently.
        """
        return open_entry(entry.path, entry.key)

    def verify(self) -> dict[Path, str]:
        """Read every entry; returns the failed check of each damaged one, and removes nothing."""
        problems = {}
        for entry in self.entries():
            with suppress(FileNotFoundError):
                try:
                    self.read(entry)
                except (ArtifactError, OSError) as error:
                    problems[entry.path] = str(error)
        return problems

    def remove(self, entry: CacheEntry) -> bool:
        """Remove one entry; False if it did not exist."""
        return remove_file(entry.path)

    def clear(self) -> int:
        """Remove every entry; returns their number."""
        return sum(self.remove(entry) for entry in self.entries())

    # --- internals ------------------------------------------------------------------------------

    def _count(self, event: str) -> None:
        with self._lock:
            self._counts[event] += 1

    def _take_lock(self, key: str) -> tuple[Artifact | None, int | None]:
        """The entry that another process has built, or the lock; neither after a timeout."""
        path = self.path(key)
        built: list[Artifact] = []

        def is_built() -> bool:
            if path.exists() and (artifact := self._read(path, key)) is not None:
                built.append(artifact)
            return bool(built)

        try:
            lock = try_lock(self.folder, key)
            if lock is None:
                self._count("waits")
                log("cache", f"wait {key[:12]}: another process compiles it")
                with progress("waiting for another process that compiles the same program"):
                    lock = wait_for_lock(self.folder, key, self.wait, unless=is_built)
        except OSError as error:
            log("cache", f"no locks in {self.folder}: {error.strerror}")
            return None, None
        # Also with the lock: its last owner may have written the entry after the miss.
        if built or is_built():
            return built[0], lock
        if lock is None:
            log("cache", f"wait {key[:12]}: over after {self.wait:g} s, compiling it too")
        return None, lock

    def _read(self, path: Path, key: str) -> Artifact | None:
        try:
            artifact = open_entry(path, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ArtifactError as error:
            self._count("damaged")
            remove_file(path)
            warnings.warn(
                f"removed the damaged cache entry {path}: {error.what}; it will be built again",
                CacheWarning,
                stacklevel=3,
            )
            return None
        except OSError as error:  # too many open files, no permission: the entry may be valid
            self._warn_folder(f"cannot be read ({error.strerror})")
            return None
        with suppress(OSError):  # a read-only folder can still be read
            mark_used(path)
        return artifact

    def _prepare(self) -> bool:
        """Create the folder; returns whether it is writable."""
        if self._writable:
            try:
                make_folder(self.folder)
            except OSError as error:
                self._refuse_writing(error)
            else:
                self._trusted = None  # it may have just been created
                self._is_trusted()
        return self._writable

    def _is_trusted(self) -> bool:
        """Whether nobody else could have put code into the folder; a missing folder is fine."""
        if self._trusted is None:
            why = find_problem(self.folder)
            self._trusted = why is None
            if why is not None:
                self._writable = False
                self._warn_folder(why)
        return self._trusted

    def _refuse_writing(self, error: OSError) -> None:
        self._writable = False
        self._warn_folder(f"cannot be written ({error.strerror or error})")

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

    def _evict(self, keep: str) -> None:
        """Remove the least recently used entries beyond the limit.

        Processes that evict concurrently remove the same entries; the last one to `put` counts the
        entries of all.
        """
        with suppress(OSError):
            entries = scan_folder(self.folder)
            total = sum(entry.nbytes for entry in entries)
            for entry in entries:
                if total <= self.max_bytes:
                    return
                if entry.key != keep:
                    total -= entry.nbytes
                    if remove_file(entry.path):
                        self._count("evictions")


# One object per folder and process, and so one set of counters and one warning.
_shared_cache = cache(DiskCache)
