"""`nova.compile`: a graph becomes a `Compiled` program, through the caches or through the stages.

This is the front door above all folders: it builds the plan, looks it up in memory and on disk, and
only when it is new loads MLIR and LLVM and compiles.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nova import knobs
from nova.artifact.cache import DiskCache, cache_key, default_folder, explain
from nova.artifact.format import Artifact, read_artifact, save_artifact
from nova.errors import CompileInterrupted, GraphError, UnknownKeywordError
from nova.graph.gradients import gradients
from nova.graph.order import topological
from nova.graph.tensor import Tensor, set_evaluator
from nova.log import enabled, log
from nova.plan import Plan, build_plan, parse_plan, print_plan
from nova.runtime.executor import Executable
from nova.targets import Target, parse_target

if TYPE_CHECKING:
    from nova.codegen.stages import Recorder

_OPTIONS = ("inputs", "params", "include_backward", "updates", "target", "fast_math")


class Compiled:
    """A compiled program: call it, look inside, save it."""

    def __init__(self, executable: Executable, plan: Plan, origin: str, recorder: Recorder | None):
        self._executable = executable
        self._program = executable.program
        self._recorder = recorder
        self.plan = plan
        self.origin = origin
        """Where it came from: `compiled`, `memory` or `disk`."""

    def run(
        self, inputs: Sequence[Any] = (), params: Sequence[Any] = (), out: Any = None, **unknown: Any
    ) -> Any:
        """Run: arrays in the order of the signature; one array out, or a tuple.

        `out` gives arrays to write results into. Updated params are changed in place.
        """
        if unknown:
            raise _unknown_keyword("run", unknown, ("inputs", "params", "out"))
        return self._program.run(inputs, params, out)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Run with inputs and params one after the other."""
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
        """The text of every stage, from plan to LLVM IR."""
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

    def __repr__(self) -> str:
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.plan.signature.arguments)
        results = ", ".join(str(self.plan.type_of(r)) for r in self.plan.results)
        return f"<Compiled ({arguments}) -> ({results}) for {self.target}, {self.origin}>"


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
    (this machine) or a named one. `fast_math` lets LLVM ignore NaN, infinity and signed zeros.
    """
    if unknown:
        raise _unknown_keyword("compile", unknown, _OPTIONS)
    wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    for value in wanted:
        if not isinstance(value, Tensor):
            raise GraphError(f"an output is a {type(value).__name__}, not a Tensor")
    if include_backward:
        if len(wanted) != 1:
            raise GraphError("include_backward takes one scalar output")
        wanted += _param_gradients(wanted[0], params)
    plan = build_plan(wanted, inputs, params, updates)
    return compile_plan(plan, target=target, fast_math=fast_math)


def _param_gradients(loss: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """The params' `.grad` where `nova.backward` has made them of this graph, else new ones."""
    missing = [p for p in params if p.grad is None]
    made = dict(zip(missing, gradients(loss, missing), strict=True)) if missing else {}
    return [made[p] if p in made else p.grad for p in params]  # type: ignore[misc]


def compile_plan(
    plan: Plan | str, *, target: str | None = None, fast_math: bool | None = None
) -> Compiled:
    """Compile a plan, or the text of one."""
    if isinstance(plan, str):
        plan = parse_plan(plan)
    machine = parse_target(target or knobs.get("target"))
    fast = knobs.get("fast_math") if fast_math is None else fast_math
    options = {"fast_math": str(bool(fast))}
    parts = _key_parts(plan, machine, options)
    return _CACHE.get(plan, machine, options, parts)


def load(path: str | Path, device: str | None = None) -> Compiled:
    """A program from a file that `Compiled.save` wrote. Needs no compiler."""
    from nova.artifact.format import load_artifact
    from nova.errors import DeviceError

    if device not in (None, "cpu"):
        raise DeviceError(f"device {device!r} is not in this version", hint="use device='cpu'")
    artifact = load_artifact(Path(path))
    plan = parse_plan(artifact.stages()["plan"], str(path))
    return Compiled(Executable(artifact), plan, "disk", None)


# --- caches ---------------------------------------------------------------------------------------


class _Cache:
    """Programs by key, in memory and on disk; one thread compiles a key, others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._memory: dict[str, Compiled] = {}
        self._last_parts: dict[str, str] | None = None
        self.statistics = {"memory": 0, "disk": 0, "compiled": 0}

    def get(
        self, plan: Plan, target: Target, options: dict[str, str], parts: dict[str, str]
    ) -> Compiled:
        key = cache_key(parts)
        with self._lock:
            found = self._memory.get(key)
            if found is not None:
                self.statistics["memory"] += 1
                return Compiled(found._executable, plan, "memory", found._recorder)
            building = self._building.setdefault(key, threading.Lock())
        with building:
            found = self._memory.get(key)
            if found is None:
                found = self._load_or_build(key, plan, target, options, parts)
                with self._lock:
                    self._memory[key] = found
                    self._building.pop(key, None)
            return found

    def _load_or_build(
        self, key: str, plan: Plan, target: Target, options: dict[str, str], parts: dict[str, str]
    ) -> Compiled:
        disk = disk_cache()
        artifact = disk.get(key) if disk is not None else None
        if artifact is not None:
            log("cache", f"hit {key[:12]} on disk")
            self.statistics["disk"] += 1
            return Compiled(Executable(artifact), plan, "disk", None)
        if enabled("cache"):
            log("cache", f"miss {key[:12]}: {self.explain(parts)}")
        data, recorder = _build(plan, target, options, parts)
        self._last_parts = parts
        self.statistics["compiled"] += 1
        if disk is not None:
            disk.put(key, data)
        return Compiled(Executable(_parse(data)), plan, "compiled", recorder)

    def explain(self, parts: dict[str, str]) -> str:
        """Why `parts` was not in the cache, against the program compiled last."""
        if self._last_parts is None:
            return "first compile of this process"
        return explain(self._last_parts, parts)

    def clear(self) -> None:
        with self._lock:
            self._memory.clear()
            self._building.clear()


_CACHE = _Cache()


def _parse(data: bytes) -> Artifact:
    return read_artifact(data)


def _build(
    plan: Plan, target: Target, options: dict[str, str], parts: dict[str, str]
) -> tuple[bytes, Recorder]:
    from nova.codegen.compile import build

    log("compile", f"{len(plan.steps)} steps for {target.name}")
    try:
        result = build(plan, target, options, parts)
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
    return dict(_CACHE.statistics)


def _key_parts(plan: Plan, target: Target, options: dict[str, str]) -> dict[str, str]:
    text = print_plan(plan, locations=False)
    return {
        "plan": hashlib.sha256(text.encode()).hexdigest(),
        "target": target.key(),
        "options": ",".join(f"{k}={v}" for k, v in sorted(options.items())),
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
    leaves = [
        t for t in topological([output]) if t.is_leaf and t.data is not None and t.shape != ()
    ]
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
        f"{function}() has no keyword {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}",
    )
