"""The source text of a compiled or loaded program, for translation.

In: a `Compiled` and the stage to start from, if the caller named one. Out: the source and that
stage. Called by `nova.translate`.
"""

from __future__ import annotations

from nova.api.compiled import Compiled
from nova.compiler.module import PROGRAM_STAGES
from nova.errors import GraphError, PipelineError
from nova.frontends.source import Source
from nova.ir.context import make_context
from nova.ir.emit import emit_module
from nova.ir.resources import whole_text


def source_of(program: Compiled, start: str | None) -> tuple[Source, str]:
    """The first complete stage of the program, with the user's lines if its plan has them."""
    if start is None and program.has_plan:
        module = emit_module(program.plan, make_context())
        text = whole_text(module.operation.get_asm(enable_debug_info=True), module.context)
        return Source(program.name, text.encode()), "nova"
    stages = program.stages
    if start is None:
        start = next((stage for stage in PROGRAM_STAGES if stage in stages), None)
        if start is None:
            raise GraphError(
                "the program has no text to translate: it was saved without",
                hint="translate what it was compiled from",
            )
    if start not in stages:
        raise PipelineError(
            f"start_from {start}: the program has no text of that stage",
            hint=f"it has {', '.join(stages) or 'none'}",
        )
    return Source(program.name, stages[start].encode()), start
