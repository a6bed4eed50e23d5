"""`nova.translate`: a program in MLIR, or a compiled one, to a file for one or several targets.

In: a path, text, bytes (text or bytecode) or a `Compiled`; the targets; values of weights; where to
start and where to stop. Out: a `Translation`: the bytes of the file or of the stage asked for, the
text of every stage on the way, and what each took. This is the library behind the tool
`nova-translate`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nova import knobs
from nova.artifact.format import read_artifact, save_artifact
from nova.artifact.manifest import WeightsSpec
from nova.artifact.trust import sign_artifact
from nova.artifact.write import write_artifact
from nova.codegen.compile import build_module, single_unit
from nova.codegen.llvm import Unit, assembly, compile_objects
from nova.codegen.module import module_contents
from nova.codegen.signature import ProgramSignature, read_signature
from nova.codegen.stages import (
    DEVICE_STAGES,
    MLIR_STAGES,
    SHARED_STAGES,
    Recorder,
    copy_module,
    module_text,
    run_stages,
    stages_of,
)
from nova.compiled import Compiled
from nova.errors import PipelineError, TargetError
from nova.frontends.program import import_program
from nova.frontends.safetensors import read_safetensors
from nova.frontends.source import Source, parse_source, read_source
from nova.log import Progress, progress
from nova.mlir.bindings import ir
from nova.mlir.walk import every_op
from nova.runtime.device_executor import load_anywhere
from nova.runtime.model import Model
from nova.runtime.weights import bytes_of, choose_values, read_values
from nova.settings import Settings, current_settings
from nova.targets import parse_target

# What can be asked for, in the order of the two roads; the file itself is `so`.
_HOST_EMITS = (*MLIR_STAGES, "ll", "asm", "obj", "so")
_DEVICE_EMITS = (*DEVICE_STAGES, "ll", "ptx", "so")
EMITS = tuple(dict.fromkeys((*_HOST_EMITS[:-1], *_DEVICE_EMITS)))
STARTS = tuple(stage for stage in EMITS if stage not in ("asm", "obj", "ptx", "so"))
# In the text of these stages, the schedules have been chosen.
_SCHEDULED = ("loops", "llvm", "ll", "device", "outlined", "nvvm")
# The text of these has kernels only.
_KERNELS_ONLY = ("llvm", "nvvm", "ll")


@dataclass(frozen=True)
class Translation:
    """What a translation gave.

    `data` is the file, or the bytes of what `emit` asked for. `stages` has the text of every stage
    that was gone through, `metrics` its seconds and bytes.
    """

    data: bytes
    emit: str
    signature: ProgramSignature | None
    recorder: Recorder

    @property
    def stages(self) -> dict[str, str]:
        return dict(self.recorder.texts)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return self.recorder.metrics

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `data` to a file, which appears whole or not at all."""
        save_artifact(path, self.data)

    def sign(self, key: str | os.PathLike[str]) -> Translation:
        """The same translation, its file signed with the private key in the file `key`."""
        self._require_file("to sign")
        return replace(self, data=sign_artifact(self.data, Path(key)))

    def load(self) -> Model:
        """The program, ready to be run on this machine, with the weights it was given."""
        self._require_file("to run")
        return self._model

    @cached_property
    def _model(self) -> Model:
        artifact = read_artifact(self.data)
        return Model(load_anywhere(artifact), "compiled", values=read_values(artifact, None, None))

    def _require_file(self, what: str) -> None:
        if self.emit != "so":
            raise PipelineError(
                f"the translation stopped at {self.emit}: there is no program {what}",
                hint="translate without emit",
            )


