"""Debugging: checked runs, gradient checks, and reduction of failing programs.

`NOVA_CHECK=1` and `NOVA_CHECK=nan` enable checked runs; see docs/debugging.md.
"""

from nova.debug.checked import CheckedProgram, check_plan
from nova.debug.finding import Finding
from nova.debug.gradients import ArgumentReport, GradcheckReport, gradcheck
from nova.debug.reduction import Reduction, minimize

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
