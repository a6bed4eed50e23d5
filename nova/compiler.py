"""`nova.compile`: a graph becomes a `Compiled` program, through the caches or through the stages.

This is the front door above all folders: it builds the plan, looks it up in memory and on disk, and
only when it is new loads MLIR and LLVM and compiles.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova import knobs
from nova.artifact.cache import DiskCache, cache_key, default_folder, explain
from nova.artifact.format import read_artifact, save_artifact
from nova.build_once import BuildOnce
from nova.codegen.dump import dump_stages
from nova.errors import (
    CompileInterrupted,
    ConcreteValueError,
    GraphError,
    NovaError,
    UnknownKeywordError,
)
from nova.graph.gradients import gradients
from nova.graph.location import user_location
from nova.graph.order import topological
from nova.graph.tensor import Tensor, set_evaluator
from nova.log import enabled, log
from nova.plan import Plan, build_plan, parse_plan, print_plan
from nova.runtime.executor import Executable, LoggedProgram
from nova.settings import Settings, current_settings
from nova.targets import parse_target

if TYPE_CHECKING:
    from nova.codegen.stages import Recorder

_PROGRAMS_IN_MEMORY = 1024
_checker: list[Callable[..., Any]] = []
_OPTIONS = ("inputs", "params", "include_backward", "updates", "target", "fast_math")


class Compiled:
    """A compiled program: call it, look inside, save it."""

    def __init__(
        self,
        executable: Executable,
        plan: Plan,
        origin: str,
        recorder: Recorder | None,
        name: str = "program",
    ):
        self._executable = executable
        # Whether runs are logged or checked is decided here, so that other runs pay nothing.
        program: Any = LoggedProgram(executable, name) if enabled("run") else executable.program
        check = knobs.get("check")
        self._program: Any = (
            program if check == "off" else _checker[0](executable, program, plan, check)
        )
        self._recorder = recorder
        self.plan = plan
        self.name = name
        self.origin = origin
        """Where it came from: `compiled`, `memory` or `disk`."""

    def run(
        self,
        inputs: Sequence[Any] = (),
        params: Sequence[Any] = (),
        out: Any = None,
        **unknown: Any,
    ) -> Any:
        """Run: arrays in the order of the signature; one array out, or a tuple.

        `out` gives arrays to write results into. Updated params are changed in place.
        """
        if unknown:
            raise _unknown_keyword("run()", unknown, ("inputs", "params", "out"))
        return self._program.run(inputs, params, out)

    def __call__(self, *arrays: Any, out: Any = None, **unknown: Any) -> Any:
        """Run with inputs and params one after the other."""
        if unknown:
            raise _unknown_keyword("a program", unknown, ("out",))
        if out is None:  # a call without keywords is a third faster
            return self._program(*arrays)
        return self._program(*arrays, out=out)

    @property
    def signature(self) -> Any:
        return self.plan.signature

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory that a run uses."""
        return self._executable.manifest.workspace_size

    @property
    def target(self) -> str:
        return self._executable.manifest.target

    @property
    def kernels(self) -> Any:
        """Name, tiles, core kind, cost and user's line of every kernel."""
        return self._executable.manifest.kernels

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, from plan to LLVM IR; also of a program from a cache."""
        if self._recorder is not None:
            return dict(self._recorder.texts)
        return self._executable.artifact.stages()

    @property
    def mlir_source(self) -> str:
        """The program in the nova dialect."""
        return self.stages["nova"]

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Seconds and bytes of every stage of this compile; empty when it came from a cache."""
        return {} if self._recorder is None else self._recorder.metrics

    def save(self, path: str | Path) -> None:
        """Write the program as one file."""
        save_artifact(Path(path), self._executable.artifact.data)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (bytes(self._executable.artifact.data), str(self.plan), self.name))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.plan.signature.arguments)
        results = ", ".join(str(self.plan.type_of(r)) for r in self.plan.results)
        return f"<Compiled ({arguments}) -> ({results}) for {self.target}, {self.origin}>"


def set_checker(make: Callable[..., Any]) -> None:
    """Say how runs are checked: `make(executable, program, plan, mode)` takes the program's place.

    The package does this when it is imported; the code of it is loaded when a knob asks for it.
    """
    _checker[:] = [make]


