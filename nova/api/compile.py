"""`nova.compile`: compiles a graph to a `Compiled` program, through the caches or the stages.

This is the top-level entry point: it builds the plan and looks it up in memory and on disk. Only
when the plan is new does it load MLIR and LLVM and compile.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nova import knobs
from nova.api.compiled import Compiled
from nova.artifact.cache.disk import DiskCache, cache_key, open_cache
from nova.artifact.cache.explain import Recipe, explain_miss, make_recipe
from nova.artifact.elf.runtime_object import runtime_key
from nova.artifact.format import Artifact, read_artifact
from nova.compiler.address_space import require_room
from nova.compiler.dump import dump_stages
from nova.core.constants import Constants
from nova.core.location import user_location
from nova.core.log import enabled, log
from nova.core.settings import Settings, current_settings
from nova.core.single_flight import SingleFlight
from nova.core.targets import host_arch, parse_target
from nova.core.user_facing import user_facing
from nova.errors import (
    AttributeValueError,
    CompileInterrupted,
    ConcreteValueError,
    GraphError,
    MissingPackageError,
    NovaError,
    TargetError,
    WorkspaceError,
)
from nova.graph.gradients import gradients
from nova.graph.order import topological
from nova.graph.tensor import Tensor, set_evaluator
from nova.plan import Plan, build_plan, parse_plan, print_plan
from nova.runtime.devices import explain_absent, local_architecture
from nova.runtime.executor import Executable
from nova.runtime.gpu_executor import load_for
from nova.runtime.weights import ParamValues

if TYPE_CHECKING:
    from nova.compiler.result import CompileResult

_PROGRAMS_IN_MEMORY = 1024
RUN_MODES = ("native", "sim")


@user_facing
def compile(
    outputs: Tensor | Sequence[Tensor],
    *,
    inputs: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
    include_backward: bool = False,
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str | None = None,
    fast_math: bool | None = None,
    max_workspace: int | str | None = None,
    freeze: bool = False,
    tune: float | None = None,
    run_mode: str = "native",
    sim_cores: int = 64,
    sim_seed: int = 0,
) -> Compiled:
    """Compile a program that computes `outputs` from `inputs` and `params`.

    With `include_backward` the gradients of the params follow the (one, scalar) output. `updates`
    maps params to their new values: a run changes those arrays in place. `target` is `cpu`
    (this machine), a CPU such as `x86_64-v3` or `haswell`, `cuda` (the GPU of this machine) or a
    GPU such as `cuda:sm_80` (docs/devices.md). `fast_math` lets LLVM reassociate float arithmetic
    (docs/fast-math.md). `max_workspace` limits the workspace of a run, in bytes or as "512M":
    the compiler trades speed for it (it rematerializes values and forms smaller kernels, so the
    last bit of a result may differ), or raises WorkspaceError with the smallest limit that works.
    With `freeze` the current values of the params become constants of the program: that is faster,
    and the program takes only the inputs (docs/deploying.md). `tune` is the time limit in seconds
    for trying schedules on this machine (docs/tuning.md). `run_mode="sim"` has two meanings. A
    program for a GPU runs on the GPU simulator, on the CPU. A program for the CPU runs its tasks
    sequentially, in the order in which `sim_cores` cores would start them; its `simulation` is
    their timeline (docs/tracing.md).
    """
    check_run_mode(run_mode)
    if freeze and updates:
        raise GraphError(
            "freeze makes constants of the params, and updates changes them",
            where=str(user_location()),
            hint="freeze the program that uses the trained params, not the one that trains them",
        )
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    _check_tensors(results, inputs, params)
    if include_backward:
        if len(results) != 1:
            raise GraphError(
                f"include_backward with {len(results)} outputs: it takes one scalar",
                hint="compile the loss, or make gradients with nova.backward",
            )
        # Built here and not read from `.grad`, which may hold the sum over several losses.
        results += gradients(results[0], params)
    if freeze:
        params = ()  # leaves that are not arguments are constants
    plan = build_plan(results, inputs, params, updates)
    program = compile_plan(
        plan,
        target=target,
        fast_math=fast_math,
        max_workspace=max_workspace,
        tune=tune,
        run_mode=run_mode,
    )
    if run_mode == "sim" and not program.is_on_device:
        program = program.simulated(sim_cores, sim_seed)
    if not params:
        return program
    # Hold the arrays, not the tensors: tensors would keep the graph of the gradients alive.
    return carrying(program, [p.data for p in params])


def carrying(
    program: Compiled, arrays: Sequence[Any], fetch: Callable[[], None] | None = None
) -> Compiled:
    """The program with the arrays of the graph's params; `fetch` updates them from the device."""
    return program.with_values(ParamValues(program._values.params, arrays, "graph", fetch))


