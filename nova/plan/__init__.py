"""The plan: a frozen linear program, its text form, and its construction from a graph."""

from nova.core.signature import Argument, Signature
from nova.plan.build import build_plan
from nova.plan.plan import Arg, Derivation, Input, Literal, Param, Plan, Slot, Step
from nova.plan.text import parse_plan, print_plan

__all__ = [
    "Arg",
    "Argument",
    "Derivation",
    "Input",
    "Literal",
    "Param",
    "Plan",
    "Signature",
    "Slot",
    "Step",
    "build_plan",
    "parse_plan",
    "print_plan",
]
