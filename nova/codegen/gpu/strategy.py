"""A strategy of GPU code generation: match a kernel, plan its launch, emit the code of a thread.

Each strategy is one `Strategy` record at the end of the file that implements it; `schedule.py` has
the ordered list of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from nova.codegen.gpu.block_ops import ThreadPosition
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.tasks.block_tiles import BlockDim
from nova.ir.symbolic.size_table import Extent, typical

FEW_BLOCKS = 64
"""Up to this many blocks have a multiprocessor each."""


class LaunchPlan(Protocol):
    """The launch of a plan: blocks, threads of a block, and the launch bounds."""

    @property
    def blocks(self) -> Extent: ...

    @property
    def threads(self) -> int: ...

    @property
    def min_blocks_per_sm(self) -> int:
        """Blocks per multiprocessor of the launch bounds; 0 for no bound.

        Launch bounds limit the registers of a thread.
        """
        ...


def default_min_blocks_per_sm(blocks: Extent) -> int:
    """The launch bounds of a grid of `blocks`.

    Few blocks have a multiprocessor each: the assembler need not spill to make room for two.
    """
    return 1 if typical(blocks) <= FEW_BLOCKS else 0


_Match = TypeVar("_Match")
_Plan = TypeVar("_Plan", bound=LaunchPlan)


@dataclass(frozen=True)
class Strategy(Generic[_Match, _Plan]):
    """Three steps; the schedule uses the first strategy that has a plan for the kernel.

    match  the structure that the strategy needs, or None. It depends on the kernel alone, so that
           strategies for different architectures can share it.
    plan   the launch: tiles, threads and memory, for the kernel's target; None where none fits.
    emit   the code of a thread, at the insertion point inside the launch.
    tiles  the points of the grid that each block computes; None where blocks share them.
    """

    name: str
    match: Callable[[DeviceKernel], _Match | None]
    plan: Callable[[DeviceKernel, _Match], _Plan | None]
    emit: Callable[[DeviceKernel, _Plan, ThreadPosition], None]
    tiles: Callable[[DeviceKernel, _Plan], list[BlockDim] | None] | None = None

    def select(self, kernel: DeviceKernel) -> SelectedStrategy | None:
        """The strategy with its plan for a kernel, if it has one."""
        match = self.match(kernel)
        plan = None if match is None else self.plan(kernel, match)
        return None if plan is None else SelectedStrategy(self, plan)


@dataclass(frozen=True)
class SelectedStrategy:
    """A strategy and its plan for one kernel."""

    strategy: Strategy[Any, Any]
    plan: LaunchPlan

    def emit(self, kernel: DeviceKernel, position: ThreadPosition) -> None:
        """Emit the code of a thread."""
        self.strategy.emit(kernel, self.plan, position)

    def tiles(self, kernel: DeviceKernel) -> list[BlockDim] | None:
        """How blocks divide the grid."""
        return None if self.strategy.tiles is None else self.strategy.tiles(kernel, self.plan)
