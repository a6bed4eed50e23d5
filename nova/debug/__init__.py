"""Debugging: checked runs, gradient checks, and reduction of failing programs.

`NOVA_CHECK=1` and `NOVA_CHECK=nan` enable checked runs; see docs/debugging.md.
"""

from typing import TYPE_CHECKING, Any

from nova.debug.checked import CheckedProgram, check_plan
from nova.debug.finding import Finding
from nova.debug.gradients import ArgumentReport, GradcheckReport, gradcheck
from nova.debug.reduction import Reduction, minimize
from nova.graph.other_names import no_attribute

__all__ = [
    "ArgumentReport",
    "CheckedProgram",
    "Finding",
    "GradcheckReport",
    "Reduction",
    "check_plan",
    "gradcheck",
    "minimize",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.debug'", name, __all__, {})