def _check_tensors(
    outputs: Sequence[Any], inputs: Sequence[Tensor], params: Sequence[Tensor]
) -> None:
    for name, value in (("inputs", inputs), ("params", params)):
        if isinstance(value, Tensor):
            raise GraphError(f"{name} is a Tensor, not a list of them", hint=f"write {name}=[...]")
    for i, value in enumerate(outputs):
        if not isinstance(value, Tensor):
            raise GraphError(f"output {i} is a {type(value).__name__}, not a Tensor")


@user_facing
def compile_plan(
    plan: Plan | str,
    *,
    target: str | None = None,
    fast_math: bool | None = None,
    max_workspace: int | str | None = None,
    tune: float | None = None,
    name: str | None = None,
    run_mode: str = "native",
    device: str | None = None,
) -> Compiled:
    """Compile a plan, or the text of a plan. `name` is its name in log lines.

    With `run_mode="sim"` a device program runs on the simulator. `device` is the name of the device
    to run on; without a target the program is compiled for that device.
    """
    is_text = isinstance(plan, str)
    if isinstance(plan, str):
        plan = parse_plan(plan)
    if target is None and device is not None:
        target = f"cuda:{local_architecture(device)}"
    settings = current_settings(local_target(target), fast_math, max_workspace, tune)
    check_target(settings.target)
    chosen = device_of(settings, run_mode)
    device = chosen and (device or chosen)
    try:
        return compile_settings(plan, settings, name, device, foreign=is_text)
    except (WorkspaceError, MissingPackageError) as error:
        raise error.located(str(user_location())) from None


def compile_settings(
    plan: Plan,
    settings: Settings,
    name: str | None,
    device: str | None = None,
    *,
    foreign: bool = False,
) -> Compiled:
    """Compile a plan with settings from another source, such as a file.

    A `foreign` plan came as text; it is compiled in a child process.
    """
    text = print_plan(plan, locations=False, constants=Constants())
    job = _Job("plan", text, settings, plan, device, foreign)
    return _CACHE.get(job, name)


def compile_text(text: str, stage: str, settings: Settings, name: str) -> Compiled:
    """Compile the text of an MLIR stage from a file; the program has no plan."""
    return _CACHE.get(_Job(stage, text, settings, None), name)


def check_target(target: str) -> None:
    """TargetError at the user's line unless `target` names a machine to compile for and run on."""
    try:
        machine, local = parse_target(local_target(target) or target), parse_target("cpu")
        if machine.arch != local.arch and not machine.is_device:
            raise TargetError(
                f"target {target!r}: what compile() gives runs here, and this is {local.arch}",
                hint=f"nova.translate(program, targets={target!r}) writes a file",
            )
    except NovaError as error:
        raise error.located(str(user_location())) from None


def device_of(settings: Settings, run_mode: str) -> str | None:
    """The name of the device that programs with these settings run on; None for the CPU."""
    if not parse_target(settings.target).is_device:
        return None
    return "sim" if run_mode == "sim" else "cuda"


