"""Large PTX that is loaded on a GPU of this machine, assembled in parts by `ptxas`.

In: PTX, its architecture, and the CUDA version of the driver. Out: a bundle of cubins, or None: the
driver compiles the PTX. The driver compiles one module at a time, in whatever thread it is called
(4.7 s for the 50 kernels of a GPT-2 step); 16 processes of `ptxas` take 0.5 s. Bundles are kept in
the cache folder, as the driver keeps what it compiles. Files never hold them: their bytes do not
depend on an assembler that is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from itertools import chain
from pathlib import Path

from nova.artifact.cache.disk import trusted_folder
from nova.artifact.cache.folder import find_problem, make_folder
from nova.artifact.cubins.bundle import pack_cubins
from nova.artifact.cubins.ptxas import assemble_any, code_key, find_ptxas, ptxas_version
from nova.artifact.files import write_atomically
from nova.core.log import log
from nova.errors import PtxasError

_LEAST_BYTES = 256 << 10
"""Bytes of PTX from which this is worth its processes: the driver takes about a second."""
_PART_BYTES = 48 << 10
_MOST_BUNDLES = 64
_FOLDER = "cubins"
_DIGEST = hashlib.sha256
_KEY = re.compile("[0-9a-f]{64}")
_ENTRY = re.compile(r"^\.visible \.entry ([\w$.]+)", re.MULTILINE)
# Anything that several modules would share: only kernels and their shared memory are cut.
_SHARED = re.compile(r"\.func\b|^\.(visible )?(global|const)\b|^\.(weak|common|alias)\b", re.M)


def bundle_for(ptx: bytes, arch: str, driver_version: tuple[int, int]) -> bytes | None:
    """The cubins of large PTX; None if it is small, or no `ptxas` fits the driver."""
    if len(ptx) < _LEAST_BYTES:
        return None
    text = ptx.decode("ascii", "replace")
    parts = split_ptx(text, max(2, min(len(text) // _PART_BYTES, 4 * (os.cpu_count() or 1))))
    if len(parts) < 2:
        return None
    try:
        if not makes_cubins_for(driver_version):
            return None
        key = code_key(ptx, arch)
        if (bundle := _read(key)) is not None:
            return bundle
        bundle = _assemble(parts, arch)
    except PtxasError as error:
        # The driver compiles the PTX instead, and reports the error if there is one.
        log("load", f"the driver compiles the PTX: {error.what}")
        return None
    _write(key, bundle)
    return bundle


def makes_cubins_for(driver_version: tuple[int, int]) -> bool:
    """Whether a `ptxas` is here whose cubins such a driver loads: it is not a newer one."""
    if find_ptxas() is None:
        return False
    major, minor, _ = map(int, ptxas_version().split("."))
    return (major, minor) <= driver_version


def split_ptx(text: str, count: int) -> list[str]:
    """At most `count` modules of about the same size with the kernels of `text`."""
    starts = [match.start() for match in _ENTRY.finditer(text)]
    if not starts or _SHARED.search(text):
        return [text]
    kernels = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    parts: list[list[str]] = [[] for _ in range(min(count, len(kernels)))]
    for kernel in sorted(kernels, key=len, reverse=True):  # longest first: no part ends late
        min(parts, key=lambda part: sum(map(len, part))).append(kernel)
    return ["".join(chain([text[: starts[0]]], part)) for part in parts]


def _assemble(parts: Sequence[str], arch: str) -> bytes:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # A thread inherits the knobs of its creator.
        jobs = [pool.submit(copy_context().run, assemble_any, part, arch) for part in parts]
        assembled = [job.result() for job in jobs]
    return pack_cubins([part.cubin for part in assembled], [_ENTRY.findall(part) for part in parts])


# --- the folder of bundles ------------------------------------------------------------------------


def _read(key: str) -> bytes | None:
    """The bundle of a key; None if there is none, or if it is damaged."""
    folder = _folder()
    if folder is None:
        return None
    with suppress(OSError):
        descriptor = os.open(folder / key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
            data = file.read()
        digest, bundle = data[: _DIGEST().digest_size], data[_DIGEST().digest_size :]
        if _DIGEST(key.encode() + bundle).digest() == digest:
            os.utime(folder / key)
            return bundle
    return None


def _write(key: str, bundle: bytes) -> None:
    """Keep a bundle; the least recently used ones are removed."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError):  # a read-only folder: it is assembled again next time
        make_folder(folder.parent)
        make_folder(folder)
        digest = _DIGEST(key.encode() + bundle).digest()
        path = folder / key
        if path.exists() and not path.is_file():  # a write into a pipe would wait
            return
        write_atomically(path, digest + bundle, mode=0o600, sync=False)
        _evict(folder)


def _evict(folder: Path) -> None:
    """Remove the least recently used bundles; anything else in the folder is left alone."""
    bundles = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _KEY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                bundles.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for _, path in sorted(bundles)[:-_MOST_BUNDLES]:
        Path(path).unlink(missing_ok=True)


def _folder() -> Path | None:
    """The folder of bundles; None without a cache or if others may write to it."""
    cache = trusted_folder()
    if cache is None:
        return None
    folder = cache / _FOLDER
    return None if folder.is_symlink() or find_problem(folder) else folder
