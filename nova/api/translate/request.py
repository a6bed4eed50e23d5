"""Validates a translation request: targets, first stage, last stage.

`nova.translate` passes its arguments to the functions of this file, which reject invalid
combinations before any work is done; `session.py` reads the tables of stages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from reprlib import repr
from typing import Any

from nova.api.compiled import Compiled
from nova.compiler.recorder import Recorder
from nova.compiler.stages import CPU_STAGES, DEVICE_STAGES, SHARED_STAGES
from nova.core.dtypes import array_dtype
from nova.core.location import user_location
from nova.core.settings import Settings, current_settings
from nova.core.sizes import SizeExpr
from nova.core.targets import parse_target
from nova.errors import OptionTypeError, PipelineError, TargetError
from nova.frontends.source import Source
from nova.frontends.specialize import ArgumentShape

_NONE = type(None)
# The valid types of each argument of `translate`, and their description in errors.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "source": (
        (str, os.PathLike, bytes, bytearray, memoryview, Source, Compiled),
        "MLIR (text, bytes or a path), what nova.compile or nova.load gave, or a training step",
    ),
    "targets": ((str, list, tuple, dict, set, frozenset), "names such as 'cpu' or ['x86_64-v3']"),
    "entry": ((str,), "the name of a function"),
    "args": ((list, tuple, _NONE), "a list of arrays"),
    "weights": ((str, os.PathLike, Mapping, _NONE), "a dict of arrays by name, or a path"),
    "start_from": ((str, _NONE), "the name of a stage"),
    "emit": ((str, _NONE), "the name of a stage"),
    "fast_math": ((bool, _NONE), "True, False or None"),
    "cubin": ((bool, _NONE), "True, False or None"),
    "recorder": ((Recorder, _NONE), "a Recorder"),
}

# The stages that can be requested, in the order of the CPU and the GPU pipeline. The stage `object`
# is `obj`, and the file is `so`.
HOST_EMITS = tuple("obj" if stage == "object" else stage for stage in (*CPU_STAGES, "so"))
DEVICE_EMITS = (*DEVICE_STAGES, "so")
EMITS = tuple(dict.fromkeys((*HOST_EMITS[:-1], *DEVICE_EMITS)))
STARTS = tuple(stage for stage in EMITS if stage not in ("asm", "obj", "ptx", "cubin", "so"))
# The text of these stages has its schedules applied already.
SCHEDULED = ("loops", "llvm", "ll", "device", "outlined", "nvvm")
# The text of these stages has only kernels.
KERNELS_ONLY = ("llvm", "nvvm", "ll")


def check_types(options: Mapping[str, Any]) -> None:
    """Reject arguments of `translate` that have the wrong type or value."""
    for name, value in options.items():
        types, description = _TYPES[name]
        has_names = name in ("targets", "weights") and not isinstance(value, str | os.PathLike)
        if not isinstance(value, types) or (has_names and not _are_names(value)):
            raise OptionTypeError(
                f"translate(): {name} is {repr(value)}, of type {type(value).__name__}",
                where=str(user_location()),
                hint=f"it takes {description}",
            )


def _are_names(values: Any) -> bool:
    return values is None or all(isinstance(name, str) for name in values)


def argument_shapes(args: Sequence[Any] | None) -> tuple[ArgumentShape, ...] | None:
    """Shapes and dtypes of example arguments, which are arrays, numbers or descriptions of them."""
    return None if args is None else tuple(_argument_shape(value) for value in args)


def _argument_shape(value: Any) -> ArgumentShape:
    if isinstance(value, bool | int | float):
        return (), None
    try:
        shape = tuple(n if isinstance(n, SizeExpr) else int(n) for n in value.shape)
        given = value.dtype
    except (AttributeError, TypeError, ValueError):
        raise OptionTypeError(
            f"translate(): an example argument is {repr(value)}, of type {type(value).__name__}",
            where=str(user_location()),
            hint="it takes arrays, or anything with a shape of integers or sizes and a dtype",
        ) from None
    if given is None:
        return shape, None
    # torch's dtypes are not numpy's, but their names are.
    return shape, array_dtype(str(given).removeprefix("torch.")).name


def settings_of(
    targets: Sequence[str],
    fast_math: bool | None,
    tune: float | None,
    cubin: bool | None,
    launch: str | None = None,
) -> list[Settings]:
    if not targets:
        raise TargetError("no target to compile for", hint="targets=('cpu',) is this machine")
    if len(set(targets)) < len(targets):
        raise TargetError(f"a target is given twice: {', '.join(targets)}")
    parsed = {name: parse_target(name) for name in targets}
    archs = {name: target.arch for name, target in parsed.items() if not target.is_device}
    if len(set(archs.values())) > 1:
        listed = ", ".join(f"{name} is {arch}" for name, arch in archs.items())
        raise TargetError(
            f"the targets of one file are of one architecture: {listed}",
            hint="translate once for each architecture",
        )
    if cubin and not any(target.is_device for target in parsed.values()):
        raise TargetError(
            f"cubins are code for devices, and there is none for {', '.join(targets)}",
            hint="give a target such as cuda:sm_90a",
        )
    if launch == "persistent" and not any(target.is_device for target in parsed.values()):
        raise TargetError(
            f"launch='persistent' is for devices, and there is none in {', '.join(targets)}",
            hint="give a target such as cuda:sm_90a, or leave launch out",
        )
    settings = [
        current_settings(name, fast_math, tune=tune, cubin=cubin, launch=launch) for name in targets
    ]
    return [replace(entry, tune=entry.tune / len(targets)) for entry in settings]


def check_assembler(settings: Sequence[Settings], emit: str) -> None:
    """PtxasError if cubins are requested and no `ptxas` is installed."""
    cubins = any(s.cubin and parse_target(s.target).is_device for s in settings)
    if emit == "cubin" or (emit in ("so", "obj") and cubins):
        from nova.artifact.cubins.ptxas import require_ptxas  # loaded only on demand

        require_ptxas()


def checked_stage(word: str, names: Sequence[str], parameter: str) -> str:
    if word not in names:
        from difflib import get_close_matches  # only for an error message

        close = get_close_matches(word, names, 1)
        raise PipelineError(
            f"{parameter}: no stage {word!r}",
            hint=(f"did you mean {close[0]!r}? " if close else "") + f"one of {', '.join(names)}",
        )
    return word


def check_order(start: str | None, emit: str, settings: Sequence[Settings]) -> None:
    for entry in settings:
        device = parse_target(entry.target).is_device
        stages = DEVICE_EMITS if device else HOST_EMITS
        for action, stage in (("start from", start), ("emit", emit)):
            if stage is not None and stage not in stages:
                raise PipelineError(
                    f"{action} {stage}: that is not a stage for {entry.target}",
                    hint=f"its stages are {', '.join(stages)}",
                )
        if start is not None and stages.index(emit) < stages.index(start):
            raise PipelineError(f"{emit} comes before {start}, where the translation starts")
        if start in KERNELS_ONLY and emit == "so":
            before, code = ("outlined", "ptx") if device else ("loops", "asm or obj")
            raise PipelineError(
                f"the stage {start} has kernels only: the launch order is no longer in it",
                hint=f"start from {before} or before, or emit {code}",
            )
    if len(settings) > 1 and emit not in (*SHARED_STAGES, "so"):
        raise PipelineError(
            f"{emit} is different for each target, and {len(settings)} are given",
            hint="give one target",
        )