def local_target(target: str | None) -> str | None:
    """`cuda` is the GPU of this machine: only its driver knows the architecture."""
    if target != "cuda":
        return target
    try:
        return f"cuda:{local_architecture()}"
    except NovaError as error:
        raise explain_absent(error).located(str(user_location())) from None


def check_run_mode(run_mode: str) -> None:
    """AttributeValueError at the user's line unless `run_mode` is valid."""
    if run_mode not in RUN_MODES:
        raise AttributeValueError(
            f"run_mode is {run_mode!r}",
            where=str(user_location()),
            hint=f"it is one of {', '.join(RUN_MODES)}",
        )


# --- caches ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """A compile request: the `text` of a stage, which is the plan if there is one."""

    stage: str
    text: str
    settings: Settings
    plan: Plan | None
    device: str | None = None  # the device to run on; None for the CPU
    foreign: bool = False  # it came as text of unknown origin

    def key_parts(self) -> dict[str, str]:
        target = parse_target(self.settings.target)
        parts = {
            self.stage: hashlib.sha256(self.text.encode()).hexdigest(),
            "target": target.key(),
            "options": ",".join(f"{k}={v}" for k, v in sorted(self.settings.items().items())),
            "compiler": compiler_version(),
            "runtime": runtime_key(host_arch([target])),
        }
        if target.is_device and self.settings.cubin:
            from nova.compiler.gpu.ptxas import ptxas_version  # loaded only on demand

            parts["ptxas"] = ptxas_version()
        return parts

    def build(self, parts: dict[str, str], name: str) -> CompileResult:
        require_room()
        settings = self._tuned(name) if self.settings.tune else self.settings
        if self.plan is None or self.foreign:
            from nova.compiler.module import build_text

            log("compile", f"{name}: from {self.stage} for {settings.target}")
            text = self.text if self.plan is None else print_plan(self.plan)
            return build_text(text, self.stage, [settings], parts, name)
        from nova.compiler.driver import build

        log("compile", f"{name}: {len(self.plan.steps)} steps for {settings.target}")
        return build(self.plan, settings, parts)

    def load(self, artifact: Artifact) -> Executable:
        """The program of its file; if its device is missing, a run raises the error."""
        if self.device is None:
            return Executable(artifact)
        return load_for(artifact, self.device, needed=False)

    def _tuned(self, name: str) -> Settings:
        """The settings with the schedules that are fastest on this machine."""
        from nova.compiler.recorder import Recorder
        from nova.compiler.stages import start_from_plan, start_from_text
        from nova.tuning import tune_settings

        log("tune", f"{name}: for {self.settings.tune:g} s on {self.settings.target}")
        if self.plan is None:
            return tune_settings(start_from_text(self.text, name), self.stage, self.settings)
        with knobs.override(dump=None, log=knobs.get("log") - {"compile"}):
            module = start_from_plan(self.plan, Recorder())
        return tune_settings(module, "nova", self.settings)


