"""The result of a check, and the errors created from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nova.core.location import Location
from nova.debug.plan_transforms import Program, describe
from nova.errors import CheckError, IndexRangeError, NonFiniteError
from nova.plan import Derivation, Plan, Step

_HINT = "nova.debug.minimize(program) reduces it to a few ops and writes a script that shows it"
_INDEX_HINT = "without the check the index is clamped to the ends of the axis (docs/ops.md)"


@dataclass(frozen=True)
class Finding:
    """The first fault of a program.

    kind        `step` (its own code is wrong), `program` (correct alone, wrong when combined with
                other steps: fusion, tiling, memory), `gradient` (a vjp column), `nonfinite` or
                `index` (an argument that is an index, outside of its axis).
    op, step    the op and the number of its step; None if no step of the plan is at fault.
    signature   the op with the types of its operands and of its result.
    location    the user's line.
    detail      a description: the largest difference and its position, or the non-finite value.
    kernels     the kernels that come from this line.
    operand     for a gradient: the number of the operand whose gradient is wrong.
    program     the plan and arguments that reproduce it.
    alone       for a gradient: the op by itself, with its operands as inputs.
    """

    kind: str
    op: str | None
    step: int | None
    signature: str
    location: Location | None
    detail: str
    kernels: tuple[str, ...] = ()
    operand: int | None = None
    program: Program | None = field(default=None, repr=False, compare=False)
    alone: Program | None = field(default=None, repr=False, compare=False)


def step_finding(
    category: str, program: Program, step: Step, detail: str, kernels: Any = ()
) -> Finding:
    """A finding about one step; `kernels` are those of the program that showed it."""
    location = str(step.location)
    names = tuple(dict.fromkeys(k.name for k in kernels if location in k.location))
    signature = describe(program.plan, step)
    return Finding(
        category, step.op, step.out_slot, signature, step.location, detail, names, program=program
    )


def gradient_finding(
    program: Program, derivation: Derivation, detail: str, alone: Program
) -> Finding:
    """A finding about a vjp column."""
    operands = ", ".join(str(t) for t in derivation.types)
    return Finding(
        "gradient",
        derivation.op,
        derivation.out_slot,
        f"{derivation.op}({operands})",
        derivation.location,
        detail,
        operand=derivation.operand,
        program=program,
        alone=alone,
    )


def error_of(finding: Finding) -> CheckError | NonFiniteError | IndexRangeError:
    """The error to raise for a finding."""
    where = str(finding.location) if finding.location else None
    error_class: type[CheckError | NonFiniteError | IndexRangeError]
    match finding.kind:
        case "nonfinite":
            error_class = NonFiniteError
        case "index":
            error_class = IndexRangeError
        case _:
            error_class = CheckError
    hint = _INDEX_HINT if finding.kind == "index" else _HINT
    error = error_class(_text(finding), where=where, hint=hint)
    error.finding = finding
    return error


def _text(finding: Finding) -> str:
    count = len(finding.program.plan.steps) if finding.program else 0
    number = f"step {finding.step} of {count}, " if finding.step is not None else ""
    summary = {
        "step": f"{number}{finding.signature}, differs from the numpy oracle",
        "program": f"{number}{finding.signature}, is right alone and wrong in this program",
        "gradient": f"the vjp of {finding.signature} is wrong for operand {finding.operand}",
        "nonfinite": f"{number}{finding.signature}, is not finite",
        "index": f"{number}{finding.signature}, reads an index out of range",
    }[finding.kind]
    kernels = f"\n  in {', '.join(finding.kernels)}" if finding.kernels else ""
    return f"{summary}\n  {finding.detail}{kernels}"


def result_finding(program: Program, title: str, detail: str) -> Finding:
    """A finding about a result or update that is not a step: an argument or a constant."""
    return Finding("program", None, None, title, None, detail, program=program)


def title_of_argument(plan: Plan, number: int) -> str:
    """`argument 'x'` of the signature, inputs and params counted together."""
    argument = plan.signature.arguments[number]
    return f"argument {argument.name!r} ({argument.type})"
