"""`lower-kernels`: kernels become loops over their tiles, by the schedules of the target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from nova.codegen.common.footprint import store_footprint
from nova.codegen.cpu.loops import index
from nova.codegen.cpu.schedule import KernelSchedule
from nova.core.records import record
from nova.core.targets import parse_target
from nova.errors import LoweringError
from nova.ir.attributes import TILES
from nova.ir.bindings import func, ir
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel, set_argument_types
from nova.ir.walk import kernels, main_function, require_buffers
from nova.passes.base import Pass
from nova.passes.kernels.bools_as_bytes import store_bools_as_bytes


@record
class LowerKernels(Pass):
    """Tile every kernel over its grid and write it as scf loops over flat buffers.

    A kernel gains two arguments, the range of tiles to compute, and loses its linalg ops; `main`
    passes (0, number of tiles). The number is also the kernel's attribute `nova.tiles`, and
    `nova.core` is its core type: `matrix`, `vector`, or `host` for a single unstructured tile.
    `nova.scalar_loops` marks kernels with loops for LLVM's vectorizer. `nova.loops`, `nova.tile`,
    `nova.reads` and `nova.writes` are the access footprint of a tile (see
    nova/codegen/common/footprint.py). A kernel's attribute `nova.schedule` has schedule overrides
    (see nova/codegen/common/overrides.py). Bools are bytes in memory from here on.
    """

    name: ClassVar[str] = "lower-kernels"
    target: str = "cpu"
    tile_work: int = 65_536

    def run(self, module: ir.Module) -> None:
        for _ in self.steps(module):
            pass

    def steps(self, module: ir.Module) -> Iterator[None]:
        """Stop after every kernel: its shared functions are written at that point."""
        target = parse_target(self.target)
        main = main_function(module)
        require_buffers(module)
        if lowered := [k for k in kernels(module) if TILES.has(k)]:
            name = lowered[0].name.value
            raise LoweringError(f"@{name} is lowered already", where=place_of(lowered[0].location))
        store_bools_as_bytes(module)
        tiles: dict[str, int] = {}
        for kernel in kernels(module):
            tiles[kernel.name.value] = _lower(kernel, target, self.tile_work)
            yield
        for op in list(main.entry_block.operations):
            if op.operation.name == "func.call":
                with ir.InsertionPoint(op.operation), op.location:
                    callee = op.callee.value
                    if callee not in tiles:
                        raise LoweringError(
                            f"@main calls @{callee}, which is not a kernel",
                            where=place_of(op.location),
                        )
                    operands = [*op.operation.operands, index(0), index(tiles[callee])]
                    func.CallOp([], ir.FlatSymbolRefAttr.get(callee), operands)
                op.operation.erase()


def _lower(kernel: Any, target: Any, tile_work: int) -> int:
    block = kernel.entry_block
    old = [op.operation for op in block.operations]
    returned = old.pop()
    schedule = KernelSchedule(kernel, old, target, tile_work)
    index_type = ir.IndexType.get()
    begin = block.add_argument(index_type, kernel.location)
    end = block.add_argument(index_type, kernel.location)
    with ir.InsertionPoint(returned), kernel.location:
        schedule.emit(begin, end)
    for op in reversed(old):
        if not any(True for r in op.results for _ in r.uses):
            op.erase()
    set_argument_types(kernel, [])
    view = Kernel(kernel)
    view.tiles, view.core, view.scalar_loops = schedule.tiles, schedule.core, schedule.scalar_loops
    store_footprint(kernel, schedule.footprint)
    if schedule.merges_tiles:
        view.merges_tiles = True
    return schedule.tiles
