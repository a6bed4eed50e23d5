"""`@nova.jit`: a Python function of arrays, traced and compiled for the shapes it is called with.

The function is run once per signature with placeholder tensors; what it builds is compiled and
kept. A call first tries the program used last, whose native argument check is the cheapest guard
there is; only when that refuses is the signature worked out in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nova import knobs
from nova.build_once import BuildOnce
from nova.compiled import Compiled
from nova.compiler import check_run_mode, check_target, compile_plan
from nova.dlpack import as_numpy
from nova.dtypes import TensorType, dtype
from nova.errors import (
    ArgumentDTypeError,
    DTypeError,
    GraphError,
    NovaError,
    SignatureError,
)
from nova.graph.build import settled
from nova.graph.location import user_location
from nova.graph.tensor import Tensor, on_device, tensor
from nova.log import log
from nova.plan import build_plan
from nova.records import record
from nova.runtime.device_arrays import type_on_device
from nova.structure import Structure, flatten, unflatten

if TYPE_CHECKING:
    from nova.runtime.futures import RunFuture

_NUMBERS = (bool, int, float)


class CacheInfo(NamedTuple):
    """Like functools: calls that found their program, calls that compiled, programs held, how many
    may be (knob `jit_programs`), and how many have gone because of that."""

    hits: int
    misses: int
    size: int
    bound: int
    evictions: int


@record
class _Options:
    """How the programs of a function are compiled and run, as `nova.compile` takes it."""

    target: str | None
    run_mode: str
    sim_cores: int
    sim_seed: int
    tune: float | None


@record
class _Entry:
    """A compiled signature; `plain` if arguments and results need no unpacking."""

    compiled: Compiled
    result: Structure
    plain: bool


class JitFunction:
    """A function compiled per signature. Called with Tensors it builds graph, like any function."""

    __name__: str

    def __init__(self, function: Callable[..., Any], options: _Options):
        update_wrapper(self, function)
        check_run_mode(options.run_mode)
        target = options.target
        if target is not None:
            check_target(target)
        self._function = function
        self._name = getattr(function, "__name__", "function")
        self._options = options
        self._entries: BuildOnce[_Entry] = BuildOnce(knobs.get("jit_programs"))
        self._lock = threading.Lock()
        # The program used last, where it is plain.
        self._last_program: Any = None
        self._last_key: Any = None
        self._hits = 0
        self._misses = 0
        self._why = "never called"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program = self._last_program
        if program is not None and not kwargs:
            try:
                result = program(*args)
            except SignatureError:
                pass
            else:
                self._hits += 1
                return result
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            return self._function(*args, **kwargs)
        entry, arrays = self._entry(leaves, structure)
        results = entry.compiled._program(*arrays)
        listed = list(results) if isinstance(results, tuple) else [results]
        return unflatten(entry.result, listed)

    def __reduce__(self) -> str:
        return getattr(self, "__qualname__", self._name)  # pickled by name, as functions are

    def lower(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for these arguments, compiled but not run."""
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        return self._entry(leaves, structure)[0].compiled

    def _entry(self, leaves: list[Any], structure: Structure) -> tuple[_Entry, list[Any]]:
        arrays = [_leaf_array(*pair) for pair in zip(leaves, structure.names(), strict=True)]
        # A Python number is no f64 array: the number takes the type of what it stands beside.
        numbers = [type(leaf) in _NUMBERS for leaf in leaves]
        types = [array_type(a) for a in arrays]
        key = (structure, tuple(zip(types, numbers, strict=True)))
        entry, found = self._entries.get(key, lambda: self._compile(key))
        with self._lock:
            self._hits += found
            self._last_program = entry.compiled._program if entry.plain else None
            self._last_key = key
        return entry, arrays

    def _compile(self, key: Any) -> _Entry:
        structure, leaves = key
        with self._lock:
            self._misses += 1
            self._why = self._explain(key)
        log("compile", f"{self._name}: {self._why}")
        placeholders = [
            Tensor(type_, name=name, weak=number)
            for (type_, number), name in zip(leaves, structure.names(), strict=True)
        ]
        args, kwargs = unflatten(structure, placeholders)
        with on_device(""):  # the key does not say where it is called from
            outputs, result = flatten(self._function(*args, **kwargs))
        outputs = [_as_tensor(value, i, self._function) for i, value in enumerate(outputs)]
        plan = build_plan(outputs, placeholders)
        options = self._options
        compiled = compile_plan(
            plan,
            target=options.target,
            tune=options.tune,
            name=self._name,
            run_mode=options.run_mode,
        )
        if options.run_mode == "sim" and not compiled.is_on_device:
            compiled = compiled.simulated(options.sim_cores, options.sim_seed)
        plain = (
            structure.is_flat_arguments()
            and result.is_array_or_tuple()
            # The native check takes Python numbers for any 0-d array; here they are told apart.
            and all(type_.shape for type_, _ in leaves)
        )
        return _Entry(compiled, result, plain)

    # --- seeing inside --------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Hits, misses, and how many programs are held, may be held, and have gone."""
        entries = self._entries
        return CacheInfo(self._hits, self._misses, len(entries), entries.bound, entries.evictions)

    def submit(self, *args: Any, **kwargs: Any) -> RunFuture:
        """Start a run for these arguments: a future of what a call would return."""
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        entry, arrays = self._entry(leaves, structure)
        future = entry.compiled.submit(*arrays)
        future._finish = lambda results: unflatten(
            entry.result, list(results) if isinstance(results, tuple) else [results]
        )
        return future

    def explain(self) -> str:
        """Why the latest compile happened."""
        return self._why

    def _explain(self, key: Any) -> str:
        if self._last_key is None:
            return "first call"
        old_structure, old = self._last_key
        new_structure, new = key
        if old_structure != new_structure:
            return f"the arguments are nested differently: {old_structure} became {new_structure}"
        names = new_structure.names()
        changes = [
            f"{name}: {_text(*before)} became {_text(*after)}"
            for name, before, after in zip(names, old, new, strict=True)
            if before != after
        ]
        return "; ".join(changes) or "its program was dropped: too many signatures"

    def _rejit(self, function: Callable[..., Any]) -> JitFunction:
        """`function`, a transform of this one's function, compiled with the same options."""
        return JitFunction(function, self._options)


