"""`@nova.jit`: a Python function of arrays, traced and compiled for the shapes it is called with.

The function is run once per signature with placeholder tensors; what it builds is compiled and
kept. A call first tries the program used last, whose native argument check is the cheapest guard
there is; only when that refuses is the signature worked out in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, NamedTuple

import numpy as np

from nova.compiler import Compiled, compile_plan
from nova.dtypes import TensorType, dtype
from nova.errors import AttributeValueError, GraphError, SignatureError
from nova.graph.tensor import Tensor, number_type
from nova.log import enabled, log
from nova.plan import build_plan
from nova.runtime.arrays import as_numpy
from nova.structure import Structure, flatten, unflatten
from nova.targets import parse_target


class CacheInfo(NamedTuple):
    """Like functools: calls that found their program, calls that compiled, programs held."""

    hits: int
    misses: int
    size: int


@dataclass(frozen=True)
class _Entry:
    compiled: Compiled
    result: Structure
    plain: bool


class JitFunction:
    """A function compiled per signature. Called with Tensors it builds graph, like any function."""

    def __init__(self, function: Callable[..., Any], target: str | None, run_mode: str):
        update_wrapper(self, function)
        if run_mode != "native":
            raise AttributeValueError(
                f"run_mode {run_mode!r} is not in this version", hint="use run_mode='native'"
            )
        if target is not None:
            parse_target(target)
        self._function = function
        self._target = target
        self._run_mode = run_mode
        self._entries: dict[Any, _Entry] = {}
        self._lock = threading.Lock()
        self._last: _Entry | None = None
        self._last_key: Any = None
        self._hits = 0
        self._misses = 0
        self._why = "never called"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        last = self._last
        if last is not None and last.plain and not kwargs:
            try:
                result = last.compiled._program(*args)
            except SignatureError:
                pass
            else:
                self._hits += 1
                return result
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, structure = flatten((args, kwargs))
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            return self._function(*args, **kwargs)
        entry, arrays = self._entry(leaves, structure)
        results = entry.compiled._program(*arrays)
        listed = list(results) if isinstance(results, tuple) else [results]
        return unflatten(entry.result, listed)

    def lower(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for these arguments, compiled but not run."""
        leaves, structure = flatten((args, kwargs))
        return self._entry(leaves, structure)[0].compiled

    def _entry(self, leaves: list[Any], structure: Structure) -> tuple[_Entry, list[np.ndarray]]:
        arrays = [_leaf_array(leaf, i) for i, leaf in enumerate(leaves)]
        key = (structure, tuple((a.shape, a.dtype) for a in arrays))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                self._why = self._explain(key)
                if enabled("compile"):
                    log("compile", f"{self.__name__}: {self._why}")
                entry = self._compile(arrays, structure)
                self._entries[key] = entry
            else:
                self._hits += 1
            self._last, self._last_key = entry, key
        return entry, arrays

    def _compile(self, arrays: list[np.ndarray], structure: Structure) -> _Entry:
        names = structure.names()
        placeholders = [
            Tensor(TensorType(a.shape, dtype(a.dtype)), name=n)
            for a, n in zip(arrays, names, strict=True)
        ]
        args, kwargs = unflatten(structure, placeholders)
        outputs, result = flatten(self._function(*args, **kwargs))
        outputs = [_as_tensor(value, i) for i, value in enumerate(outputs)]
        plan = build_plan(outputs, placeholders)
        compiled = compile_plan(plan, target=self._target)
        plain = structure.is_flat_arguments() and result.is_array_or_tuple()
        return _Entry(compiled, result, plain)

    # --- seeing inside --------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Hits, misses and how many programs are held."""
        return CacheInfo(self._hits, self._misses, len(self._entries))

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
            f"{name}: {_text(before)} became {_text(after)}"
            for name, before, after in zip(names, old, new, strict=True)
            if before != after
        ]
        return "; ".join(changes)

    def _rejit(self, function: Callable[..., Any]) -> JitFunction:
        """`function`, a transform of this one's function, compiled with the same options."""
        return JitFunction(function, self._target, self._run_mode)


def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    run_mode: str = "native",
) -> Any:
    """Compile a function of arrays, once per signature. `@nova.jit` and `@nova.jit(...)` work."""
    if function is None:
        return lambda f: JitFunction(f, target, run_mode)
    return JitFunction(function, target, run_mode)


def _leaf_array(leaf: Any, position: int) -> np.ndarray:
    if isinstance(leaf, bool | int | float):
        return np.asarray(leaf, number_type(leaf).numpy)
    return as_numpy(leaf, f"argument {position}")


def _as_tensor(value: Any, position: int) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        from nova.graph.tensor import tensor

        return tensor(value)
    raise GraphError(
        f"result {position} of the function is a {type(value).__name__}, not a tensor",
        hint="return tensors, or tuples, lists and dicts of them",
    )


def _text(item: tuple[tuple[int, ...], np.dtype]) -> str:
    shape, kind = item
    return f"{dtype(kind)}[{','.join(map(str, shape))}]"


