"""`plan-tasks`: says how long the tasks of each kernel should be."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.cost_model import estimate_ns
from nova.codegen.common.overrides import read_overrides
from nova.codegen.cpu.core_tiles import MERGED_TASK_NS
from nova.core.records import record
from nova.ir.attributes import MERGES_TILES, SLICED, TASK_NS, WINOGRAD
from nova.ir.bindings import ir
from nova.ir.buffers import nbytes
from nova.ir.kernel import Kernel
from nova.ir.walk import kernels
from nova.passes.base import Pass

_DEFAULT_NS = 50_000


@record
class PlanTasks(Pass):
    """Give every kernel the attribute `nova.task_ns`: the estimated work of one of its tasks.

    A kernel's own `nova.schedule` may have another `task_ns`, and one that computes a range of
    tiles in larger blocks, or transforms inputs for several, has longer tasks. The runtime cuts the
    tiles of a kernel into tasks for the number of its threads: a task has at most about that much
    work, never less than a tile, and whole rows of tiles where it has more than one row. It derives
    the order between tasks from the footprints of tiles (native/include/nova/task_plan.h).
    """

    name: ClassVar[str] = "plan-tasks"
    task_ns: int = _DEFAULT_NS

    def run(self, module: ir.Module) -> None:
        for kernel in kernels(module):
            usual = self.task_ns
            in_blocks = MERGES_TILES.has(kernel) or WINOGRAD.has(kernel)
            if in_blocks and usual == _DEFAULT_NS:
                usual = MERGED_TASK_NS
            Kernel(kernel).task_ns = read_overrides(kernel).task_ns or usual


def read_task_ns(kernel: Any) -> int:
    """What `plan-tasks` set; the texts of an older Nova do not have it."""
    return TASK_NS.find(kernel) or _DEFAULT_NS


def kernel_ns(kernel: Any) -> float:
    """The estimated time of a lowered kernel."""
    view = Kernel(kernel)
    return estimate_ns(view.core, view.work, moved_bytes(kernel))


def moved_bytes(kernel: Any) -> int:
    """Bytes of the arguments of a kernel, without those of which it writes a slice."""
    sliced = SLICED.find(kernel) or ()
    return sum(
        nbytes(a.type)
        for i, a in enumerate(kernel.entry_block.arguments)
        if isinstance(a.type, ir.MemRefType) and i not in sliced
    )
