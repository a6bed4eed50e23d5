"""Compiles the C runtime of files for another architecture, with any available compiler.

In: the sources in the package. Out: one relocatable object, which is kept in the user's cache
folder. Called by `runtime_object.py`, when a file for another architecture is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from nova import knobs
from nova.artifact.cache.disk import cache_folder
from nova.artifact.elf.shared_object import link_shared
from nova.artifact.files import write_atomically
from nova.core.log import log
from nova.errors import CodegenError

FLAGS = (
    "-std=c11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
    "-fno-builtin-bcmp",
    "-fno-unwind-tables",
    "-fno-exceptions",
    "-fno-ident",
    "-fno-jump-tables",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
)
# Inline atomics: gcc's default calls functions of libgcc, which no file contains.
ARCH_FLAGS = {
    "x86_64": ("-fcf-protection=none",),
    "aarch64": ("-mno-outline-atomics", "-mbranch-protection=none"),
}
_COMPILERS = (
    ("{arch}-linux-gnu-gcc", "-nostdlib"),
    ("clang", "--target={arch}-linux-gnu", "-nostdlib", "-fuse-ld=lld"),
    ("zig", "cc", "-target", "{arch}-linux-gnu", "-g0"),  # without a library: without its headers
)
SOURCE_LIST = "sources.txt"
"""Names of the C files, one a line, as the build writes them."""
_TIMEOUT_SECONDS = 1200
_DIGEST_SIZE = 32


def compile_runtime(arch: str, sources: Path) -> tuple[bytes | None, str]:
    """The object of the first compiler that succeeds, or None and the errors of all."""
    reasons = []
    for command in _compilers(arch):
        data, reason = _compile(command, arch, sources)
        if data is not None:
            return data, ""
        reasons.append(f"{command[0]}: {reason}")
    compilers = ", ".join(" ".join(words).format(arch=arch) for words in _COMPILERS)
    return None, "; ".join(reasons) or f"no cross compiler was found ({compilers})"


def listed_sources(sources: Path) -> list[Path]:
    """The C files of the runtime; the folder may have files of an older install as well."""
    with suppress(FileNotFoundError):
        names = (sources / SOURCE_LIST).read_text().split()
        return sorted(sources / name for name in names)
    return []


def _compilers(arch: str) -> Iterator[list[str]]:
    for words in _COMPILERS:
        command = [word.format(arch=arch) for word in words]
        path = shutil.which(command[0])
        has_linker = "-fuse-ld=lld" not in command or shutil.which("ld.lld") is not None
        if path is not None and has_linker:
            yield [path, *command[1:]]


def _compile(command: Sequence[str], arch: str, sources: Path) -> tuple[bytes | None, str]:
    """The object from the cache folder or from the compiler, or the reason of the failure."""
    flags = [*FLAGS, *ARCH_FLAGS[arch]]
    code, version = _run([*command, "--version"])
    if code:
        return None, version
    key = sha256("\0".join([*command, *flags, version]).encode())
    inputs = listed_sources(sources)
    for path in sorted({*inputs, *sources.rglob("*.h")}):
        key.update(f"{path.relative_to(sources)}\0".encode() + sha256(path.read_bytes()).digest())
    folder = _cache_folder()
    cached = folder / f"runtime-{arch}-{key.hexdigest()[:32]}.o" if folder else None
    data = _read_kept(cached) if cached else None
    if data is not None:
        return data, ""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "runtime.o"
        log("compile", f"compiling the C runtime for {arch} with {command[0]}")
        include = ["-I", str(sources / "include"), "-I", str(sources)]
        code, text = _run([*command, "-r", *flags, *include, "-o", str(out), *map(str, inputs)])
        if code:
            return None, text
        data = out.read_bytes()
    try:
        link_shared([], [], {}, arch=arch, runtime=data)
    except CodegenError as error:  # it calls a library of its compiler
        return None, error.what
    if cached:
        # A read-only folder costs a compile in every process, nothing else.
        with suppress(OSError):
            cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(cached, sha256(data).digest() + data, mode=0o600, sync=False)
    return data, ""


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code, and the first lines of the output of the command."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return process.returncode, " ".join((process.stderr or process.stdout).split("\n")[:3]).strip()


def _cache_folder() -> Path | None:
    """The folder of kept objects; None if the cache is off, or has no folder."""
    return cache_folder() if knobs.get("cache") else None


def _read_kept(path: Path) -> bytes | None:
    """A complete kept object, in a folder that only this user can write."""
    with suppress(OSError):
        status = path.parent.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022:
            data = path.read_bytes()
            if sha256(data[_DIGEST_SIZE:]).digest() == data[:_DIGEST_SIZE]:
                return data[_DIGEST_SIZE:]
    return None
