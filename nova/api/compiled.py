"""`Compiled`: a `Model` with its plan and the record of its compile.

Created by `nova.compile` and `nova.load`. The compiler itself is imported only to put weights into
a program that came from a file or from the disk cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nova import knobs
from nova.artifact.format import read_artifact
from nova.core.location import user_location
from nova.core.packages import install_command, missing_packages
from nova.core.settings import Settings
from nova.errors import GraphError, SymbolicSizeError, WeightsError
from nova.plan import Plan, parse_plan
from nova.runtime.executor import Executable, in_order
from nova.runtime.gpu_executor import load_anywhere
from nova.runtime.model import Model
from nova.runtime.saving import Weights
from nova.runtime.weights import ParamValues, read_values

if TYPE_CHECKING:
    from nova.artifact.write import FileSpec
    from nova.compiler.recorder import Recorder
    from nova.tracing.schedule_sim import Simulation

_checker: list[Callable[..., Any]] = []


class Compiled(Model):
    """A compiled program: call it, inspect it, save it."""

    def __init__(
        self,
        executable: Executable,
        plan: Plan | None,
        origin: str,
        *,
        recorder: Recorder | None = None,
        contents: FileSpec | None = None,
        name: str = "program",
        values: ParamValues | None = None,
        simulation: Simulation | None = None,
    ):
        # Before the rest: a checked program reads the plan.
        self._executable = executable
        self._given_plan = plan
        self._recorder = recorder
        self._contents = contents
        self.simulation = simulation
        super().__init__(executable, origin, name, values)
        if knobs.get("specialize_after") and self.signature.dims:
            from nova.api.specialize import watch  # only on request

            watch(self)

    def _observed(self, program: Any) -> Any:
        check = knobs.get("check")
        if check == "off":
            return program
        if self.plan.dims:
            raise SymbolicSizeError(
                f"the knob check={check!r} compares programs of static sizes, and this one has "
                f"the dims {', '.join(dim.name for dim in self.plan.dims)}",
                hint="check the program of one size: compile it with static shapes",
            )
        return _checker[0](self._executable, program, self.plan, check)

    @property
    def has_plan(self) -> bool:
        """Whether it was compiled from a graph and its file holds the text of the plan."""
        return self._given_plan is not None or "plan" in super().stages

    @property
    def is_foreign(self) -> bool:
        """Whether its text came from outside, in a file or as MLIR: its origin is unknown."""
        return self._given_plan is None

    @cached_property
    def plan(self) -> Plan:
        """The frozen linear program; the plan of a file is parsed on first access."""
        if self._given_plan is not None:
            return self._given_plan
        text = super().stages.get("plan")
        if text is None:
            raise GraphError(
                "the program has no plan: it was not compiled from a graph, or saved without texts",
                where=str(user_location()),
                hint="its signature and the texts of its stages are there",
            )
        return parse_plan(text, self.name)

    @property
    def stages(self) -> Mapping[str, str]:
        """The text of every stage, from plan to LLVM IR; also for a program from a cache."""
        return super().stages if self._recorder is None else self._recorder.texts

    def _held_bytes(self) -> int:
        """Approximate bytes that the program keeps: its file, its code, texts and constants.

        Values of params are not counted, nor is the plan, which belongs to its graph.
        """
        nbytes = 2 * len(self._executable.artifact.data)
        if self._recorder is not None:
            nbytes += sum(map(len, self._recorder.compact.values()))
        return nbytes

    @property
    def mlir_source(self) -> str:
        """The program in the nova dialect, in its custom syntax: stage `nova`, readable."""
        from nova.ir.custom_syntax import to_pretty  # does not load MLIR

        return to_pretty(self.stages["nova"])

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Seconds and bytes of every stage of this compile; empty if it came from a cache."""
        return {} if self._recorder is None else self._recorder.metrics

    def with_values(self, values: ParamValues) -> Compiled:
        """The same program with other param values."""
        return Compiled(
            self._executable,
            self._given_plan,
            self.origin,
            recorder=self._recorder,
            contents=self._contents,
            name=self.name,
            values=values,
            simulation=self.simulation,
        )

    def simulated(self, cores: int, seed: int) -> Compiled:
        """The same program for run_mode="sim": its tasks run sequentially, in the order in which
        `cores` cores would start them."""
        simulation = self.simulate(cores, seed)
        return Compiled(
            in_order(self._executable, simulation.order.astype("<u4"), cores),
            self._given_plan,
            self.origin,
            recorder=self._recorder,
            contents=self._contents,
            name=self.name,
            values=self._values,
            simulation=simulation,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its file: values of params are included only if they are embedded in it."""
        plan = None if self._given_plan is None else str(self._given_plan)
        executable = self._executable
        data = bytes(executable.artifact.data)
        return (_unpickle, (data, plan, self.name, executable.device_name))

    def _check_code(self) -> None:
        artifact = self._executable.artifact
        if artifact.manifest.devices:
            from nova.compiler.gpu.ptx_check import check_artifact  # only for device code

            check_artifact(artifact)

    def _relink(self, weights: Weights) -> bytes:
        from nova.artifact.write import write_artifact  # the linker: a run does not need it

        contents = self._contents if self._contents is not None else self._rebuild()
        return write_artifact(replace(contents, weights=weights))

    def _rebuild(self) -> FileSpec:
        """The contents of the file, compiled again: a file does not keep its objects."""
        artifact = self._executable.artifact
        missing = missing_packages()
        if missing:
            raise WeightsError(
                "weights are put into a file when it is linked, which needs the compiler",
                hint=f"{install_command(missing)}, or save it where it was compiled",
            )
        from nova.compiler.driver import build
        from nova.compiler.module import PROGRAM_STAGES, build_text

        manifest, stages = artifact.manifest, artifact.stages()
        settings = [Settings.of(variant.options) for variant in manifest.variants]
        if manifest.source in PROGRAM_STAGES:
            text = stages[manifest.source]
            contents = build_text(text, manifest.source, settings, manifest.key, self.name).contents
        else:
            key, text = manifest.key, stages["plan"] if self.is_foreign else ""
            built = [
                build_text(text, "plan", [settings_of_file], key, self.name).contents
                if self.is_foreign
                else build(self.plan, settings_of_file, key).contents
                for settings_of_file in settings
            ]
            every = [variant for contents in built for variant in contents.variants]
            images = [image for contents in built for image in contents.devices]
            contents = replace(built[0], variants=tuple(every), devices=tuple(images))
        for new, old in zip(contents.variants, manifest.variants, strict=True):
            if tuple(new.target.features) != old.features:
                raise WeightsError(
                    f"the code for {old.target} was made for another CPU than this one",
                    hint="compile the program again, for a named target or for this machine",
                )
        # The signature of the file: the text of a later stage may carry less of it.
        return replace(contents, args=manifest.args, outputs=manifest.outputs, stages=stages)


def set_checker(make: Callable[..., Any]) -> None:
    """Register how runs are checked: `make(executable, program, plan, mode)` replaces the program.

    The package calls this on import; the checking code is loaded when a knob enables it.
    """
    _checker[:] = [make]


def _unpickle(data: bytes, plan: str | None, name: str, device: str | None = None) -> Compiled:
    artifact = read_artifact(data)
    inside = artifact.manifest.weights.kind == "embedded"
    return Compiled(
        load_anywhere(artifact, device),
        None if plan is None else parse_plan(plan),
        "file",
        name=name,
        values=read_values(artifact, None, None) if inside else None,
    )
