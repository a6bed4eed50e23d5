"""Objects and programs of C, each built once a test run, by whichever process needs it first.

`compile_objects`, `build_archive` and `build_program` give files in a folder that all processes of
a run share; the name of one is a digest of how it is made. `build_test` is for the C tests of the
runtime, under sanitizers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

FOLDER = "TESTS_BUILD_FOLDER"
"""The variable that names the folder: tests/conftest.py sets it for all processes of a run."""

NATIVE = Path(__file__).resolve().parents[2] / "native"
MEMORY, THREADS = "address,undefined", "thread"
"""Sanitizers that the C tests are built with."""
RUNTIME_FOLDERS = (
    *("base", "loader", "exec", "scheduler"),
    *("gpu", "gpu/control", "gpu/cuda", "gpu/persistent", "api"),
)
"""Folders of native/src that are the runtime, as in native/CMakeLists.txt."""
WRAP = ["-Wl,--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc,--wrap=realloc"]
"""For those that count allocations: native/tests/support/allocations.h."""

# Without optimization gcc takes a third of the time, and the sanitizers see every access.
_FLAGS = ["-std=c11", "-g", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread"]
_FLAGS += ["-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]


def compile_objects(sources: Iterable[Path], flags: Sequence[str]) -> list[Path]:
    """An object of each source."""
    return [_compile(source, flags) for source in sources]


def build_program(
    sources: Iterable[Path], flags: Sequence[str], link: Sequence[str | Path] = ()
) -> Path:
    """A program of some sources; `link` is for the linker only: archives and flags."""
    command = ["gcc", *flags, *map(str, compile_objects(sources, flags)), *map(str, link)]
    return _once(command, "", lambda path: _run([*command, "-o", str(path)]))


def build_archive(sources: Iterable[Path], flags: Sequence[str]) -> Path:
    """The objects as an archive: what a program has itself is not taken from it."""
    command = ["ar", "rcs", *map(str, compile_objects(sources, flags))]
    return _once(command, ".a", lambda path: _run([*command[:2], str(path), *command[2:]]))


def _compile(source: Path, flags: Sequence[str]) -> Path:
    command = ["gcc", *flags, "-c", str(source)]
    return _once(command, f"-{source.stem}.o", lambda path: _run([*command, "-o", str(path)]))


def _run(command: list[str]) -> None:
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def _once(key: Sequence[str], suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of a key; `make` is called where it is not there yet, by one process."""
    digest = hashlib.sha256("\0".join(key).encode()).hexdigest()[:24]
    path = Path(os.environ[FOLDER]) / (digest + suffix)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            created = path.with_name(f"new-{path.name}")
            make(created)
            created.rename(path)
    return path


def sanitized(sanitizers: str) -> list[str]:
    """Flags for a C test with sanitizers."""
    return [*_FLAGS, f"-fsanitize={sanitizers}"]


def build_runtime(sanitizers: str) -> Path:
    """The runtime as an archive: what a test defines itself is not taken from it."""
    sources = runtime_sources(without=("enclosing_file.c",))
    return build_archive(sources, sanitized(sanitizers))


def runtime_sources(without: Sequence[str]) -> list[Path]:
    """The C sources of the runtime, less the files named in `without`."""
    folders = [NATIVE / "src" / name for name in RUNTIME_FOLDERS]
    sources = [path for folder in folders for path in folder.glob("*.c")]
    return sorted(path for path in sources if path.name not in without)


def build_test(source: Path, sanitizers: str, *flags: str) -> Path:
    """A C test linked with the archive of `build_runtime`."""
    return build_program([source], sanitized(sanitizers), [build_runtime(sanitizers), *flags])
