"""The child of `sandbox.py`: reads calls from stdin, runs them, and writes what came of them.

`main` is started by `sandbox.py` only. `report` is for functions that run here: it tells the caller
how far they are. What a call may take is limited: address space, so that a text cannot fill the
machine, and processor time, so that a child whose caller was killed does not go on for ever.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import IO, Any

from nova import knobs
from nova.compiler.sandbox import is_inside, mark_inside
from nova.compiler.sandbox_wire import FRAME, dump, load
from nova.core.log import redirect
from nova.errors import NovaError, SandboxError

# Address space of a call on top of that of the process, and for each byte of its text.
_MEMORY = 8 << 30
_MEMORY_PER_BYTE = 16
_output: IO[bytes] | None = None
_writing = threading.Lock()  # worker threads have log lines too
_knobs: dict[str, Any] = {}  # those of the caller's process, as they were told last


def report(*words: Any) -> None:
    """Tell the caller something: `report("begin", stage)` names the stage that follows."""
    if _output is not None:
        _write("report", *words)


def main() -> None:
    """Run calls until there are no more."""
    global _output
    requests = os.fdopen(os.dup(0), "rb")
    _output = os.fdopen(os.dup(1), "wb")
    # Whatever prints something must not speak to the caller, nor read its calls.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    redirect(lambda topic, message: _write("log", topic, message))
    mark_inside()
    assert is_inside()
    while len(header := requests.read(FRAME.size)) == FRAME.size:
        (size,) = FRAME.unpack(header)
        data = requests.read(size)
        if len(data) == size:
            limit_memory(size, limits)
            _answer(data)


def _answer(data: bytes) -> None:
    try:
        name, args, values, overridden, seconds, surroundings = load(data)
        if surroundings is not None:
            move_to(**surroundings)
        assign_knobs(values)
        module, _, function = name.partition(":")
        with knobs.override(**overridden), warnings.catch_warnings():
            limit_time(seconds * (knobs.get("threads") + 1))
            warnings.simplefilter("always")
            warnings.showwarning = _warn
            result = getattr(import_module(module), function)(*args)
        _write("done", result, resident_size())
    except NovaError as error:
        _write_error(error)
    except MemoryError:
        _write_error(SandboxError("the text needs more memory than it may take"))
    except Exception as error:
        _write_error(describe_failure(error))


def move_to(path: list[str], environment: Mapping[str, str], folder: str | None) -> None:
    """Take over what has changed around the caller."""
    if sys.path != path:
        sys.path[:] = path
        invalidate_caches()
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    if folder is not None:
        with suppress(OSError):  # it may be gone again
            os.chdir(folder)


def assign_knobs(values: Mapping[str, Any]) -> None:
    """Give the knobs of this process the values that those of the caller's have."""
    for name, value in values.items():
        if name not in _knobs or _knobs[name] != value:
            setattr(knobs, name, value)
            _knobs[name] = value


def describe_failure(error: Exception) -> SandboxError:
    """An exception that no check foresaw: the text broke what the code of a stage relies on."""
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(__file__).parents[2])
    inner = [frame for frame in frames if frame.filename.startswith(root)] or frames
    at = f"{os.path.relpath(inner[-1].filename, root)}:{inner[-1].lineno}" if inner else "nowhere"
    said = " ".join(str(error).split())[:400]
    return SandboxError(
        f"it does not take the text: {type(error).__name__}: {said}",
        hint=f"raised at {at}; the text breaks a rule that this stage relies on",
    )


def _write_error(error: NovaError) -> None:
    more = {k: v for k, v in vars(error).items() if isinstance(v, int | float | str | None)}
    more = {k: v for k, v in more.items() if k not in ("what", "where", "hint")}
    notes = list(getattr(error, "__notes__", ()))
    _write("error", type(error).__name__, error.what, error.where, error.hint, more, notes)


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    _write("warn", str(message), category.__name__)


def _write(*words: Any) -> None:
    assert _output is not None
    data = dump(words)
    with _writing:
        _output.write(FRAME.pack(len(data)) + data)
        _output.flush()


def limit_memory(size: int, inherited: tuple[int, int]) -> None:
    """The address space that a text of `size` bytes may take; never more than was inherited."""
    most = virtual_size() + _MEMORY + _MEMORY_PER_BYTE * size
    soft = min([most, *(limit for limit in inherited if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (soft, inherited[1]))


def limit_time(seconds: float) -> None:
    """Processor time from now on; the caller watches the clock, as long as it lives."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _pages(field: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()


def virtual_size() -> int:
    """The address space of this process, in bytes."""
    return _pages(0)


def resident_size() -> int:
    """The memory of this process, in bytes."""
    return _pages(1)
