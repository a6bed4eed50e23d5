"""`nova.translate`: compiles MLIR or a compiled program to a file for one or several targets.

In: a path, text, bytes (text or bytecode) or a `Compiled`; the targets; values of weights; the
first and the last stage (`request.py`). Out: a `Translation` (`result.py`): the bytes of the file
or of the requested stage, the text of every stage in between, and their metrics. `session.py` runs
the stages. The tool `nova-translate` is a command line for this library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nova.api.compiled import Compiled
from nova.api.translate.program import source_of
from nova.api.translate.request import (
    EMITS,
    SCHEDULED,
    STARTS,
    argument_shapes,
    check_assembler,
    check_order,
    check_types,
    checked_stage,
    settings_of,
)
from nova.api.translate.result import Translation
from nova.api.translate.session import (
    Request,
    finish,
    prefers_persistent,
    run_request,
    run_request_sandboxed,
)
from nova.compiler.recorder import Recorder
from nova.compiler.stages import SHARED_STAGES
from nova.core.gc_pause import paused_gc
from nova.core.log import log, progress
from nova.core.sizes.text import print_sizes
from nova.core.user_facing import user_facing
from nova.errors import PersistentLaunchError, PipelineError
from nova.frontends.safetensors import read_safetensors
from nova.frontends.source import Source, read_source
from nova.runtime.weights import fit_names

__all__ = ["EMITS", "STARTS", "Translation", "translate"]


@user_facing
def translate(
    source: str | os.PathLike[str] | bytes | Source | Compiled,
    *,
    targets: str | Sequence[str] = ("cpu",),
    entry: str = "main",
    args: Sequence[Any] | None = None,
    weights: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    start_from: str | None = None,
    emit: str | None = None,
    fast_math: bool | None = None,
    tune: float | None = None,
    cubin: bool | None = None,
    recorder: Recorder | None = None,
    launch: str | None = None,
) -> Translation:
    """Compile a program for one or several targets, to one file.

    `source` is the result of `nova.compile` or `nova.load`, a training step (its most recently used
    program), or MLIR (nova, StableHLO, TOSA or linalg; as text, bytecode, or a path). `targets` are
    the machines that the file has code for: CPUs of one architecture (`x86_64`, `x86_64-v3`, ...)
    and GPUs (`cuda:sm_80`, `cuda:sm_90a`, ...). Values of params that a program carries stay with
    it: `save(path, weights="embed")` puts them into the file. `weights` are values of arguments by
    name, such as `model.state_dict()`, or a safetensors file of them: those arguments become
    params, and the file embeds the values. `entry` is the MLIR function to start from. `args` are
    example arguments (arrays, or anything with `shape` and `dtype`): a program with `?` sizes is
    compiled for theirs, which may be symbolic (`nova.dim`). Without them, `?` sizes are symbolic.
    `start_from`
    declares that the text is that of a later stage; `emit` stops at a stage (`linalg`, ..., `ll`,
    `asm`, `obj`). With `cubin`, the file holds device code as cubins as well as PTX
    (docs/devices.md). `tune` is the time limit in seconds for trying schedules on this machine
    (docs/tuning.md). `recorder` receives each stage when it is reached, and keeps them if one
    fails. `launch` says how GPUs run the kernels of the program, as in `nova.compile`. See
    docs/importing.md.
    """
    if not isinstance(source, Compiled):
        # A training step stands for its most recently used program.
        source = getattr(source, "compiled", source)
    options = {
        "source": source,
        "targets": targets,
        "entry": entry,
        "args": args,
        "weights": weights,
        "start_from": start_from,
        "emit": emit,
        "fast_math": fast_math,
        "cubin": cubin,
        "recorder": recorder,
    }
    check_types(options)
    names = [targets] if isinstance(targets, str) else list(targets)
    settings = settings_of(names, fast_math, tune, cubin, launch)
    is_auto = any(entry.launch == "auto" for entry in settings)
    if is_auto:
        settings = [replace(entry, launch="graph") for entry in settings]
    emit = checked_stage(emit or "so", EMITS, "emit")
    start = None if start_from is None else checked_stage(start_from, STARTS, "start_from")
    carried = None
    if isinstance(source, Compiled):
        text, start = source_of(source, start)
        carried = source.carried
    else:
        text = source if isinstance(source, Source) else read_source(source)
    check_order(start, emit, settings)
    check_assembler(settings, emit)
    if start in SCHEDULED or emit in SHARED_STAGES:
        if tune:
            reason = f"{start} has them already" if start in SCHEDULED else f"{emit} has none yet"
            raise PipelineError(f"tune is given to choose schedules, and {reason}")
        settings = [replace(entry, tune=0.0) for entry in settings]
    values = weights if weights is None or isinstance(weights, Mapping) else _read_values(weights)
    if values is not None and emit != "so":
        raise PipelineError(f"weights are kept in the file, and {emit} is requested")
    if values and carried is not None:
        values = fit_names(values, [spec.name for spec in carried.params])
    shapes = argument_shapes(args)
    texts = None if shapes is None else tuple((print_sizes(n), dtype) for n, dtype in shapes)
    request = Request(text, settings, emit, start, entry, tuple(values or ()), texts)
    recorder = recorder or Recorder()
    with progress("translating") as bar, paused_gc():
        bar.advance(start or "import")
        # A program that Nova compiled from a graph is not text from outside.
        is_trusted = isinstance(source, Compiled) and not source.is_foreign
        run = run_request if is_trusted else run_request_sandboxed
        result = run(request, recorder, bar)
        if is_auto and prefers_persistent(result):
            chosen = [replace(entry, launch="persistent") for entry in settings]
            try:
                result = run(replace(request, settings=chosen), recorder, bar)
                request = replace(request, settings=chosen)
            except PersistentLaunchError as error:
                log("compile", f"launch='auto' takes the graph: {error.what}")
        return finish(result, request, recorder, values or {}, carried)


def _read_values(path: str | os.PathLike[str]) -> dict[str, Any]:
    return dict(read_safetensors(Path(path)))
