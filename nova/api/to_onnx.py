"""`nova.to_onnx`: a compiled program as an ONNX model, for the ops that ONNX has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nova.api.compiled import Compiled
from nova.core.user_facing import user_facing
from nova.errors import OptionTypeError, UnsupportedOpError
from nova.frontends.onnx.export.writer import write_model
from nova.graph.build import make_node
from nova.graph.tensor import Tensor
from nova.ops import op
from nova.plan import Plan
from nova.plan.plan import Input, Literal, Param


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
            hint="pass what nova.compile or nova.load gave",
        )
    plan = compiled.plan
    if plan.updates:
        raise UnsupportedOpError(
            "the program updates its params, which an ONNX model cannot",
            hint="export the program that uses the trained params",
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
    slots: list[Tensor] = []

    def value(arg: Any) -> Tensor:
        if isinstance(arg, Input):
            return inputs[arg.index]
        if isinstance(arg, Param):
            return params[arg.index]
        if isinstance(arg, Literal):
            return Tensor(arg.type, data=arg.array, fixed=True)
        return slots[arg.index]

    for step in plan.steps:
        operands = tuple(value(arg) for arg in step.args)
        slots.append(make_node(op(step.op), operands, dict(step.attrs), step.out_type))
    return inputs, params, [value(arg) for arg in plan.results]
