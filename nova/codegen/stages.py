"""The stages of a compile: an ordered table, and one loop that runs, times, dumps and resumes them.

    plan -> nova -> linalg -> kernels -> buffers -> loops -> llvm -> ll -> object -> artifact

Each stage up to `ll` has a textual form, which `Compiled.stages` keeps and `NOVA_DUMP=dir` writes.
A compile can start from the text of any of the MLIR stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nova import knobs
from nova.errors import PipelineError
from nova.log import log
from nova.mlir.bindings import ir
from nova.mlir.context import make_context, parse_module, verify_module
from nova.mlir.emit import emit_module
from nova.passes import pipelines
from nova.passes.base import Pass, run_pipeline
from nova.plan import Plan

# Stage -> the passes that lead to it from the stage before, given the target's name.
MLIR_STAGES: dict[str, Callable[[str], list[Pass]]] = {
    "nova": lambda target: [],
    "linalg": lambda target: pipelines.nova_to_linalg(),
    "kernels": lambda target: pipelines.linalg_to_kernels(),
    "buffers": lambda target: pipelines.kernels_to_buffers(),
    "loops": lambda target: pipelines.buffers_to_loops(target),
    "llvm": lambda target: pipelines.loops_to_llvm(target),
}


@dataclass
class Recorder:
    """What a compile leaves behind: text, seconds and size of every stage."""

    texts: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def record(self, stage: str, text: str, seconds: float, size: int | None = None) -> None:
        self.texts[stage] = text
        self.seconds[stage] = seconds
        self.sizes[stage] = len(text) if size is None else size
        log("compile", f"{stage}: {seconds * 1e3:.1f} ms, {self.sizes[stage]} bytes")
        folder = knobs.get("dump")
        if folder:
            path = Path(folder)
            path.mkdir(parents=True, exist_ok=True)
            number = list(self.texts).index(stage)
            suffix = {"plan": "plan", "ll": "ll"}.get(stage, "mlir")
            (path / f"{number}-{stage}.{suffix}").write_text(text)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return {s: {"seconds": t, "bytes": self.sizes[s]} for s, t in self.seconds.items()}


def start_from_plan(plan: Plan, recorder: Recorder) -> ir.Module:
    """The module at the `nova` stage."""
    started = time.perf_counter()
    module = emit_module(plan, make_context())
    verify_module(module)
    recorder.record("nova", str(module), time.perf_counter() - started)
    return module


def start_from_text(text: str, filename: str) -> ir.Module:
    """A module from the text of any MLIR stage."""
    return parse_module(text, filename, make_context())


def run_stages(
    module: ir.Module,
    target: str,
    recorder: Recorder,
    *,
    after: str = "nova",
    observe: Callable[[str, ir.Module], Any] | None = None,
) -> None:
    """Take `module` from the stage `after` through all later MLIR stages, in place."""
    names = list(MLIR_STAGES)
    if after not in names:
        raise PipelineError(f"no stage {after!r}", hint=f"the stages are {', '.join(names)}")
    for name in names[names.index(after) + 1 :]:
        started = time.perf_counter()
        run_pipeline(module, MLIR_STAGES[name](target), verify=False)
        if observe is not None:
            observe(name, module)
        seconds = time.perf_counter() - started
        recorder.record(name, str(module), seconds)
