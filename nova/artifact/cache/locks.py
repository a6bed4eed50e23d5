"""Locks between processes: who may build a key of the disk cache now.

`DiskCache.building` asks for one. All locks of a folder are byte ranges of one empty file, at an
offset that the key gives, so that nothing piles up. They are Linux's open file description locks:
they hold between threads and between processes, and the kernel drops them when their owner ends,
however it ends. No lock can be stale.
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
_BUSY = (BlockingIOError, PermissionError)  # EAGAIN or EACCES, as the file system likes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1  # seconds between two tries

_held: set[int] = set()
_no_fork = threading.RLock()  # between opening a descriptor and noting it


def try_lock(folder: Path, key: str) -> int | None:
    """Take the lock of a key: a descriptor for `unlock`, or None when somebody else has it.

    OSError where the folder cannot be written or its file system has no locks.
    """
    with _no_fork:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK_FILE, flags, 0o600)
        _held.add(descriptor)
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
    """Like `try_lock`, again and again; None as soon as `unless` holds, or when time is over."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while (lock := try_lock(folder, key)) is None:
        if unless() or time.monotonic() >= end:
            return None
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    return lock


def unlock(descriptor: int) -> None:
    """Give a lock back; nothing happens in a forked child, which does not have it."""
    with _no_fork:
        if descriptor in _held:
            _held.remove(descriptor)
            os.close(descriptor)


def is_any_locked(folder: Path) -> bool:
    """Whether some process builds something in this folder now."""
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
    """A forked child shares its parent's descriptions: it must not keep their locks alive."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()
    _no_fork.release()


os.register_at_fork(
    before=_no_fork.acquire,
    after_in_parent=_no_fork.release,
    after_in_child=_forget_in_child,
)
