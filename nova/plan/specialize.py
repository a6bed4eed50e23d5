"""A plan with symbolic sizes, for one combination of sizes: the plan of a static program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nova.core.dtypes import TensorType
from nova.core.signature import Argument, Signature
from nova.core.sizes import SizeExpr
from nova.plan.plan import Arg, Literal, Plan, Step


def specialize_plan(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan with the sizes of its dims in types and attributes; derivations are dropped."""

    def of_type(type_: TensorType) -> TensorType:
        return type_ if type_.is_static else type_.with_sizes(sizes)

    def of_value(value: Any) -> Any:
        if isinstance(value, SizeExpr):
            return value.evaluate(sizes)
        return tuple(map(of_value, value)) if isinstance(value, tuple) else value

    def of_arg(arg: Arg) -> Arg:
        return replace(arg, type=of_type(arg.type)) if isinstance(arg, Literal) else arg

    def of_arguments(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        return tuple(replace(a, type=of_type(a.type)) for a in arguments)

    def of_step(step: Step) -> Step:
        return replace(
            step,
            args=tuple(map(of_arg, step.args)),
            attrs={name: of_value(value) for name, value in step.attrs.items()},
            out_type=of_type(step.out_type),
            regions=tuple(specialize_plan(region, sizes) for region in step.regions),
            results=tuple(map(of_type, step.results)),
        )

    return Plan(
        Signature(of_arguments(plan.signature.inputs), of_arguments(plan.signature.params)),
        tuple(map(of_step, plan.steps)),
        tuple(map(of_arg, plan.results)),
        tuple((i, of_arg(value)) for i, value in plan.updates),
    )
