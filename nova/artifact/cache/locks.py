"""Locks between processes: which one may build a key of the disk cache.

`DiskCache.building` takes one. All locks of a folder are byte ranges of one empty file, at an
offset derived from the key, so that no files accumulate. They are Linux open file description
locks: they work between threads and between processes, and the kernel releases them when their
owner exits for any reason. No lock can be stale.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

LOCK_FILE = ".lock"

_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_BUSY = (BlockingIOError, PermissionError)  # EAGAIN or EACCES, depending on the file system
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between two attempts

_locked: set[int] = set()
_no_fork = threading.RLock()  # between opening and registering a descriptor


def try_lock(folder: Path, key: str) -> int | None:
    """Take the lock of a key: a descriptor for `unlock`, or None if it is taken.

    OSError if the folder is not writable or its file system has no locks.
    """
    with _no_fork:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK_FILE, flags, 0o600)
        _locked.add(descriptor)
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _offset(key), 1, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except _BUSY:
        unlock(descriptor)
        return None
    except BaseException:
        unlock(descriptor)
        raise
    return descriptor


def wait_for_lock(folder: Path, key: str, seconds: float, unless: Callable[[], bool]) -> int | None:
    """Retry `try_lock`; None as soon as `unless` holds, or after the timeout."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while (lock := try_lock(folder, key)) is None:
        if unless() or time.monotonic() >= end:
            return None
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    return lock


def unlock(descriptor: int) -> None:
    """Release a lock; a no-op in a forked child, which does not own it."""
    with _no_fork:
        if descriptor in _locked:
            _locked.remove(descriptor)
            os.close(descriptor)


def is_any_locked(folder: Path) -> bool:
    """Whether some process currently builds something in this folder."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request)
        return _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


def _offset(key: str) -> int:
    return int(key[:15], 16)  # 60 bits: offsets are signed 64-bit numbers


def _forget_in_child() -> None:
    """A forked child shares its parent's file descriptions: it must not keep their locks alive."""
    for descriptor in _locked:
        os.close(descriptor)
    _locked.clear()
    _no_fork.release()


os.register_at_fork(
    before=_no_fork.acquire,
    after_in_parent=_no_fork.release,
    after_in_child=_forget_in_child,
)
