"""The child of `sandbox.py`: reads calls from stdin, runs them, and writes their results.

Only `sandbox.py` starts `main`. Functions that run here call `report` to tell the caller their
progress. Resources of a call are limited: address space, so that a text cannot fill the machine,
and CPU time, so that a child whose caller was killed does not run forever.
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
from nova.compiler.address_space import require_room
from nova.compiler.sandbox import is_inside, mark_inside
from nova.compiler.sandbox_wire import FRAME, dump, load
from nova.core.gc_pause import paused_gc
from nova.core.log import redirect
from nova.errors import CompileMemoryError, NovaError, SandboxError

# Address space of a call in addition to that of the process, and per byte of its text.
_MEMORY = 8 << 30
_MEMORY_PER_BYTE = 16
_SWITCH_SECONDS = 0.0005
_output: IO[bytes] | None = None
_writing = threading.Lock()  # worker threads log too
_knobs: dict[str, Any] = {}  # knobs of the caller's process, as last received
_kept: list[Any] = []  # released after the answer of the current call


def report(*words: Any) -> None:
    """Send a report to the caller: `report("begin", stage)` names the next stage."""
    if _output is not None:
        _write("report", *words)


def release_later(value: Any) -> None:
    """Keep `value` until the caller has the answer: to free a large module takes milliseconds."""
    if _output is not None:
        _kept.append(value)


def main() -> None:
    """Run calls until end of input."""
    global _output
    requests = os.fdopen(os.dup(0), "rb")
    _output = os.fdopen(os.dup(1), "wb")
    # Code that prints or reads must not use the pipes of the protocol.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Threads in LLVM need the GIL for microseconds between long calls.
    sys.setswitchinterval(_SWITCH_SECONDS)
    redirect(lambda topic, message: _write("log", topic, message))
    mark_inside()
    assert is_inside()
    while len(header := requests.read(FRAME.size)) == FRAME.size:
        (size,) = FRAME.unpack(header)
        data = requests.read(size)
        if len(data) == size:
            limit_memory(size, limits)
            with paused_gc():  # it collects after the answer
                _answer(data)
            _kept.clear()
            limit_memory(0, limits)  # that of the last call may be reached: MLIR would abort
            _prepare_next()


def _prepare_next() -> None:
    """Use the time until the next call, if this one used MLIR and the caller's limit allows it."""
    contexts = sys.modules.get("nova.ir.context")
    if contexts is not None:
        with suppress(CompileMemoryError, MemoryError):
            require_room()
            contexts.prepare_context()


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
    """Apply changes of the caller's environment, import path and folder."""
    if sys.path != path:
        sys.path[:] = path
        invalidate_caches()
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    if folder is not None:
        with suppress(OSError):  # it may have been removed
            os.chdir(folder)


def assign_knobs(values: Mapping[str, Any]) -> None:
    """Set the knobs of this process to the values of the caller."""
    for name, value in values.items():
        if name not in _knobs or _knobs[name] != value:
            setattr(knobs, name, value)
            _knobs[name] = value


def describe_failure(error: Exception) -> SandboxError:
    """Describe an unexpected exception: the text violates an assumption of a stage."""
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(__file__).parents[2])
    inner = [frame for frame in frames if frame.filename.startswith(root)] or frames
    at = f"{os.path.relpath(inner[-1].filename, root)}:{inner[-1].lineno}" if inner else "nowhere"
    message = " ".join(str(error).split())[:400]
    return SandboxError(
        f"it does not take the text: {type(error).__name__}: {message}",
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
    """Limit the address space for a text of `size` bytes; never above the inherited limit."""
    most = virtual_size() + _MEMORY + _MEMORY_PER_BYTE * size
    soft = min([most, *(limit for limit in inherited if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (soft, inherited[1]))


def limit_time(seconds: float) -> None:
    """Limit CPU time from now on; the caller enforces wall-clock time while it lives."""
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
    """The resident memory of this process, in bytes."""
    return _pages(1)