def translate(
    source: str | os.PathLike[str] | bytes | Source | Compiled,
    *,
    targets: str | Sequence[str] = ("cpu",),
    entry: str = "main",
    weights: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    start_from: str | None = None,
    emit: str | None = None,
    fast_math: bool | None = None,
    tune: float | None = None,
    cubin: bool | None = None,
    recorder: Recorder | None = None,
) -> Translation:
    """Compile a program in MLIR (nova, StableHLO, TOSA or linalg; text or bytecode) to a file.

    `targets` are the machines to compile for, of one architecture: each gets its code in the file.
    `entry` is the function to start from. `weights` are values of arguments by name, or a
    safetensors file of them: those arguments become params, which the file carries. `start_from`
    says that the text is that of a later stage; `emit` stops at one (`linalg`, ..., `ll`, `asm`,
    `obj`). With `cubin`, code for devices is there assembled as well as in PTX (docs/devices.md).
    `tune` seconds may go into trying schedules on this machine (docs/tuning.md).
    `recorder` gets the stages as they are reached, and has them when one fails. docs/importing.md
    has more.
    """
    names = [targets] if isinstance(targets, str) else list(targets)
    settings = _settings(names, fast_math, tune, cubin)
    emit = _checked(emit or "so", EMITS, "emit")
    start = None if start_from is None else _checked(start_from, STARTS, "start_from")
    if isinstance(source, Compiled):
        given, start = Source("<compiled>", source.mlir_source.encode()), start or "nova"
    else:
        given = source if isinstance(source, Source) else read_source(source)
    _check_order(start, emit, settings)
    if start in _SCHEDULED or emit in SHARED_STAGES:
        if tune:
            which = f"{start} has them already" if start in _SCHEDULED else f"{emit} has none yet"
            raise PipelineError(f"tune is given to choose schedules, and {which}")
        settings = [replace(own, tune=0.0) for own in settings]
    values = weights if weights is None or isinstance(weights, Mapping) else _read_values(weights)
    if values is not None and emit != "so":
        raise PipelineError(f"weights are kept in the file, and {emit} is asked for")
    road = _Road(given, settings, recorder or Recorder(), emit, values or {})
    return road.travel(start, entry)


# --- what was asked for ---------------------------------------------------------------------------


def _settings(
    targets: Sequence[str], fast_math: bool | None, tune: float | None, cubin: bool | None
) -> list[Settings]:
    if not targets:
        raise TargetError("no target to compile for", hint="targets=('cpu',) is this machine")
    if len(set(targets)) < len(targets):
        raise TargetError(f"a target is given twice: {', '.join(targets)}")
    known = {name: parse_target(name) for name in targets}
    archs = {name: target.arch for name, target in known.items() if not target.is_device}
    if len(set(archs.values())) > 1:
        listed = ", ".join(f"{name} is {arch}" for name, arch in archs.items())
        raise TargetError(
            f"the targets of one file are of one architecture: {listed}",
            hint="translate once for each architecture",
        )
    if cubin and not any(target.is_device for target in known.values()):
        raise TargetError(
            f"cubins are code for devices, and there is none for {', '.join(targets)}",
            hint="give a target such as cuda:sm_90a",
        )
    found = [current_settings(name, fast_math, tune=tune, cubin=cubin) for name in targets]
    return [replace(own, tune=own.tune / len(targets)) for own in found]


def _read_values(path: str | os.PathLike[str]) -> dict[str, Any]:
    return dict(read_safetensors(Path(path)))


def _checked(word: str, known: Sequence[str], what: str) -> str:
    if word not in known:
        from difflib import get_close_matches  # only on the way to an error

        close = get_close_matches(word, known, 1)
        raise PipelineError(
            f"{what}: no stage {word!r}",
            hint=(f"did you mean {close[0]!r}? " if close else "") + f"one of {', '.join(known)}",
        )
    return word


