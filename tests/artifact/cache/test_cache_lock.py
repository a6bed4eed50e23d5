"""The lock of a key: one holder, gone with its process, waited for but not for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import nova
from nova.artifact.cache import disk as cache_module
from nova.artifact.cache.disk import DiskCache
from nova.artifact.cache.locks import is_any_locked, try_lock, unlock
from nova.core.single_flight import SingleFlight

ROOT = Path(nova.__file__).parents[1]
A, B = "a" * 64, "b" * 64

HOLDER = """
import os, sys, time
from pathlib import Path
from nova.artifact.cache.locks import try_lock
assert try_lock(Path(sys.argv[1]), sys.argv[2]) is not None
if sys.argv[3] == "fork" and os.fork() == 0:
    print(os.getpid(), flush=True)  # lives on, and must not keep the lock
    time.sleep(60)
    os._exit(0)
if sys.argv[3] == "hold":
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def hold():
    """Start a process that takes a lock and keeps it; gives it, and the pid that it printed."""
    started, pids = [], []

    def start(folder: Path, key: str, mode: str = "hold") -> tuple[subprocess.Popen, int]:
        command = [sys.executable, "-c", HOLDER, str(folder), key, mode]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        pids.append(int(process.stdout.readline()))
        return process, pids[-1]

    yield start
    for process, pid in zip(started, pids, strict=True):
        if pid != process.pid:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_one_holder_a_key(tmp_path: Path) -> None:
    first = try_lock(tmp_path, A)
    assert first is not None
    assert try_lock(tmp_path, A) is None, "also inside of one process"
    second = try_lock(tmp_path, B)
    assert second is not None and is_any_locked(tmp_path)
    unlock(first)
    again = try_lock(tmp_path, A)
    assert again is not None
    unlock(again)
    assert is_any_locked(tmp_path)
    unlock(second)
    assert not is_any_locked(tmp_path)
    assert os.listdir(tmp_path) == [".lock"] and (tmp_path / ".lock").stat().st_size == 0


def test_lock_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(tmp_path, A)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", ["hold", "fork"])
def test_lock_dies_with_its_process(tmp_path: Path, hold, mode: str) -> None:
    holder, pid = hold(tmp_path, A, mode)
    assert try_lock(tmp_path, A) is None
    holder.kill()
    holder.wait()
    lock = try_lock(tmp_path, A)
    assert lock is not None, "killed, also while a forked child of it lives"
    if mode == "fork":
        os.kill(pid, 0)  # it is still there
    unlock(lock)


def test_waiting_is_bounded(tmp_path: Path, hold) -> None:
    hold(tmp_path, A)
    cache = DiskCache(tmp_path, 1 << 30, wait=0.2)
    started = time.monotonic()
    with cache.building(A) as result:
        assert result is None
    assert 0.2 <= time.monotonic() - started < 30
    assert cache.stats.waits == 1
    with cache.building(B) as result:
        assert result is None
    assert cache.stats.waits == 1, "another key does not wait"


def test_waiting_ends_when_the_holder_is_killed(tmp_path: Path, hold) -> None:
    holder, _ = hold(tmp_path, A)
    timer = threading.Timer(0.3, holder.kill)
    started = time.monotonic()
    timer.start()
    with DiskCache(tmp_path, 1 << 30, wait=60).building(A) as result:
        assert result is None and is_any_locked(tmp_path)
        assert 0.2 < time.monotonic() - started < 30
    timer.join()
    assert not is_any_locked(tmp_path)


def test_error_in_the_block_gives_the_lock_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    with pytest.raises(ZeroDivisionError), cache.building(A):
        assert is_any_locked(tmp_path)
        raise ZeroDivisionError
    assert not is_any_locked(tmp_path)


def test_folder_without_locks(tmp_path: Path, monkeypatch, capsys) -> None:
    def refuse(folder, key):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(cache_module, "try_lock", refuse)
    with nova.knobs.override(log="cache"), DiskCache(tmp_path, 1 << 30).building(A) as result:
        assert result is None
    assert "No locks available" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of later Pythons: that is it
def test_fork_while_another_thread_builds() -> None:
    """The thread is not in the child: it builds for itself instead of waiting for ever."""
    values: SingleFlight[int] = SingleFlight(4)
    inside, leave = threading.Event(), threading.Event()

    def slow() -> int:
        inside.set()
        leave.wait()
        return 1

    thread = threading.Thread(target=values.get, args=("key", slow))
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os._exit(values.get("key", lambda: 42)[0])
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert values.get("key", lambda: 0) == (1, True)
