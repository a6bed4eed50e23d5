"""Kernels for classes of symbolic sizes: GEMMs of few, some and many rows.

The tiles that suit thousands of rows leave most multiprocessors idle where there are few. So a GEMM
whose number of rows or columns is symbolic is compiled for several classes of it, each with the
plan for its typical size. All are correct for any size; the launches of a class have no blocks, and
are skipped, where the sizes of a call are in another. `lower-device-kernels` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.gemm.kernel import match_gemm
from nova.codegen.gpu.schedule import DeviceSchedule
from nova.core.sizes import Size, SizeExpr, size_min
from nova.errors import SymbolicSizeError
from nova.ir.symbolic.size_table import SizeTable, bounds_of

_CLASSES = ((64, 16), (1024, 256))
"""Classes below the last: rows less than the first number; the second is the typical one."""


@dataclass(frozen=True)
class SizeClass:
    """A class of sizes: the table for decisions, and 1 for sizes of the class, else 0."""

    table: SizeTable
    indicator: Size


def find_classes(function: Any, table: SizeTable, options: Mapping[str, Any]) -> list[SizeClass]:
    """The classes of a kernel's sizes, of which a call needs one: a single one for most kernels.

    `options` are those of `DeviceSchedule`.
    """
    ops = [op.operation for op in function.entry_block.operations][:-1]
    with table.active():
        try:
            classes = _classes_of(DeviceKernel(function, ops, **options), table)
        except SymbolicSizeError:
            return [SizeClass(table, 1)]  # its lowering reports the error
    return classes if len(classes) == 1 else _merge_equal(function, ops, classes, options)


def _classes_of(kernel: DeviceKernel, table: SizeTable) -> list[SizeClass]:
    match = match_gemm(kernel)
    extents = () if match is None else (match.gemm.contraction.m, match.gemm.contraction.n)
    rows = next((size for size in extents if isinstance(size, SizeExpr)), None)
    if rows is None:
        return [SizeClass(table, 1)]
    low, high = bounds_of(rows)
    classes = []
    below: Size = 0
    for limit, typical in _CLASSES:
        reached = size_min(rows // limit, 1)
        if low < limit:
            classes.append(SizeClass(table.with_typical(rows, typical), 1 - reached - below))
            below = 1 - reached
        if high < limit:
            break
    else:
        classes.append(SizeClass(table, 1 - below))
    return classes if len(classes) > 1 else [SizeClass(classes[0].table, 1)]


def _merge_equal(
    function: Any, ops: list[Any], classes: Sequence[SizeClass], options: Mapping[str, Any]
) -> list[SizeClass]:
    """The classes with different tiles: those with the same tiles become one."""
    merged: dict[Any, SizeClass] = {}
    for size_class in classes:
        with size_class.table.active():
            selected = DeviceSchedule(function, ops, **options).selected
        gemm = getattr(selected.plan, "gemm", None)
        tiles = selected.strategy.name, getattr(gemm, "shape", None), getattr(gemm, "tile", None)
        indicator = size_class.indicator
        if tiles in merged:
            indicator = merged[tiles].indicator + indicator
        merged[tiles] = SizeClass(size_class.table, indicator)
    return list(merged.values())
