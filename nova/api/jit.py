"""`@nova.jit`: a Python function of arrays, traced and compiled for each argument signature.

The function runs once per signature with placeholder tensors; the graph it builds is compiled and
kept. Tensors and arrays that it closes over are run-time arguments of the program, read at each
call; modes, numbers and other Python values that it closes over select the program (docs/jit.md).
A call first tries the most recently used program, whose native argument check is the cheapest
guard; only when that check fails is the signature computed in Python.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from nova import knobs
from nova.api.compile import carrying, check_run_mode, check_target, compile_plan
from nova.api.compiled import Compiled
from nova.api.dynamic import DynamicAxes, Marks, read_dynamic
from nova.api.jit_arguments import (
    NUMBERS,
    argument_array,
    array_type,
    common_device,
    result_tensor,
)
from nova.api.specialize import fitting
from nova.core.dtypes import TensorType
from nova.core.frozen_attributes import Sealed
from nova.core.location import user_location
from nova.core.log import log
from nova.core.pytree import TreeDef, flatten, unflatten
from nova.core.records import record
from nova.core.single_flight import SingleFlight
from nova.core.sizes import Dim
from nova.core.user_facing import user_facing, user_facing_class
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    GraphError,
    SignatureError,
    StateAssignedError,
)
from nova.graph.capture import capturing, current_capture, generation
from nova.graph.lifting import BoundProgram, Captured
from nova.graph.state import Roots, Snapshot, find_roots
from nova.graph.tensor import Tensor, on_device, tensor
from nova.plan import build_plan
from nova.runtime.device_arrays import DeviceArray

if TYPE_CHECKING:
    from nova.runtime.futures import RunFuture


class CacheInfo(NamedTuple):
    """As in functools: cache hits, misses (compiles), programs held, the maximum (knob
    `jit_programs`), evictions, how many of the programs have symbolic sizes, and how many
    combinations of sizes have code of their own in these."""

    hits: int
    misses: int
    size: int
    bound: int
    evictions: int
    symbolic: int = 0
    specialized: int = 0


@record
class Options:
    """Compile and run options of a jitted function, as `nova.compile` takes them."""

    target: str | None
    run_mode: str
    sim_cores: int
    sim_seed: int
    tune: float | None
    dynamic: Marks | bool = False
    specialize: tuple[Any, ...] = ()
    launch: str | None = None


class _Key(NamedTuple):
    """The key of a program: pytree and types of the arguments, their device, and state."""

    structure: TreeDef
    leaves: tuple[tuple[TensorType, bool], ...]
    device: str | None
    values: tuple[Any, ...]


@record
class _Entry:
    """A compiled signature; `plain` if arguments and results need no flattening.

    `key` is its key with the state known after the trace, `state` the state itself.
    """

    compiled: Compiled
    result: TreeDef
    plain: bool
    key: _Key
    state: Snapshot
    captured: Captured


@user_facing_class
class JitFunction(Sealed):
    """A function compiled per signature. Called with Tensors it builds graph, like any function."""

    __name__: str
    has_no_state = True  # of its own: `nova.graph.state` looks at the function inside

    def __init__(self, function: Callable[..., Any], options: Options):
        if not callable(function):
            raise ArgumentTypeError(
                f"jit of a {type(function).__name__}, which is not a function",
                where=str(user_location()),
                hint="decorate a function of arrays, or pass one: nova.jit(f)",
            )
        # Attributes of a function are copied; attributes of a module are its state.
        updated = ("__dict__",) if isinstance(function, FunctionType) else ()
        update_wrapper(self, function, updated=updated)
        check_run_mode(options.run_mode)
        target = options.target
        if target is not None:
            check_target(target)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._options = options
        self._axes = DynamicAxes(options.dynamic, function)
        self._symbolic = 0
        self._entries: SingleFlight[_Entry] = SingleFlight(knobs.get("jit_programs"))
        self._first: SingleFlight[bool] = SingleFlight(1)
        self._lock = threading.Lock()
        self._roots: Roots | None = None
        # The most recently used program, if it is plain.
        self._last_program: Any = None
        self._last_key: _Key | None = None
        self._hits = 0
        self._misses = 0
        self._why = "never called"
        self._seal()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As an attribute of a class: the function with `self` bound, compiled for each object."""
        if instance is None:
            return self
        # A separate name for each class: the method of a base class may be called through super().
        name = f"jit of {getattr(self, '__qualname__', self._name)}"
        try:
            bound = vars(instance).get(name)
            if not isinstance(bound, _JitMethod):
                bound = _JitMethod(self._function.__get__(instance, owner), self._options)
                is_class = isinstance(instance, type)  # below @classmethod
                (partial(setattr, instance) if is_class else vars(instance).__setitem__)(
                    name, bound
                )
            return bound
        except TypeError:
            raise GraphError(
                f"{type(instance).__name__} has __slots__ and no __dict__, which would keep the "
                "programs of a jitted method",
                where=str(user_location()),
                hint="add '__dict__' to its __slots__",
            ) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program = self._last_program
        if program is not None and not kwargs and current_capture() is None:
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
        if current_capture() is not None:  # its results would become constants of the trace
            leaves = [leaf if type(leaf) in NUMBERS else tensor(leaf) for leaf in leaves]
            args, kwargs = unflatten(structure, leaves)
            return self._function(*args, **kwargs)
        entry, arrays = self._entry(leaves, structure)
        results = entry.compiled._program(*arrays, *entry.captured.read())
        listed = list(results) if isinstance(results, tuple) else [results]
        return unflatten(entry.result, listed)

    def __reduce__(self) -> Any:
        return getattr(self, "__qualname__", self._name)  # pickled by name, like functions

    def lower(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for these arguments, compiled but not run.

        Its params are the tensors and arrays that the function closes over; it carries them.
        """
        return self._lowered(args, kwargs)[0]

    def _lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Compiled, TreeDef]:
        """The program for these arguments, and the structure of the function's result."""
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        entry = self._entry(leaves, structure)[0]
        arrays = entry.captured.read()
        compiled = carrying(entry.compiled, arrays) if arrays else entry.compiled
        return compiled, entry.result

    def _entry(self, leaves: list[Any], structure: TreeDef) -> tuple[_Entry, list[Any]]:
        names = [self._axes.public_name(name) for name in structure.names()]
        arrays = [
            argument_array(leaf, name, self._function)
            for leaf, name in zip(leaves, names, strict=True)
        ]
        # A Python number is not an f64 array: it takes the dtype of the tensor operand next to it.
        numbers = [type(leaf) in NUMBERS for leaf in leaves]
        types = tuple(zip(map(array_type, arrays), numbers, strict=True))
        device = None
        if self._options.target is None:
            device = common_device(names, arrays, numbers)
        if self._roots is None:
            self._roots = find_roots(self._function)
        if len(self._first):
            return self._generalized(structure, types, device), arrays
        # Names that a trace assigns look like state until the first trace has ended.
        entries: list[_Entry] = []

        def find_first() -> bool:
            entries.append(self._generalized(structure, types, device))
            return True

        self._first.get("first", find_first)
        return entries[0] if entries else self._generalized(structure, types, device), arrays

    def _generalized(
        self,
        structure: TreeDef,
        types: tuple[tuple[TensorType, bool], ...],
        device: str | None,
    ) -> _Entry:
        """The program for a signature, with symbolic sizes where axes are dynamic."""
        return self._axes.find(
            (structure, device),
            structure.names(),
            types,
            lambda leaves: self._find(structure, leaves, device),
        )

    def _find(
        self,
        structure: TreeDef,
        types: tuple[tuple[TensorType, bool], ...],
        device: str | None,
    ) -> _Entry:
        """The program for a signature and the current state; later calls try it first."""
        assert self._roots is not None
        while True:
            count = generation[0]
            state = self._roots.snapshot()
            key = _Key(structure, types, device, state.values)
            entry, is_hit = self._entries.get(key, partial(self._compile, key))
            if entry.key != key:
                self._entries.move(key, entry.key)
            if not is_hit or entry.state.is_same(state):
                break
            # The same values, but other tensors or arrays than those of the trace.
            self._entries.discard(key, entry)
        with self._lock:
            self._hits += is_hit
            self._last_program = self._quick(entry, count)
            self._last_key = entry.key
        return entry

    def _quick(self, entry: _Entry, count: int) -> Any:
        """The fast path of a call: the native program, or one that checks the state before it."""
        if not entry.plain or entry.captured.draws:
            return None
        roots = self._roots
        program = entry.compiled._program
        if not roots and not entry.captured.count and entry.key.device is None:
            return program
        assert roots is not None
        array_class = None if entry.key.device is None else DeviceArray
        return BoundProgram(program, entry.captured, roots, entry.state, count, array_class)

    def _compile(self, key: _Key) -> _Entry:
        structure, leaves = key.structure, key.leaves
        with self._lock:
            self._misses += 1
            self._why = self._explain(key)
        log("compile", f"{self._name}: {self._why}")
        placeholders = [
            Tensor(type_, name=name, weak=number)
            for (type_, number), name in zip(leaves, structure.names(), strict=True)
        ]
        args, kwargs = unflatten(structure, placeholders)
        assert self._roots is not None
        before, fields = self._roots.each(), self._roots.fields()
        with on_device(""), capturing() as capture:  # the key does not contain the caller's device
            outputs, result = flatten(self._function(*args, **kwargs))
            outputs = [result_tensor(value, i, self._function) for i, value in enumerate(outputs)]
        with self._lock:
            _check_fields(fields, self._roots.fields())
            roots = self._roots.without_changed(before)
            roots = self._roots = roots.extended(capture.holders.values(), capture.read.values())
        state = roots.snapshot()
        updates = capture.updates
        captured = Captured.of([*outputs, *updates.values(), *updates], placeholders, capture)
        plan = build_plan(outputs, placeholders, captured.tensors, updates)
        options = self._options
        compiled = compile_plan(
            plan,
            target=options.target,
            tune=options.tune,
            name=self._name,
            run_mode=options.run_mode,
            device=key.device,
            specialize=self._specialize(plan.dims),
            launch=options.launch,
        )
        if options.run_mode == "sim" and not compiled.is_on_device:
            compiled = compiled.simulated(options.sim_cores, options.sim_seed)
        with self._lock:
            self._symbolic += any(not type_.is_static for type_, _ in leaves)
        plain = (
            structure.is_flat_arguments()
            and result.is_array_or_tuple()
            # The native check accepts Python numbers for any 0-d array; distinguish them here.
            and all(type_.shape for type_, _ in leaves)
        )
        return _Entry(compiled, result, plain, key._replace(values=state.values), state, captured)

    def _specialize(self, dims: tuple[Dim, ...]) -> list[Any] | None:
        """The sizes that get code of their own in a program with these dims."""
        entries = self._options.specialize
        if not entries or not dims:
            return None
        return fitting(entries, dims) if self._options.dynamic is True else list(entries)

    # --- introspection --------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Hits, misses, programs held, the maximum, and evictions."""
        entries = self._entries
        return CacheInfo(
            *(self._hits, self._misses, len(entries), entries.bound, entries.evictions),
            symbolic=self._symbolic,
            specialized=len(self._specialized()),
        )

    def _specialized(self) -> list[str]:
        """The sizes that have code of their own, in all programs."""
        programs = [entry.compiled for entry in self._entries.values()]
        symbolic = [p for p in programs if p.signature.dims and not p.is_on_device]
        return [text for p in symbolic for text in p.cache_info().specialized]

    def submit(self, *args: Any, **kwargs: Any) -> RunFuture:
        """Start a run for these arguments: a future of the value that a call would return."""
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        entry, arrays = self._entry(leaves, structure)
        future = entry.compiled.submit(*arrays, *entry.captured.read())
        future._finish = lambda results: unflatten(
            entry.result, list(results) if isinstance(results, tuple) else [results]
        )
        return future

    def explain(self) -> str:
        """The reason for the latest compile, and the sizes that have code of their own."""
        specialized = self._specialized()
        return "; ".join([self._why, *(f"{text} has code of its own" for text in specialized)])

    def _explain(self, key: _Key) -> str:
        if self._last_key is None:
            return "first call"
        old_structure, old, old_place, old_values = self._last_key
        new_structure, new, new_place, new_values = key
        if old_structure != new_structure:
            return f"the arguments are nested differently: {old_structure} became {new_structure}"
        names = new_structure.names()
        changes = [
            f"{name}: {_text(*before)} became {_text(*after)}"
            for name, before, after in zip(names, old, new, strict=True)
            if before != after
        ]
        learned = self._axes.explain((new_structure, new_place), names, new)
        changes += [learned] if learned else []
        if old_place != new_place:
            changes.append(f"the arrays are on {new_place or 'the host'}")
        if not changes and old_values != new_values:
            changes.append("state that the function uses changed: a mode, a number or an attribute")
        return "; ".join(changes) or (
            "its program was dropped: too many signatures, or other tensors are used"
        )

    def _rejit(self, function: Callable[..., Any]) -> JitFunction:
        """`function`, a transform of this one's function, compiled with the same options."""
        return JitFunction(function, self._options)


class _JitMethod(JitFunction):
    """A jitted function with `self` bound: kept by the object; its copies create their own."""

    def __reduce__(self) -> Any:
        return Forgotten, ()


class Forgotten:
    """Stands in, in a copy of an object, for a jitted method that was not used yet."""

    has_no_state = True


@user_facing
def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    run_mode: str = "native",
    sim_cores: int = 64,
    sim_seed: int = 0,
    tune: float | None = None,
    dynamic: Any = False,
    specialize: Sequence[Any] | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    launch: str | None = None,
) -> Any:
    """Compile a function of arrays, once per signature. `@nova.jit` and `@nova.jit(...)` work.

    `static_argnums` and `static_argnames` are arguments that are Python values, such as a mode or
    a number of layers: they are hashable, and each value has its own programs.

    `tune` is the time limit in seconds per compile for trying schedules (docs/tuning.md). `dynamic`
    makes one program for arrays of many sizes: `{"x": {0: "B"}}` marks axes, True learns them from
    the second size that an axis has (docs/dynamic-shapes.md). `specialize` lists sizes that get
    code of their own in these programs, and `launch` says how programs for GPUs run their kernels,
    both as in `nova.compile`.
    """
    _refuse_torch_module(function)
    marks = read_dynamic(dynamic)
    if specialize and marks is False:
        raise AttributeValueError(
            "specialize is for arguments with symbolic sizes, and dynamic is False",
            where=str(user_location()),
            hint='mark axes with dynamic={"x": {0: "B"}}; other programs are static already',
        )
    options = Options(
        *(target, run_mode, sim_cores, sim_seed, tune, marks),
        specialize=tuple(specialize or ()),
        launch=launch,
    )
    make: Callable[[Callable[..., Any]], Any] = partial(JitFunction, options=options)
    if static_argnums is not None or static_argnames is not None:
        from nova.api.jit_static import StaticJitFunction  # needs JitFunction

        make = partial(
            StaticJitFunction, options=options, argnums=static_argnums, argnames=static_argnames
        )
    return make if function is None else make(function)


def _refuse_torch_module(function: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(function, torch.nn.Module):
        raise ArgumentTypeError(
            f"nova.jit of {type(function).__name__}, a module of torch",
            where=str(user_location()),
            hint="write torch.compile(model, backend='nova'), which takes tensors of torch, or "
            "nova.from_torch(model, x), which gives a program of Nova",
        )


def _check_fields(before: dict[str, Snapshot], after: dict[str, Snapshot]) -> None:
    """StateAssignedError for attributes that a trace has changed."""
    for name in {**before, **after}:
        if name in before and name in after and before[name].is_same(after[name]):
            continue
        raise StateAssignedError(
            f"{name} changed while a function that uses it was traced: the change would happen "
            "once and not in every run",
            where=str(user_location()),
            hint="return the new value from the function and assign it outside",
        )


def _text(type_: TensorType, number: bool) -> str:
    if not number:
        return str(type_)
    return {"bool": "a bool", "i64": "an int", "f64": "a float"}[type_.dtype.name]
