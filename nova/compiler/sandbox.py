"""Runs a function of Nova in a child process: for libraries that crash on hostile input.

MLIR and LLVM abort or hang on some invalid texts. `run_sandboxed` runs a function on such a text in
a child process that is reused, so a call costs the transfer of its arguments and its result, not
the start of an interpreter. A child that dies, by a signal, out of memory or at its time limit, is
a `SandboxError` with its stage and its stderr; the next call starts another child. Children are
spawned, never forked: forking a process that has native threads is not safe. `sandbox_start.py` and
`sandbox_child.py` run in the child. A call sends the knobs, and the changes since the last call of
the environment, `sys.path` and the current folder, so the child behaves as the caller would. Its
log lines go to the caller's log.

Called for every text of unknown origin: `nova.translate`, `nova-opt`, the text in a file, bytecode,
and LLVM IR. Programs from Nova's own API are compiled in the caller's process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from nova import errors, knobs
from nova.compiler.sandbox_wire import FRAME, dump, load
from nova.core.log import log
from nova.errors import NovaError, SandboxError

_START = Path(__file__).with_name("sandbox_start.py")
# Idle children to keep, calls before a child is replaced, and its memory limit at that point.
_MOST_IDLE = 4
_MOST_CALLS = 500
_MOST_RESIDENT = 2 << 30
# Texts of stages fit into the pipe: the child goes on while the caller reads them.
_PIPE_BYTES = 1 << 20
_TAIL_LINES = 8
_TAIL_BYTES = 4096

Observe = Callable[..., None]
_inside = False


def mark_inside() -> None:
    """Mark this process as a sandbox child: nested calls run in it."""
    global _inside
    _inside = True


def is_inside() -> bool:
    """Whether this process is a sandbox child."""
    return _inside


def run_sandboxed(
    function: str,
    *args: Any,
    where: str | None = None,
    stage: str = "parse",
    seconds: float | None = None,
    observe: Observe | None = None,
) -> Any:
    """Run `function`, named as `module:name`, on `args` in a child process and return its result.

    Errors name the location `where`; `stage` is the first stage of the child. `observe` gets the
    arguments of every `report` call of the function: `report("begin", stage)` names the next stage.
    An error of the function is raised here.
    """
    limit = knobs.get("text_seconds") if seconds is None else seconds
    call = _Call(function, args, where, stage, limit, observe)
    child = _take()
    try:
        result = child.call(call)
    except _ChildDied as died:
        child.kill()
        raise call.explain(died) from None
    except BaseException:
        if child.is_busy:  # interrupted: its result is not needed
            child.kill()
        else:
            _give(child)
        raise
    _give(child)
    return result


class _ChildDied(Exception):
    """The child died: `status` is that of the process, None after a timeout."""

    def __init__(self, status: int | None, output: str):
        super().__init__(status, output)
        self.status, self.output = status, output


class _Call:
    """One call: its arguments, and its current stage."""

    def __init__(
        self,
        function: str,
        args: tuple[Any, ...],
        where: str | None,
        stage: str,
        seconds: float,
        observe: Observe | None,
    ):
        self.request = (function, args, *_knob_values(), seconds)
        self.where, self.stage, self.seconds, self.observe = where, stage, seconds, observe

    def see(self, words: tuple[Any, ...]) -> None:
        if words[0] == "begin":
            self.stage = words[1]
        if self.observe is not None:
            self.observe(*words)

    def explain(self, died: _ChildDied) -> SandboxError:
        tail = "\n".join(died.output.splitlines()[-_TAIL_LINES:])
        message = f"stage {self.stage}: the compiler {_ending(died, self.seconds)}"
        if tail:
            message += f"; it said:\n{tail}"
        hint = (
            "raise the knob text_seconds if the program is that large"
            if died.status is None
            else "the text is not one that MLIR or LLVM can work with; look at what changed last"
        )
        return SandboxError(message, where=self.where, hint=hint)


def _ending(died: _ChildDied, seconds: float) -> str:
    if died.status is None:
        return f"took more than {seconds:g} seconds and was stopped"
    memory = "out of memory" in died.output or "bad_alloc" in died.output
    if died.status < 0:
        name = signal.Signals(-died.status).name
        return f"crashed ({name}{', out of memory' if memory else ''})"
    return f"ended with status {died.status}{', out of memory' if memory else ''}"


def _knob_values() -> tuple[dict[str, Any], dict[str, Any]]:
    """The knobs of the process, and those of the caller's thread that differ from them.

    Stages are dumped here, when the child reports them.
    """
    values = {name: knobs.process_value(name) for name in knobs.KNOBS}
    local = {"dump": None, "progress": "off"}
    return {**values, **local}, {**knobs.overridden(), **local}


def _surroundings() -> dict[str, Any]:
    """The other state of the caller that a compile may depend on."""
    try:
        folder = os.getcwd()
    except OSError:  # the folder was removed
        folder = None
    return {"path": _import_path(), "environment": dict(os.environ), "folder": folder}


def _import_path() -> list[str]:
    """The import path without the current folder: its files must not shadow modules."""
    return [entry for entry in sys.path if isinstance(entry, str) and entry]


def _open_scratch() -> IO[bytes]:
    """An unnamed file for the child's stderr: a pipe would have to be drained concurrently."""
    file: int = os.memfd_create("nova-stderr")
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)  # both processes share the file position
    return os.fdopen(file, "r+b", buffering=0)