def _check_order(start: str | None, emit: str, settings: Sequence[Settings]) -> None:
    for own in settings:
        device = parse_target(own.target).is_device
        road = _DEVICE_EMITS if device else _HOST_EMITS
        for what, stage in (("start from", start), ("emit", emit)):
            if stage is not None and stage not in road:
                raise PipelineError(
                    f"{what} {stage}: that is no stage on the way to {own.target}",
                    hint=f"its stages are {', '.join(road)}",
                )
        if start is not None and road.index(emit) < road.index(start):
            raise PipelineError(f"{emit} comes before {start}, where the translation starts")
        if start in _KERNELS_ONLY and emit == "so":
            before, code = ("outlined", "ptx") if device else ("loops", "asm or obj")
            raise PipelineError(
                f"the stage {start} has kernels only: what runs when is no longer in it",
                hint=f"start from {before} or before, or emit {code}",
            )
    if len(settings) > 1 and emit not in (*SHARED_STAGES, "so"):
        raise PipelineError(
            f"{emit} is different for each target, and {len(settings)} are given",
            hint="give one target",
        )


def _check_llvm(module: ir.Module, stage: str) -> None:
    """Refuse ops of an earlier stage, on which MLIR's translation ends the process."""
    tops = [op.operation for op in module.body.operations]
    known: tuple[str, ...] = ("llvm.",)
    if stage == "nvvm":  # what the host does stays as it is in the text of a device's stage
        known = ("llvm.", "nvvm.", "gpu.module")
        tops = [op for op in tops if op.name == "gpu.module"]
        if not tops:
            raise PipelineError(
                "no gpu.module: the text is not of the stage nvvm",
                hint="start from the stage of the text",
            )
    for op in (inner for top in tops for inner in every_op(top)):
        if not op.name.startswith(known):
            raise PipelineError(
                f"{op.name} is not of the stage {stage}", hint="start from the stage of the text"
            )


