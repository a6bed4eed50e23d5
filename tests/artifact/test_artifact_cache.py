"""The disk cache: keys, hits, damage, bad folders, many processes, eviction."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from nova.artifact import files
from nova.artifact.cache import disk as module
from nova.artifact.cache import entries
from nova.artifact.cache.disk import CacheStats, DiskCache, cache_key, default_folder, explain
from nova.artifact.files import write_atomically
from nova.artifact.write import write_artifact
from nova.errors import CacheWarning

ROOT = Path(__file__).parents[2]


@pytest.fixture
def entry(contents):
    """Makes (key, artifact bytes) that differ by one part of the key; None is without key."""

    def make(number=0):
        parts = {} if number is None else {"text": "module", "number": str(number)}
        data = write_artifact(dataclasses.replace(contents, key=parts, stages={}))
        return cache_key(parts), data

    return make


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_warned_folders", set())
    return DiskCache(tmp_path / "made" / "nova", 1 << 30)


def test_key_and_explain():
    old = {"target": "cpu", "options": "O3", "text": "a\nb\nc"}
    assert cache_key(old) == cache_key(dict(reversed(old.items())))
    assert len(cache_key(old)) == 64
    assert cache_key(old) != cache_key({**old, "target": "x86_64"})
    assert explain(old, old) == "nothing differs: the keys are equal"
    new = {"target": "x86_64", "text": "a\nB\nc", "versions": "1"}
    assert explain(old, new).splitlines() == [
        "options is gone, it was 'O3'",
        "target differs: 'cpu' became 'x86_64'",
        "text differs: line 2: 'b' became 'B'",
        "versions is new: '1'",
    ]
    listed = {"options": "fast_math=False," + "x" * 70, "versions": "nova=1 llvm=2"}
    assert explain(
        listed, {"options": "fast_math=True," + "x" * 70, "versions": "nova=2 llvm=2"}
    ) == (
        "options differs: 'fast_math=False' became 'fast_math=True'\n"
        "versions differs: 'nova=1' became 'nova=2'"
    )
    assert "2 lines became 3" in explain({"text": "a\nb"}, {"text": "a\nb\nc"})


def test_hit_and_miss(cache, entry):
    key, data = entry()
    assert cache.get(key) is None
    cache.put(key, data)
    result = cache.get(key)
    assert bytes(result.data) == data
    assert result.manifest.key["number"] == "0"
    assert cache.stats == CacheStats(hits=1, misses=1, puts=1)
    assert oct(cache.folder.stat().st_mode & 0o777) == "0o700"
    assert oct(cache.path(key).stat().st_mode & 0o777) == "0o600"
    assert [e.key for e in cache.entries()] == [key]
    assert cache.verify() == {}
    assert cache.clear() == 1
    assert cache.entries() == []
    assert cache.get(key) is None


def test_keys_are_hashes(cache):
    for key in ("", "../escape", "A" * 64, "0" * 63, "0" * 64 + "\n"):
        with pytest.raises(ValueError, match="64 hexadecimal"):
            cache.get(key)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "swap", "nameless", "link", "foreign"])
def test_damaged_entry_is_rebuilt(cache, entry, damage, tmp_path):
    key, data = entry()
    cache.put(key, data)
    path = cache.path(key)
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        path.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "swap":
        path.write_bytes(entry(1)[1])
    elif damage == "nameless":
        path.write_bytes(entry(None)[1])
    elif damage == "foreign":
        path.write_bytes(b"#!/bin/sh\n" * 99)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    assert list(cache.verify()) == [path]
    with pytest.warns(CacheWarning, match=f"{path.name}: check '.*' failed") as caught:
        assert cache.get(key) is None
    assert len(caught) == 1
    assert not path.exists()
    assert cache.stats.damaged == 1
    cache.put(key, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(key) is not None


def test_folder_that_cannot_be_made(tmp_path, entry, monkeypatch):
    monkeypatch.setattr(module, "_warned_folders", set())
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / "file" / "nova"
    key, data = entry()
    with pytest.warns(CacheWarning, match="cannot be written .*NOVA_CACHE_DIR") as caught:
        for _ in range(2):
            cache = DiskCache(folder, 1 << 30)
            assert cache.get(key) is None
            cache.put(key, data)
            cache.put(key, data)
            assert cache.get(key) is None
            assert cache.entries() == []
            assert cache.clear() == 0
    assert len(caught) == 1
    assert cache.stats == CacheStats(misses=2)


@pytest.mark.parametrize("why", ["a file", "open to others", "another owner"])
def test_folder_that_cannot_be_trusted(cache, entry, why, monkeypatch):
    key, data = entry()
    cache.put(key, data)
    folder = cache.folder
    if why == "a file":
        folder.rename(folder.with_name("moved"))
        folder.write_text("")
    elif why == "open to others":
        (folder / "CACHEDIR.TAG").unlink()
        folder.chmod(0o750)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 123456)
    fresh = DiskCache(folder, 1 << 30)
    with pytest.warns(CacheWarning, match="is not a folder|other users|belongs to user") as caught:
        assert fresh.get(key) is None
        fresh.put(key, data)
        assert fresh.get(key) is None
        assert fresh.entries() == []
        with fresh.building(key) as result:
            assert result is None
    assert len(caught) == 1
    assert fresh.problem() in str(caught[0].message)
    if folder.is_dir():
        assert folder.stat().st_mode & 0o777 == (0o750 if why == "open to others" else 0o700)


def test_own_folder_is_made_private_again(cache, entry):
    key, data = entry()
    cache.put(key, data)
    cache.folder.chmod(0o777)
    fresh = DiskCache(cache.folder, 1 << 30)
    assert fresh.get(key) is not None
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_files_of_the_folder_are_private(cache, entry):
    key, data = entry()
    with cache.building(key) as result:
        assert result is None
        cache.put(key, data)
    names = {path.name: path.stat() for path in cache.folder.iterdir()}
    assert set(names) == {".lock", "CACHEDIR.TAG", f"{key}.nova"}
    assert {stat.st_mode & 0o777 for stat in names.values()} == {0o600}
    assert names[".lock"].st_size == 0
    assert (cache.folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f")


def test_reads_where_it_cannot_write(cache, entry, monkeypatch):
    key, data = entry()
    cache.put(key, data)

    def refuse(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.utime", refuse)
    monkeypatch.setattr(module, "write_atomically", refuse)
    with pytest.warns(CacheWarning, match="Read-only file system") as caught:
        cache.put(*entry(1))
        cache.put(*entry(2))
    assert len(caught) == 1
    assert cache.get(key) is not None


def test_unreadable_entry_is_kept(cache, entry, monkeypatch):
    key, data = entry()
    cache.put(key, data)

    def refuse(*args, **kwargs):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(entries, "_open_here", refuse)
        with pytest.warns(CacheWarning, match="Too many open files"):
            assert cache.get(key) is None
    assert cache.get(key) is not None


def test_eviction_follows_use(cache, entry):
    created = [entry(number) for number in range(5)]
    size = len(created[0][1])
    cache.max_bytes = 3 * size + size // 2
    for key, data in created[:3]:
        cache.put(key, data)
    assert cache.get(created[0][0]) is not None  # now 1 is the oldest
    cache.put(*created[3])
    assert [e.key for e in cache.entries()] == [created[2][0], created[0][0], created[3][0]]
    cache.put(*created[4])
    assert [e.key for e in cache.entries()] == [created[0][0], created[3][0], created[4][0]]
    assert cache.stats.evictions == 2
    assert sum(e.nbytes for e in cache.entries()) <= cache.max_bytes


def test_entry_above_the_bound(cache, entry):
    cache.max_bytes = 1000
    with pytest.warns(CacheWarning, match="may hold 1000 bytes") as caught:
        cache.put(*entry(0))
        cache.put(*entry(1))
    assert len(caught) == 1
    assert cache.entries() == []


def test_abandoned_temporary_files_go(cache, entry):
    cache.put(*entry(0))
    abandoned, alive, foreign = (
        cache.folder / name for name in (".nova-tmp-" + "0" * 16, ".nova-tmp-" + "1" * 16, ".tmp-1")
    )
    for path in (abandoned, alive, foreign):
        path.write_bytes(b"half")
    with open(alive, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer does
        cache.put(*entry(1))
        assert not abandoned.exists()
        assert alive.exists() and foreign.exists()
    cache.put(*entry(2))
    assert not alive.exists() and foreign.exists()
    assert len(cache.entries()) == 3


def test_writer_that_loses_its_new_file_makes_another(tmp_path, monkeypatch):
    """Another process may see the temporary file in the moment before it is locked."""
    stolen = []

    def steal(descriptor, operation):
        if not stolen:
            stolen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            os.unlink(stolen[0])
        fcntl.flock(descriptor, operation)

    monkeypatch.setattr(files, "fcntl", SimpleNamespace(flock=steal, LOCK_EX=fcntl.LOCK_EX))
    write_atomically(tmp_path / "a", b"whole")
    assert stolen and (tmp_path / "a").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("through_link", [False, True])
def test_pipes_and_devices_are_written_to_and_stay(tmp_path, through_link):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if through_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(path, [b"ab", b"c"])
        assert os.read(reader, 10) == b"abc"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and path.is_symlink() == through_link


def test_a_file_that_is_replaced_keeps_its_permission_bits(tmp_path):
    path, second = tmp_path / "a", tmp_path / "b"
    for bits in (0o600, 0o640, 0o755, 0o444):
        path.write_bytes(b"old")
        path.chmod(bits)
        write_atomically(path, b"new")
        assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == bits
        path.chmod(0o644)
    path.chmod(0o600)
    write_atomically(second, b"new", like=path)
    assert second.stat().st_mode & 0o777 == 0o600
    write_atomically(path, b"new", mode=0o400)
    assert path.stat().st_mode & 0o777 == 0o400
    umask = os.umask(0o027)
    try:
        write_atomically(tmp_path / "c", b"new")
    finally:
        os.umask(umask)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o640


def test_a_missing_folder_is_told_by_the_name_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        write_atomically(tmp_path / "no" / "x.nova", b"")
    assert error.value.filename == str(tmp_path / "no" / "x.nova")


WORKER = """
import sys
from pathlib import Path
from nova.artifact.cache.disk import DiskCache
import warnings
warnings.simplefilter("error")
folder, source, seed = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
data, key = (source / "shared").read_bytes(), (source / "shared.key").read_text()
cache = DiskCache(folder, len(data) + 10)  # room for one: everybody evicts everybody
other = (source / f"{seed}.key").read_text(), (source / seed).read_bytes()
hits = 0
for turn in range(60):
    cache.put(key, data)
    found = cache.get(key)
    if found is not None:
        assert bytes(found.data) == data
        hits += 1
    if turn % 10 == 9:
        cache.put(*other)
        if turn % 20 == 19:
            cache.clear()
print(hits)
"""


def test_many_processes(tmp_path, entry):
    for number, name in enumerate(["shared", "0", "1", "2", "3"]):
        key, data = entry(number)
        (tmp_path / name).write_bytes(data)
        (tmp_path / f"{name}.key").write_text(key)
    arguments = [sys.executable, "-c", WORKER, str(tmp_path / "cache"), str(tmp_path)]
    workers = [
        subprocess.Popen(
            [*arguments, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        for seed in range(4)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err.decode()
        assert int(out) > 0
    remaining = {path.name for path in (tmp_path / "cache").iterdir() if path.suffix != ".nova"}
    assert remaining == {"CACHEDIR.TAG"}


def test_many_threads(cache, entry):
    created = [entry(number) for number in range(3)]
    problems = []

    def work():
        try:
            for _ in range(30):
                for key, data in created:
                    cache.put(key, data)
                    assert bytes(cache.get(key).data) == data
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert cache.stats.puts == cache.stats.hits == 360


def test_default_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "nova"
