"""Compiled programs by key, in memory and on disk: `nova.compile` gets its programs here.

In: a `CompileJob`, which is a plan or the text of a stage with settings. Out: a `Compiled`, from
memory, from the disk cache, or from the compiler, which is loaded only for a new program.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING

from nova import knobs
from nova.api.compiled import Compiled
from nova.artifact.cache.disk import DiskCache, cache_key, open_cache
from nova.artifact.cache.explain import Recipe, explain_miss, make_recipe
from nova.artifact.elf.runtime_object import runtime_key
from nova.artifact.format import Artifact, read_artifact
from nova.compiler.address_space import require_room
from nova.compiler.dump import dump_stages
from nova.core.constants import Constants
from nova.core.log import enabled, log
from nova.core.records import record
from nova.core.settings import Settings
from nova.core.single_flight import SingleFlight
from nova.core.targets import host_arch, parse_target
from nova.errors import CompileInterrupted
from nova.plan import Plan, print_plan
from nova.runtime.executor import Executable
from nova.runtime.gpu_executor import load_for

if TYPE_CHECKING:
    from nova.compiler.result import CompileResult

_PROGRAMS_IN_MEMORY = 1024


@record
class CompileJob:
    """A compile request: the `text` of a stage, which is the plan if there is one."""

    stage: str
    text: str
    settings: Settings
    plan: Plan | None
    device: str | None = None  # the device to run on; None for the CPU
    foreign: bool = False  # it came as text of unknown origin

    @classmethod
    def of_plan(
        cls, plan: Plan, settings: Settings, device: str | None = None, *, foreign: bool = False
    ) -> CompileJob:
        """A request to compile a plan; a `foreign` plan came as text, and needs a child process."""
        text = print_plan(plan, locations=False, constants=Constants())
        return cls("plan", text, settings, plan, device, foreign)

    def key_parts(self) -> dict[str, str]:
        target = parse_target(self.settings.target)
        parts = {
            self.stage: hashlib.sha256(self.text.encode()).hexdigest(),
            "target": target.key(),
            "options": ",".join(f"{k}={v}" for k, v in sorted(self.settings.items().items())),
            "compiler": compiler_version(),
            "runtime": runtime_key(host_arch([target])),
        }
        if target.is_device and (self.settings.cubin or self.settings.launch == "persistent"):
            from nova.artifact.cubins.ptxas import find_ptxas, ptxas_version  # only on demand

            # It chooses the registers of a persistent kernel, where there is one.
            if self.settings.cubin or (knobs.get("check_ptx") and find_ptxas() is not None):
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


class ProgramCache:
    """Programs by key, in memory and on disk; one thread compiles a key, others wait for it."""

    def __init__(self) -> None:
        self._programs: SingleFlight[Compiled] = SingleFlight(
            _PROGRAMS_IN_MEMORY, Compiled._held_bytes, lambda: knobs.get("cache_memory")
        )
        self._lock = threading.Lock()
        self._statistics = {"memory": 0, "disk": 0, "compiled": 0}
        self._last: Recipe | None = None

    def get(self, job: CompileJob, name: str | None) -> Compiled:
        parts = job.key_parts()
        key = cache_key(parts)
        name = name or f"program {key[:12]}"

        build = partial(self._load_or_build, key, job, parts, name)
        try:
            program, is_hit = self._programs.get(
                (key, job.device, knobs.get("device_loops"), knobs.get("device_overlap")), build
            )
        except KeyboardInterrupt:
            raise CompileInterrupted(
                "the compile was interrupted: nothing was cached", hint="call again to compile"
            ) from None
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

    def _load_or_build(
        self, key: str, job: CompileJob, parts: dict[str, str], name: str
    ) -> Compiled:
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


PROGRAMS = ProgramCache()


def disk_cache() -> DiskCache | None:
    """The disk cache of the current settings, or None when it is off."""
    return open_cache() if knobs.get("cache") else None


def clear_memory_cache() -> None:
    """Forget every program in memory; the disk cache stays."""
    PROGRAMS.clear()


def cache_statistics() -> dict[str, int]:
    """Number of programs taken from memory, taken from disk, and compiled, in this process."""
    return PROGRAMS.statistics


def memory_cache_info() -> dict[str, int]:
    """Number of programs in memory, their bytes, the bound, and the number of evictions."""
    return PROGRAMS.memory


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