# --- the road -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Road:
    """One translation from the source to what was asked for."""

    source: Source
    settings: list[Settings]
    recorder: Recorder
    emit: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def travel(self, start: str | None, entry: str) -> Translation:
        with progress("translating") as bar:
            bar.advance(start or "import")
            if start == "ll":
                return self._from_llvm_text()
            module, stage, signature = self._begin(start, entry)
            if start is None:
                self._check_begin(stage)
            self._tune(module, stage, bar)
            if self.emit in MLIR_STAGES or self.emit in DEVICE_STAGES:
                return self._stop_at(module, stage, signature)
            if self.device and self.emit in ("ll", "ptx"):
                run_stages(module, self.settings[0], self.recorder, after=stage)
                from nova.codegen.ptx import device_ir  # loads what only devices need

                return self._emit_device(device_ir(module), signature)
            if self.emit in ("ll", "asm", "obj"):
                run_stages(module, self.settings[0], self.recorder, after=stage)
                return self._emit_unit(single_unit(module), signature)
            assert signature is not None
            texts_before = dict(self.recorder.texts)
            program = build_module(module, self.settings, self.recorder, after=stage, bar=bar)
            if program.images:
                from nova.codegen.ptx_check import check_images  # loads what only devices need

                check_images(program.images)
            started = time.perf_counter()
            source = next(reversed(texts_before))
            contents = module_contents(signature, program, self.recorder.texts, source, {})
            data = write_artifact(replace(contents, weights=self._weights(signature)))
            self.recorder.record_size("artifact", len(data), time.perf_counter() - started)
            return Translation(data, "so", signature, self.recorder)

    def _tune(self, module: ir.Module, stage: str, bar: Progress) -> None:
        """Choose schedules for the targets that are to be tuned, by trying them."""
        for number, own in enumerate(self.settings):
            if own.tune:
                from nova.tuning import tune_settings  # only when somebody asks

                self.settings[number] = tune_settings(copy_module(module), stage, own, bar)

    def _begin(self, start: str | None, entry: str) -> tuple[ir.Module, str, Any]:
        started = time.perf_counter()
        if start is not None and start != "nova":
            module = parse_source(self.source)
            only_kernels = start in _KERNELS_ONLY
            if only_kernels:
                _check_llvm(module, start)
            signature = None if only_kernels else read_signature(module)
            self.recorder.record(start, module_text(module), time.perf_counter() - started)
            return module, start, signature
        imported = import_program(self.source, entry, self.values)
        seconds = time.perf_counter() - started
        if imported.frontend != "nova":
            name = "source" if imported.frontend == "linalg" else imported.frontend
            self.recorder.record(name, imported.text, 0.0)
        self.recorder.record(imported.stage, module_text(imported.module), seconds)
        return imported.module, imported.stage, imported.signature

    def _check_begin(self, stage: str) -> None:
        """Refuse what lies before the stage that an imported program begins at."""
        for own in self.settings:
            road = _DEVICE_EMITS if parse_target(own.target).is_device else _HOST_EMITS
            if stage not in road:
                raise PipelineError(
                    f"the program launches device code, which {own.target} cannot run",
                    hint="give a target such as cuda:sm_90a, and no others",
                )
            if stage in _SCHEDULED and own.tune:
                raise PipelineError("tune is given to choose schedules, and launches have them")
            if self.emit != "nova" and road.index(self.emit) < road.index(stage):
                raise PipelineError(f"the program begins at {stage}, and {self.emit} is before it")

    def _weights(self, signature: ProgramSignature) -> dict[int, memoryview] | WeightsSpec:
        """The values that go into the file, by the index of their param."""
        if not self.values:
            return WeightsSpec()
        params = {i: spec for i, spec in enumerate(signature.args) if spec.role == "param"}
        nothing = [None] * len(params)
        arrays = choose_values(list(params.values()), self.values, nothing, self.source.name)
        return dict(zip(params, map(bytes_of, arrays), strict=True))

    def _stop_at(self, module: ir.Module, stage: str, signature: Any) -> Translation:
        if self.emit == "nova" and stage != "nova":
            behind = ", ".join(list(stages_of(self.settings[0]))[1:])
            raise PipelineError(
                "the program never is in the nova dialect: it came in another one",
                hint=f"the stages on its way are {behind}",
            )
        if self.emit != stage:
            run_stages(module, self.settings[0], self.recorder, after=stage, until=self.emit)
        return Translation(module_text(module).encode(), self.emit, signature, self.recorder)

    @property
    def device(self) -> bool:
        """Whether the one target is a device."""
        return parse_target(self.settings[0].target).is_device

    def _emit_device(self, text: str, signature: Any) -> Translation:
        """Device code from its LLVM IR: as that, or as PTX."""
        from nova.codegen.ptx import compile_ptx

        self.recorder.record("ll", text, 0.0)
        if self.emit == "ll":
            return Translation(text.encode(), "ll", signature, self.recorder)
        started = time.perf_counter()
        ptx = compile_ptx(text, parse_target(self.settings[0].target))
        self.recorder.record("ptx", ptx, time.perf_counter() - started)
        return Translation(ptx.encode(), "ptx", signature, self.recorder)

    def _from_llvm_text(self) -> Translation:
        if self.device:
            return self._emit_device(self.source.text, None)
        self.recorder.record("ll", self.source.text, 0.0)
        return self._emit_unit(Unit(self.source.text, False), None, recorded=True)

    def _emit_unit(self, unit: Unit, signature: Any, recorded: bool = False) -> Translation:
        target = parse_target(self.settings[0].target)
        if not recorded:
            self.recorder.record("ll", unit.text, 0.0)
        if self.emit == "ll":
            return Translation(unit.text.encode(), "ll", signature, self.recorder)
        started = time.perf_counter()
        if self.emit == "asm":
            text = assembly(unit, target)
            self.recorder.record("asm", text, time.perf_counter() - started)
            return Translation(text.encode(), "asm", signature, self.recorder)
        [data] = compile_objects([unit], target, knobs.get("threads"))
        self.recorder.record_size("object", len(data), time.perf_counter() - started)
        return Translation(data, "obj", signature, self.recorder)
