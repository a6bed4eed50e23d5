"""`specialize=`: code of their own for some sizes of a program with symbolic sizes.

In: the value of `specialize=` of `nova.compile` and `nova.jit`, and the dims of a plan. Out:
combinations of sizes, in the order of the dims. `watch` lets a program compile code for sizes that
are used often, in the background (knob `specialize_after`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from nova import knobs
from nova.core.location import user_location
from nova.core.log import log
from nova.core.packages import missing_packages
from nova.core.settings import Settings
from nova.core.sizes import Dim
from nova.errors import AttributeValueError, NovaError
from nova.plan.specialize import specialize_plan
from nova.runtime.executor import Executable
from nova.runtime.symbolic_program import SymbolicProgram

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from nova.api.compiled import Compiled

_HINT = "write specialize=[128] for one dim, [(1, 128)] in the order of the names of the dims, or "
_HINT += '[{"B": 1, "S": 128}]'


def read_specialize(value: Any, dims: Sequence[Dim]) -> tuple[tuple[int, ...], ...]:
    """The combinations of sizes of `specialize=`, checked against the dims of a program."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _bad_value(f"specialize is a {type(value).__name__}, not a list", _HINT)
    if value and not dims:
        raise _bad_value(
            "specialize is for programs with symbolic sizes, and all sizes of this one are static",
            "make a symbolic size with nova.dim, or mark axes with dynamic=",
        )
    combinations = [_combination(entry, dims) for entry in value]
    return tuple(dict.fromkeys(combinations))


def _combination(entry: Any, dims: Sequence[Dim]) -> tuple[int, ...]:
    names = [dim.name for dim in dims]
    if isinstance(entry, Mapping):
        if entry.keys() != set(names):
            given = ", ".join(map(str, entry)) or "none"
            raise _bad_value(
                f"specialize names the dims {given}, and the program has {', '.join(names)}", _HINT
            )
        sizes: Sequence[Any] = [entry[name] for name in names]
    else:
        sizes = [entry] if type(entry) is int else entry
    if not isinstance(sizes, list | tuple) or any(type(size) is not int for size in sizes):
        raise _bad_value(f"specialize has {entry!r}", _HINT)
    if len(sizes) != len(names):
        raise _bad_value(
            f"specialize has {entry!r}, and the program has the dims {', '.join(names)}", _HINT
        )
    for dim, size in zip(dims, sizes, strict=True):
        if not dim.min <= size <= dim.max:
            raise _bad_value(
                f"specialize has {dim.name}={size}, and {dim.name} is {dim.min} to {dim.max}",
                "choose a size that a call may have",
            )
    return tuple(sizes)


def fitting(value: Any, dims: Sequence[Dim]) -> list[Any]:
    """The entries of `specialize=` that fit learned dims: their number and bounds are not known
    before."""
    entries = []
    for entry in value or ():
        try:
            read_specialize([entry], dims)
        except AttributeValueError:
            continue
        entries.append(entry)
    return entries


def _bad_value(message: str, hint: str) -> AttributeValueError:
    return AttributeValueError(message, where=str(user_location()), hint=hint)


# --- sizes that are used often --------------------------------------------------------------------


@cache
def _background() -> ThreadPoolExecutor:
    """One thread: a compile uses all cores for most of its time."""
    from concurrent.futures import ThreadPoolExecutor  # only on request

    return ThreadPoolExecutor(1, thread_name_prefix="nova-specialize")


def watch(program: Compiled) -> None:
    """Let a program with symbolic sizes compile code for a size after `specialize_after` calls."""
    native, calls = program._executable.program, knobs.get("specialize_after")
    if not calls or not isinstance(native, SymbolicProgram) or program.is_on_device:
        return
    if not program.has_plan or missing_packages():
        return

    def specialize(sizes: dict[str, int], use: Callable[[Any], None]) -> None:
        context = copy_context()
        _background().submit(context.run, _compile, program, sizes, use)

    native.specialize_after(calls, specialize)


def _compile(program: Compiled, sizes: dict[str, int], use: Callable[[Any], None]) -> None:
    from nova.api.compile import compile_settings  # which imports the class of `program`

    text = ", ".join(f"{name}={size}" for name, size in sizes.items())
    settings = replace(Settings.of(program._executable.spec.options), specialize=(), tune=0.0)
    log("compile", f"{program.name}: {text} is used often, it gets code of its own")
    try:
        static = compile_settings(
            specialize_plan(program.plan, sizes),
            settings,
            f"{program.name} [{text}]",
            foreign=program.is_foreign,
        )
    except NovaError as error:
        log("compile", f"{program.name}: no code for {text}: {error.what}")
        return
    # Another object than that of the static program, which has its own name in traces.
    use(Executable(static.artifact).program)