class _Cache:
    """Programs by key, in memory and on disk; one thread compiles a key, others wait for it."""

    def __init__(self) -> None:
        self._programs: SingleFlight[Compiled] = SingleFlight(
            _PROGRAMS_IN_MEMORY, Compiled._held_bytes, lambda: knobs.get("cache_memory")
        )
        self._lock = threading.Lock()
        self._statistics = {"memory": 0, "disk": 0, "compiled": 0}
        self._last: Recipe | None = None

    def get(self, job: _Job, name: str | None) -> Compiled:
        parts = job.key_parts()
        key = cache_key(parts)
        name = name or f"program {key[:12]}"

        def make() -> Compiled:
            try:
                return self._load_or_build(key, job, parts, name)
            except KeyboardInterrupt:
                raise CompileInterrupted(
                    "the compile was interrupted: nothing was cached", hint="call again to compile"
                ) from None

        program, is_hit = self._programs.get((key, job.device), make)
        self._count("memory" if is_hit else program.origin)
        if not is_hit:
            return program
        log("cache", f"hit {key[:12]} in memory")
        return Compiled(
            program._executable,
            job.plan,
            "memory",
            recorder=program._recorder,
            contents=program._contents,
            name=name,
        )

    def _load_or_build(self, key: str, job: _Job, parts: dict[str, str], name: str) -> Compiled:
        disk = disk_cache()
        with nullcontext() if disk is None else disk.building(key) as artifact:
            if artifact is not None:
                log("cache", f"hit {key[:12]} on disk")
                dump_stages(key[:12], artifact.stages())
                return Compiled(job.load(artifact), job.plan, "disk", name=name)
            recipe = make_recipe(parts, job.text, job.stage)
            if enabled("cache"):
                log("cache", f"miss {key[:12]}: {explain_miss(disk, recipe, self._last)}")
            built = job.build(parts, name)
            self._last = recipe
            if disk is not None:
                disk.put(key, built.data)
        from nova.compiler.result import share_bytes  # loaded by the build

        artifact = read_artifact(built.data)
        built = share_bytes(built, artifact)
        return Compiled(
            job.load(artifact),
            job.plan,
            "compiled",
            recorder=built.recorder,
            contents=built.contents,
            name=name,
        )

    def _count(self, origin: str) -> None:
        with self._lock:
            self._statistics[origin] += 1

    @property
    def statistics(self) -> dict[str, int]:
        with self._lock:
            return dict(self._statistics)

    @property
    def memory(self) -> dict[str, int]:
        programs = self._programs
        return {
            "programs": len(programs),
            "bytes": programs.nbytes,
            "max_bytes": knobs.get("cache_memory"),
            "evictions": programs.evictions,
        }

    def clear(self) -> None:
        self._programs.clear()


_CACHE = _Cache()


def disk_cache() -> DiskCache | None:
    """The disk cache of the current settings, or None when it is off."""
    return open_cache() if knobs.get("cache") else None


def clear_memory_cache() -> None:
    """Forget every program in memory; the disk cache stays."""
    _CACHE.clear()


def cache_statistics() -> dict[str, int]:
    """Number of programs taken from memory, taken from disk, and compiled, in this process."""
    return _CACHE.statistics


def memory_cache_info() -> dict[str, int]:
    """Number of programs in memory, their bytes, the bound, and the number of evictions."""
    return _CACHE.memory


@cache
def compiler_version() -> str:
    """Versions of the code generators, and a digest of Nova's own sources.

    The passes are meant to be changed, so a changed file must miss the cache.
    """
    digest = hashlib.sha256()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                status = os.stat(path)
                digest.update(f"{path[len(root) :]}:{status.st_size}:{status.st_mtime_ns}".encode())
    parts = [f"nova={digest.hexdigest()[:16]}"]
    versions = _installed_versions(("torch_mlir", "llvmlite"))
    return " ".join(parts + [f"{name}={version}" for name, version in versions.items()])


def _installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions in the names of the packages' .dist-info folders; `unknown` without one.

    importlib.metadata has them too, but importing it takes longer than a load from the cache.
    """
    versions: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = [n for n in os.listdir(folder or ".") if n.endswith(".dist-info")]
        except OSError:
            continue
        for name in names:
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if package in packages:
                versions.setdefault(package, version)
    return {package: versions.get(package, "unknown") for package in packages}


# --- immediate evaluation -------------------------------------------------------------------------


def evaluate(output: Tensor) -> np.ndarray:
    """The value of a tensor: compiles the graph it needs, with the data of its leaves as inputs.

    Leaves are inputs and not literals, so the same computation on other data hits the cache.
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
    # Runs once: tuning time would not be recovered.
    return compile_plan(plan, tune=0).run([leaf.data for leaf in leaves])


set_evaluator(evaluate)