def compile(
    outputs: Tensor | Sequence[Tensor],
    *,
    inputs: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
    include_backward: bool = False,
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str | None = None,
    fast_math: bool | None = None,
    **unknown: Any,
) -> Compiled:
    """Compile what computes `outputs` from `inputs` and `params`.

    With `include_backward` the gradients of the params follow the (one, scalar) output. `updates`
    maps params to their new values: those arrays are changed in place by a run. `target` is `cpu`
    (this machine) or a named one. `fast_math` lets LLVM rearrange float arithmetic
    (docs/fast-math.md).
    """
    if unknown:
        raise _unknown_keyword("compile()", unknown, _OPTIONS)
    wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    try:
        _check_tensors(wanted, inputs, params)
        if include_backward:
            if len(wanted) != 1:
                raise GraphError(
                    f"include_backward with {len(wanted)} outputs: it takes one scalar",
                    hint="compile the loss, or make gradients with nova.backward",
                )
            # Made here and not taken from `.grad`, which may hold the sum over several losses.
            wanted += gradients(wanted[0], params)
        plan = build_plan(wanted, inputs, params, updates)
    except NovaError as error:
        raise error.located(str(user_location())) from None
    return compile_plan(plan, target=target, fast_math=fast_math)


def _check_tensors(
    outputs: Sequence[Any], inputs: Sequence[Tensor], params: Sequence[Tensor]
) -> None:
    for name, given in (("inputs", inputs), ("params", params)):
        if isinstance(given, Tensor):
            raise GraphError(f"{name} is a Tensor, not a list of them", hint=f"write {name}=[...]")
    for i, value in enumerate(outputs):
        if not isinstance(value, Tensor):
            raise GraphError(f"output {i} is a {type(value).__name__}, not a Tensor")


def compile_plan(
    plan: Plan | str,
    *,
    target: str | None = None,
    fast_math: bool | None = None,
    name: str | None = None,
) -> Compiled:
    """Compile a plan, or the text of one. `name` is what log lines call it."""
    if isinstance(plan, str):
        plan = parse_plan(plan)
    settings = current_settings(target, fast_math)
    check_target(settings.target)
    return _CACHE.get(plan, settings, name)


def check_target(target: str) -> None:
    """TargetError at the user's line unless `target` names something to compile for."""
    try:
        parse_target(target)
    except NovaError as error:
        raise error.located(str(user_location())) from None


def load(path: str | Path, device: str | None = None) -> Compiled:
    """A program from a file that `Compiled.save` wrote. Needs no compiler."""
    from nova.artifact.format import load_artifact
    from nova.errors import DeviceError

    if device not in (None, "cpu"):
        raise DeviceError(
            f"device {device!r} is not in this version",
            where=str(user_location()),
            hint="use device='cpu'",
        )
    artifact = load_artifact(Path(path))
    plan = parse_plan(artifact.stages()["plan"], str(path))
    return Compiled(Executable(artifact), plan, "disk", None)


def _unpickle(data: bytes, plan: str, name: str) -> Compiled:
    return Compiled(Executable(read_artifact(data)), parse_plan(plan), "disk", None, name)


# --- caches ---------------------------------------------------------------------------------------


class _Cache:
    """Programs by key, in memory and on disk; one thread compiles a key, others wait for it."""

    def __init__(self) -> None:
        self._programs: BuildOnce[Compiled] = BuildOnce(_PROGRAMS_IN_MEMORY)
        self._lock = threading.Lock()
        self._statistics = {"memory": 0, "disk": 0, "compiled": 0}
        self._last: dict[str, str] | None = None

    def get(self, plan: Plan, settings: Settings, name: str | None) -> Compiled:
        text = print_plan(plan, locations=False)
        parts = _key_parts(text, settings)
        key = cache_key(parts)
        name = name or f"program {key[:12]}"

        def make() -> Compiled:
            return self._load_or_build(key, plan, settings, parts, text, name)

        found, was_there = self._programs.get(key, make)
        self._count("memory" if was_there else found.origin)
        if not was_there:
            return found
        log("cache", f"hit {key[:12]} in memory")
        return Compiled(found._executable, plan, "memory", found._recorder, name)

    def _load_or_build(
        self,
        key: str,
        plan: Plan,
        settings: Settings,
        parts: dict[str, str],
        text: str,
        name: str,
    ) -> Compiled:
        disk = disk_cache()
        artifact = disk.get(key) if disk is not None else None
        if artifact is not None:
            log("cache", f"hit {key[:12]} on disk")
            dump_stages(key[:12], artifact.stages())
            return Compiled(Executable(artifact), plan, "disk", None, name)
        if enabled("cache"):
            log("cache", f"miss {key[:12]}: {self._explain({**parts, 'plan': text})}")
        data, recorder = _build(plan, settings, parts, name)
        self._last = {**parts, "plan": text}
        if disk is not None:
            disk.put(key, data)
        return Compiled(Executable(read_artifact(data)), plan, "compiled", recorder, name)

    def _explain(self, parts: dict[str, str]) -> str:
        """Why `parts` was not in the cache, against the program compiled last."""
        if self._last is None:
            return "first compile of this process"
        return explain(self._last, parts)

    def _count(self, origin: str) -> None:
        with self._lock:
            self._statistics[origin] += 1

    @property
    def statistics(self) -> dict[str, int]:
        with self._lock:
            return dict(self._statistics)

    def clear(self) -> None:
        self._programs.clear()