def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    run_mode: str = "native",
    sim_cores: int = 64,
    sim_seed: int = 0,
    tune: float | None = None,
) -> Any:
    """Compile a function of arrays, once per signature. `@nova.jit` and `@nova.jit(...)` work.

    `tune` seconds of each compile may go into trying schedules (docs/tuning.md).
    """
    options = _Options(target, run_mode, sim_cores, sim_seed, tune)
    if function is None:
        return lambda f: JitFunction(f, options)
    return JitFunction(function, options)


def _leaf_array(leaf: Any, name: str) -> Any:
    """An argument as an array; one that is on a device stays there."""
    try:
        if type_on_device(leaf) is not None:
            return leaf
        if type(leaf) in _NUMBERS:
            # Floats at full precision: they take the type of what they stand beside.
            return np.asarray(leaf, {bool: np.bool_, int: np.int64, float: np.float64}[type(leaf)])
        array = as_numpy(leaf, f"argument {name!r}")
        dtype(array.dtype.newbyteorder("="))
        return array
    except OverflowError:
        raise ArgumentDTypeError(
            f"argument {name!r} is {leaf}, which is no i64", where=str(user_location())
        ) from None
    except NovaError as error:
        raise error.located(str(user_location()), _prefix(error, name)) from None


def array_type(array: Any) -> TensorType:
    """The type of an array, on the host or on a device."""
    shape, kind = type_on_device(array) or (array.shape, array.dtype)
    return TensorType(tuple(shape), dtype(kind.newbyteorder("=")))


def _prefix(error: NovaError, name: str) -> str:
    return f"argument {name!r}: " if isinstance(error, DTypeError) else ""


def _as_tensor(value: Any, position: int, function: Callable[..., Any]) -> Tensor:
    if isinstance(value, Tensor):
        return settled(value)
    if type(value) in _NUMBERS or isinstance(value, np.ndarray | np.generic):
        return tensor(value)
    code = getattr(function, "__code__", None)
    raise GraphError(
        f"result {position} of the function is a {type(value).__name__}, not a tensor",
        where=f"{code.co_filename}:{code.co_firstlineno}" if code else str(user_location()),
        hint="return tensors, or tuples, lists and dicts of them",
    )


def _text(type_: TensorType, number: bool) -> str:
    if not number:
        return str(type_)
    return {"bool": "a bool", "i64": "an int", "f64": "a float"}[type_.dtype.name]
