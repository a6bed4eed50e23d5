"""The C runtime that goes into files: one relocatable object per architecture.

The compile driver calls `runtime_object`, whose result `link_shared` takes. The object for this
machine comes with the package, next to the native module; for another architecture
`cross_compile.py` compiles the sources of the package.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from nova import _native
from nova.core.log import log


def runtime_object(arch: str) -> bytes | None:
    """The object, or None if there is none: `why_no_runtime` and `NOVA_LOG` give the reason."""
    data, reason = _find(arch)
    if data is None:
        log("compile", reason)
    return data


def why_no_runtime(arch: str) -> str:
    """Why files for `arch` get no C entry points; "" if they do."""
    return _find(arch)[1]


@cache
def runtime_key(arch: str) -> str:
    """The identity of the object in cache keys; "none" if there is none."""
    data, _ = _find(arch)
    return "none" if data is None else sha256(data).hexdigest()[:16]


def _folder() -> Path:
    return Path(_native.__file__).parent / "embedded"


@cache
def _find(arch: str) -> tuple[bytes | None, str]:
    folder = _folder()
    with suppress(FileNotFoundError):
        return (folder / f"runtime-{arch}.o").read_bytes(), ""
    sources = folder / "src"
    from nova.artifact.elf.cross_compile import compile_runtime, listed_sources

    if listed_sources(sources):
        data, reason = compile_runtime(arch, sources)
    else:
        data, reason = None, "the package came without a runtime and its sources"
    return data, f"files for {arch} have no C entry points: {reason}" if data is None else ""
