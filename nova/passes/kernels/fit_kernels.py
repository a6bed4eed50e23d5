"""`fit-kernels`: `form-kernels`, with kernels no larger than the workspace allows."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import WorkspaceError
from nova.ir.bindings import ir
from nova.ir.clone import copy_module
from nova.ir.control_flow.functions import region_modules
from nova.passes.base import Pass, without_regions
from nova.passes.kernels.bufferize_kernels import BufferizeKernels
from nova.passes.kernels.form_kernels import HOST_ROW_OPERAND, FormKernels
from nova.passes.kernels.plan_workspace import PlanWorkspace


@record
class FitKernels(Pass):
    """Form the largest kernels whose values fit into `max_workspace` bytes.

    All outputs of a kernel are live while it runs, and are rematerialized only as a whole: a kernel
    over the rows of all layers of a network keeps the values of every layer. So kernels are formed
    as `form-kernels` does, then with each matmul in a separate kernel, then also without one kernel
    for all small ops; the first alternative for which `plan-workspace` finds room is used, or the
    one that needs the least. Each alternative is tried on a copy of the module. Regions have
    kernels at this point, and are planned before the program that runs them.
    """

    name: ClassVar[str] = "fit-kernels"
    reads_regions: ClassVar[bool] = True
    serial_work: int = 20_000
    row_operand: int = HOST_ROW_OPERAND
    max_workspace: int = 0
    share_rows: bool = True

    def run(self, module: ir.Module) -> None:
        alternatives = [
            FormKernels(self.serial_work, row_operand=self.row_operand, share_rows=self.share_rows),
            FormKernels(self.serial_work, share_rows=False),
            FormKernels(0, share_rows=False),
        ]
        needed: list[int] = []
        for alternative in dict.fromkeys(alternatives):
            needed.append(self._needed(module, alternative))
            if needed[-1] <= self.max_workspace:
                break
        _form(module, list(dict.fromkeys(alternatives))[needed.index(min(needed))])

    def _needed(self, module: ir.Module, alternative: FormKernels) -> int:
        """The bytes that the program needs with these kernels."""
        copy = copy_module(module)
        _form(copy, alternative)
        try:
            _plan(copy, [BufferizeKernels(), PlanWorkspace(self.max_workspace)])
        except WorkspaceError as error:
            return error.least
        return self.max_workspace


def _form(module: Any, alternative: FormKernels) -> None:
    with without_regions(module, region_modules(module)):
        alternative.run(module)


def _plan(module: Any, passes: list[Pass]) -> None:
    """Run passes over the regions of a module, then over the module."""
    for region in region_modules(module):
        _plan(region, passes)
    for step in passes:
        with without_regions(module, () if step.reads_regions else region_modules(module)):
            step.run(module)