class _Child:
    """A process that runs calls one after the other."""

    def __init__(self) -> None:
        self.stderr = _open_scratch()
        package = sys.modules["nova"]
        origin = {
            "path": _import_path(),
            "origin": package.__file__,
            "folders": list(package.__path__),
        }
        try:
            # -P: the child imports no modules from the folder of the script.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_START), json.dumps(origin)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                start_new_session=True,  # Ctrl-C goes to the caller, which stops the child
            )
        except (OSError, ValueError) as error:
            self.stderr.close()
            raise SandboxError(
                f"no process to compile the text in: {error}",
                hint="the limits on processes and memory of this process may be too low",
            ) from None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # the limit on pipes of this user
            fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.calls = 0
        self.resident = 0
        self.is_busy = False
        self._sent: dict[str, Any] | None = None

    def call(self, call: _Call) -> Any:
        self.calls += 1
        self.is_busy = True
        deadline = time.monotonic() + call.seconds
        self.stderr.truncate(0)
        now = _surroundings()
        self._send(dump((*call.request, None if now == self._sent else now)))
        self._sent = now
        while True:
            tag, *words = load(self._receive(deadline))
            if tag == "report":
                call.see(tuple(words))
                continue
            if tag == "log":
                log(*words)
                continue
            if tag == "warn":
                text, category = words
                warnings.warn(text, getattr(errors, category, UserWarning), stacklevel=4)
                continue
            self.is_busy = False
            self._forward_stderr()
            if tag == "error":
                raise _make_error(call, *words)
            result, self.resident = words
            return result

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(FRAME.pack(len(data)) + data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def _receive(self, deadline: float) -> bytes:
        (size,) = FRAME.unpack(self._read(FRAME.size, deadline))
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self.process.stdout is not None
        file = self.process.stdout.fileno()
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_READ)
            while len(received) < size:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    raise _ChildDied(None, self._stderr_tail())
                piece = os.read(file, min(size - len(received), 1 << 20))
                if not piece:
                    raise self._died()
                received += piece
        return bytes(received)

    def _died(self) -> _ChildDied:
        return _ChildDied(self.process.wait(), self._stderr_tail())

    def _stderr_tail(self) -> str:
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - _TAIL_BYTES))
        return self.stderr.read().decode(errors="replace").strip()

    def _forward_stderr(self) -> None:
        """Forward the stderr of a living child to the caller's stderr."""
        if self.stderr.seek(0, os.SEEK_END):
            self.stderr.seek(0)
            sys.stderr.write(self.stderr.read().decode(errors="replace"))

    @property
    def is_worn(self) -> bool:
        """Whether to replace the child: LLVM leaks some memory with each compile."""
        return self.calls >= _MOST_CALLS or self.resident > _MOST_RESIDENT

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.stderr.close()

    def forget(self) -> None:
        """After a fork: the child belongs to the parent process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        os.close(self.process.stdin.fileno())
        os.close(self.process.stdout.fileno())
        self.process.returncode = 0


def _make_error(
    call: _Call, name: str, message: str, where: str | None, hint: str | None, more: Any, notes: Any
) -> NovaError:
    error_class = getattr(errors, name, None)
    assert isinstance(error_class, type) and issubclass(error_class, NovaError), name
    if error_class is SandboxError:
        message, where = f"stage {call.stage}: {message}", where or call.where
    if where is not None and where.startswith("-:") and call.where is not None:
        where = call.where + where[1:]  # MLIR calls text without a name `-`
    error = error_class(message, where=where, hint=hint)
    error.__dict__.update(more)
    for note in notes:
        error.add_note(note)
    return error


_lock = threading.Lock()
_idle: list[_Child] = []


def _take() -> _Child:
    with _lock:
        while _idle:
            child = _idle.pop()
            if child.process.poll() is None:
                return child
            child.close()  # it died between calls, such as by the system's out-of-memory killer
    return _Child()


def _give(child: _Child) -> None:
    with _lock:
        if len(_idle) < _MOST_IDLE and not child.is_worn:
            _idle.append(child)
            return
    child.close()


def close_children() -> None:
    """Stop the idle children; the next call starts one."""
    with _lock:
        children, _idle[:] = _idle[:], []
    for child in children:
        child.close()


def _forget_children() -> None:
    global _lock
    _lock = threading.Lock()
    for child in _idle:
        child.forget()
    _idle.clear()


atexit.register(close_children)
os.register_at_fork(after_in_child=_forget_children)
