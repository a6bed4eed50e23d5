"""`lower-kernels`: kernels become loops over their tiles, by the schedules of the target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

from nova.codegen.common.footprint import store_footprint
from nova.codegen.common.size_loads import check_constants, guard_empty_buffers, load_sizes
from nova.codegen.cpu.loops import index
from nova.codegen.cpu.schedule import KernelSchedule
from nova.codegen.cpu.symbolic_kernel import store_symbolic
from nova.core.records import record
from nova.core.targets import parse_target
from nova.errors import LoweringError, SymbolicSizeError
from nova.ir.attributes import TILES
from nova.ir.bindings import func, ir, memref
from nova.ir.control_flow.functions import control_functions, host_functions
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel, set_argument_types
from nova.ir.symbolic.size_table import SizeTable, active_table, typical
from nova.ir.symbolic.size_values import SizeValues, declare_sizes
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
        table = SizeTable.of(main)
        values: dict[str, int] | None = None if table is None else {}
        tiles: dict[str, int] = {}
        for kernel in kernels(module):
            with table.active() if table is not None else nullcontext():
                tiles[kernel.name.value] = _lower(kernel, target, self.tile_work, values)
            yield
        sizes = declare_sizes(module, main, values) if values is not None else None
        controls = {f.name.value for f in control_functions(module)}
        for function in host_functions(module):
            _pass_tiles(function, tiles, controls, sizes)


def _pass_tiles(function: Any, tiles: dict[str, int], controls: set[str], sizes: Any) -> None:
    """Let the calls of kernels pass all of their tiles, and the buffer of sizes if there is one."""
    for op in list(function.entry_block.operations):
        if op.operation.name != "func.call" or op.callee.value in controls:
            continue
        with ir.InsertionPoint(op.operation), op.location:
            callee = op.callee.value
            if callee not in tiles:
                raise LoweringError(
                    f"@{function.name.value} calls @{callee}, which is not a kernel",
                    where=place_of(op.location),
                )
            operands = [*op.operation.operands]
            if sizes is not None:
                operands.append(memref.get_global(sizes.type_.value, sizes.sym_name.value))
            operands += [index(0), index(tiles[callee])]
            func.CallOp([], ir.FlatSymbolRefAttr.get(callee), operands)
        op.operation.erase()


def _lower(kernel: Any, target: Any, tile_work: int, numbers: dict[str, int] | None) -> int:
    """Lower a kernel; `numbers` are the positions of the sizes that kernels load."""
    try:
        if numbers is None:
            return _lower_tiles(kernel, target, tile_work, None)
        check_constants(kernel)
        return _lower_tiles(kernel, target, tile_work, numbers)
    except SymbolicSizeError as error:
        raise LoweringError(
            f"@{kernel.name.value} has symbolic sizes that its schedule does not support: "
            f"{error.what}",
            where=place_of(kernel.location),
            hint="keep this size static",
        ) from None


def _lower_tiles(kernel: Any, target: Any, tile_work: int, numbers: dict[str, int] | None) -> int:
    values = None
    if numbers is not None:
        values = SizeValues(kernel, numbers)
        load_sizes(kernel, values)
    with values.active() if values is not None else nullcontext():
        return _emit_tiles(kernel, target, tile_work)


def _emit_tiles(kernel: Any, target: Any, tile_work: int) -> int:
    block = kernel.entry_block
    old = [op.operation for op in block.operations]
    returned = old.pop()
    schedule = KernelSchedule(kernel, old, target, tile_work)
    if active_table() is not None:
        store_symbolic(kernel, schedule)
    footprint = schedule.footprint
    index_type = ir.IndexType.get()
    begin = block.add_argument(index_type, kernel.location)
    end = block.add_argument(index_type, kernel.location)
    with ir.InsertionPoint(returned), kernel.location:
        schedule.emit(begin, end)
    if active_table() is not None:
        guard_empty_buffers(kernel)
    for op in reversed(old):
        if not any(True for r in op.results for _ in r.uses):
            op.erase()
    set_argument_types(kernel, [])
    view = Kernel(kernel)
    tiles = typical(schedule.tiles)
    view.tiles, view.core, view.scalar_loops = tiles, schedule.core, schedule.scalar_loops
    store_footprint(kernel, footprint)
    if schedule.merges_tiles:
        view.merges_tiles = True
    return tiles
