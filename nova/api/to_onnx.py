"""`nova.to_onnx`: a compiled program as an ONNX model, for the ops that ONNX has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nova.api.compiled import Compiled
from nova.core.sizes import is_static_shape
from nova.core.user_facing import user_facing
from nova.errors import OptionTypeError, UnsupportedOpError
from nova.frontends.onnx.export.writer import write_model
from nova.graph.tensor import Tensor
from nova.plan import Plan
from nova.plan.inline import inline_plan


@user_facing
def to_onnx(program: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """The program as an `onnx.ModelProto` of opset 21; with `path` it is also written there.

    `program` is the result of `nova.compile`, of `nova.load` (a file with its texts), or anything
    with a `compiled` program. Values that its params carry become initializers; params without
    values are inputs. An op without a form in ONNX is an UnsupportedOpError. See docs/onnx.md.
    """
    compiled = program if isinstance(program, Compiled) else getattr(program, "compiled", program)
    if not isinstance(compiled, Compiled):
        raise OptionTypeError(
            f"to_onnx(): a {type(program).__name__} is not a compiled program",
            hint="pass what nova.compile, nova.load or nova.jit(f).lower(*args) gave",
        )
    plan = compiled.plan
    for step in plan.steps:
        if step.results:
            raise UnsupportedOpError(
                f"{step.op} is not exported to ONNX",
                where=None if step.location is None else str(step.location),
                hint="export the program without the loop, branch or called file",
            )
    if plan.updates:
        raise UnsupportedOpError(
            "the program updates its params, which an ONNX model cannot",
            hint="export the program that uses the trained params",
        )
    arguments = [*plan.signature.inputs, *plan.signature.params]
    for spec in arguments:
        if not is_static_shape(spec.type.shape):
            raise UnsupportedOpError(
                f"{spec.name!r} has a symbolic size: {spec.type}",
                hint="export the program of static sizes, without nova.dim and dynamic=",
            )
    inputs, params, outputs = graph_of(plan)
    values = compiled._values.named()
    names = [spec.name for spec in plan.signature.inputs]
    model = write_model(
        list(zip(names, inputs, strict=True)),
        [
            (spec.name, tensor, values.get(spec.name))
            for spec, tensor in zip(plan.signature.params, params, strict=True)
        ],
        outputs,
    )
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model


def graph_of(plan: Plan) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The inputs, params and outputs of a plan, as a graph."""
    inputs = [Tensor(spec.type, name=spec.name) for spec in plan.signature.inputs]
    params = [Tensor(spec.type, name=spec.name) for spec in plan.signature.params]
    return inputs, params, inline_plan(plan, [*inputs, *params])