_CACHE = _Cache()


def _build(
    plan: Plan, settings: Settings, parts: dict[str, str], name: str
) -> tuple[bytes, Recorder]:
    from nova.codegen.compile import build

    log("compile", f"{name}: {len(plan.steps)} steps for {settings.target}")
    try:
        result = build(plan, settings, parts)
    except KeyboardInterrupt:
        raise CompileInterrupted(
            "the compile was interrupted: nothing was cached", hint="call again to compile"
        ) from None
    return result.data, result.recorder


def disk_cache() -> DiskCache | None:
    """The disk cache of the current settings, or None when it is off."""
    if not knobs.get("cache"):
        return None
    folder = knobs.get("cache_dir")
    return _disk_cache(Path(folder) if folder else default_folder(), knobs.get("cache_size"))


@cache
def _disk_cache(folder: Path, size: int) -> DiskCache:
    return DiskCache(folder, size)


def clear_memory_cache() -> None:
    """Forget every program in memory; the disk cache stays."""
    _CACHE.clear()


def cache_statistics() -> dict[str, int]:
    """How many programs came from memory, from disk, and were compiled, in this process."""
    return _CACHE.statistics


def _key_parts(text: str, settings: Settings) -> dict[str, str]:
    return {
        "plan": hashlib.sha256(text.encode()).hexdigest(),
        "target": parse_target(settings.target).key(),
        "options": ",".join(f"{k}={v}" for k, v in sorted(settings.items().items())),
        "compiler": compiler_version(),
    }


@cache
def compiler_version() -> str:
    """Versions of what generates code, and a digest of Nova's own sources.

    The passes are meant to be changed, so a changed file must miss the cache.
    """
    digest = hashlib.sha256()
    root = os.path.dirname(__file__)
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                status = os.stat(path)
                digest.update(f"{path[len(root) :]}:{status.st_size}:{status.st_mtime_ns}".encode())
    parts = [digest.hexdigest()[:16]]
    parts += [f"{name}={_installed_version(name)}" for name in ("torch_mlir", "llvmlite")]
    return " ".join(parts)


def _installed_version(package: str) -> str:
    """The version in the name of the package's .dist-info folder; `unknown` without one.

    importlib.metadata knows it too, but its import alone takes longer than a load from the cache.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(f"{package}-") and name.endswith(".dist-info"):
                return name[len(package) + 1 : -len(".dist-info")]
    return "unknown"


# --- immediate use --------------------------------------------------------------------------------


def evaluate(output: Tensor) -> np.ndarray:
    """The value of a tensor: compiles what it needs, with the data of its leaves as inputs.

    Leaves are inputs and not literals, so that the same computation on other data hits the cache.
    """
    order = topological([output])
    unknown = next((t for t in order if t.is_placeholder), None)
    if unknown is not None:
        raise ConcreteValueError(
            f"{output!r} has no value yet: it depends on {unknown!r}, whose data come when the "
            "program runs",
            where=str(user_location()),
            hint="use nova.where instead of a branch, and shapes instead of values",
        )
    leaves = [t for t in order if t.is_leaf and t.shape != ()]
    plan = build_plan([output], leaves)
    return compile_plan(plan).run([leaf.data for leaf in leaves])


set_evaluator(evaluate)


def _unknown_keyword(
    function: str, unknown: Mapping[str, Any], known: Sequence[str]
) -> UnknownKeywordError:
    from difflib import get_close_matches  # only on the way to an error

    name = next(iter(unknown))
    close = get_close_matches(name, known, 1)
    return UnknownKeywordError(
        f"{function} has no keyword {name!r}",
        where=str(user_location()),
        hint=f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}",
    )
