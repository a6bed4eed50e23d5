"""Constant operands of GEMMs, stored in the packed panels that the microkernel reads.

Input: the schedule of a kernel, and which of its arguments are constants. Output: which of those a
GEMM can read prepacked, and their bytes in that layout. The pass `pack-constants` calls
`find_prepacked` and `pack_array`; the lowering reads the result with `read_prepacked`.

The layout: blocks of k follow each other, as the GEMM cuts k. A block has a panel for every `nr`
columns, the last one padded with zeros, and a panel is stored `[k][column]`. So the panel of column
n (a multiple of nr) in the block from k on, `depth` steps deep, is at `width*k + n*depth`, where
`width` is the number of columns rounded up to panels. A constant left operand, such as the weight
of a convolution, has micropanels of `mr` rows in the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.codegen.common.match_contraction import (
    Contraction,
    typical_contraction,
    with_unit_columns,
)
from nova.codegen.cpu.gemm.blocking import choose_tiling, tiling_of
from nova.codegen.cpu.gemm.packed_layout import ELEMENTS
from nova.codegen.cpu.gemm.unpacked_tiling import is_best_in_place, is_unpacked
from nova.core.records import record
from nova.core.rounding import round_up
from nova.core.sizes import known_equal
from nova.core.targets import Target
from nova.ir.attributes import PREPACKED
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, view_as
from nova.ir.kernel import Kernel, set_argument_types
from nova.ir.symbolic.size_table import is_number

if TYPE_CHECKING:
    from nova.codegen.cpu.schedule import KernelSchedule


@record
class PrepackedPanels:
    """The packed layout of a kernel argument: columns per panel, and blocks of k.

    If the argument is the left operand of a GEMM, panels are `of_rows`, and have `nr` of them.
    """

    nr: int
    blocks: int
    of_rows: bool = False

    def lanes(self, spec: Contraction) -> int:
        """The rows or columns of the operand."""
        return int(spec.m if self.of_rows else spec.n)


def panels_of(target: Target, spec: Contraction) -> PrepackedPanels | None:
    """The panels in which a GEMM reads a prepacked B; None where it never packs B.

    A GEMM that is computed transposed reads B as its rows.
    """
    if with_unit_columns(spec) is not spec or spec.b_type != spec.acc_type or spec.windows:
        return None
    if is_number(spec.k, 0) or not isinstance(spec.k, int) or not isinstance(spec.n, int):
        return None
    spec = typical_contraction(spec)
    if is_best_in_place(target, spec):
        return None
    tiling = choose_tiling(target, spec)
    return PrepackedPanels(tiling.nr, tiling.k_blocks)


def row_panels_of(target: Target, spec: Contraction) -> PrepackedPanels | None:
    """The panels in which a GEMM reads a prepacked A; None where it does not pack A."""
    if with_unit_columns(spec) is not spec or spec.a_type != spec.acc_type:
        return None
    if not isinstance(spec.k, int) or not isinstance(spec.m, int) or not spec.k:
        return None
    if spec.packed or is_unpacked(target, typical_contraction(spec)):
        return None
    tiling = tiling_of(target, replace(spec, packed_rows=True))
    if tiling.layout is not ELEMENTS:
        return None
    return PrepackedPanels(tiling.panel_rows, tiling.k_blocks, of_rows=True)


def is_one_block(target: Target, spec: Contraction) -> bool:
    """Whether the packed rows of a GEMM are those of its left operand, in panels."""
    return tiling_of(target, spec).k_blocks == 1


def find_prepacked(
    schedule: KernelSchedule, kernel: Any
) -> dict[int, tuple[Contraction, PrepackedPanels]]:
    """The arguments of a kernel that are only the right operand of one GEMM.

    The GEMM reads the whole argument, in the same order at every point of the enclosing loops, and
    tiles begin at panel boundaries.
    """
    return _find_operands(schedule, kernel, 1, panels_of)


def find_prepacked_rows(
    schedule: KernelSchedule, kernel: Any
) -> dict[int, tuple[Contraction, PrepackedPanels]]:
    """The arguments of a kernel that are only the left operand of one GEMM, likewise."""
    return _find_operands(schedule, kernel, 0, row_panels_of)


def _find_operands(
    schedule: KernelSchedule,
    kernel: Any,
    number: int,
    find_panels: Callable[[Target, Contraction], PrepackedPanels | None],
) -> dict[int, tuple[Contraction, PrepackedPanels]]:
    """The arguments that are only operand `number` of one GEMM, which may read it in panels."""
    arguments = list(kernel.entry_block.arguments)
    prepacked = {}
    for op, contraction in schedule.contractions.items():
        nest, spec = schedule.nests[op], contraction.spec
        value = list(op.operands)[number]
        root = buffer_root(value)
        panels = find_panels(schedule.target, spec)
        if panels is None or root not in arguments or value != root:
            continue
        varies = any(not is_number(nest.loops[i].strides[number], 0) for i in contraction.enclosing)
        lanes, loop = panels.lanes(spec), (contraction.m, contraction.n)[number]
        whole = known_equal(lanes * spec.k, _elements(root))
        complete = whole and is_number(nest.offsets[number], 0)
        if varies or not complete or len(list(root.uses)) != 1:
            continue
        tile = schedule.tile[loop] if loop < len(schedule.grid) else lanes
        # Other tiles are chosen once the rows are packed: multiples, as they are of register tiles.
        rounded = panels.of_rows and schedule.overrides.tile is None
        if rounded or tile % panels.nr == 0 or tile >= lanes:
            prepacked[arguments.index(root)] = (spec, panels)
    return prepacked


def packed_size(spec: Contraction, panels: PrepackedPanels) -> int:
    """Elements of the packed operand."""
    return round_up(panels.lanes(spec), panels.nr) * spec.k


def pack_array(flat: np.ndarray, spec: Contraction, panels: PrepackedPanels) -> np.ndarray:
    """Reorder the elements of an operand, `flat` in memory order, as the GEMM reads them."""
    strides = spec.a_strides[::-1] if panels.of_rows else spec.b_strides
    ks, ns = (stride * flat.itemsize for stride in strides)
    lanes = panels.lanes(spec)
    matrix = np.lib.stride_tricks.as_strided(flat, (spec.k, lanes), (ks, ns))
    width = round_up(lanes, panels.nr)
    padded = np.zeros((spec.k, width), flat.dtype)
    padded[:, :lanes] = matrix
    cuts = [spec.k * i // panels.blocks for i in range(panels.blocks + 1)]
    pieces = [
        padded[low:high].reshape(high - low, -1, panels.nr).transpose(1, 0, 2).reshape(-1)
        for low, high in pairwise(cuts)
    ]
    return np.concatenate(pieces)


def view_prepacked(kernel: Any, sizes: Mapping[int, int]) -> None:
    """Change the types of arguments to those of packed buffers; their uses view them as before.

    `sizes` are the elements of the packed buffers.
    """
    block = kernel.entry_block
    with ir.InsertionPoint.at_block_begin(block), kernel.location:
        for number, size in sizes.items():
            argument = block.arguments[number]
            old = argument.type
            [use] = list(argument.uses)
            argument.set_type(ir.MemRefType.get([size], old.element_type))
            use.owner.operation.operands[use.operand_number] = view_as(argument, old)
    set_argument_types(kernel, [])


def write_prepacked(kernel: Any, packed: Mapping[int, PrepackedPanels]) -> None:
    """Record on a kernel which of its arguments are prepacked: `[argument, nr, blocks]` of each."""
    Kernel(kernel).prepacked = tuple((i, p.nr, p.blocks) for i, p in sorted(packed.items()))


def read_prepacked(kernel: Any) -> dict[Any, PrepackedPanels]:
    """The prepacked arguments of a kernel."""
    rows = PREPACKED.find(kernel) or ()
    arguments = list(kernel.entry_block.arguments)
    return {arguments[i]: PrepackedPanels(nr, blocks) for i, nr, blocks in rows}


def _elements(root: Any) -> int:
    return int(np.prod(root.type.shape, dtype=np.int64))
