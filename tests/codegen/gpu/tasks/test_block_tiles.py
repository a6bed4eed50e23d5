"""What the task table says that a block touches, against single blocks on the PTX simulator.

A block runs alone, on memory that has only the bytes of its tile: a read of any other byte is a
fault of the simulator, and other bytes must stay as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from struct import pack
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact.tables import KernelSpec, LaunchSpec, Tables
from nova.artifact.tilings import Tiling
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule

UNTOUCHED = 0xA5


def f32(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "elementwise": (lambda a, b: nova.tanh(a * b) + a, [f32(3000), f32(3000)]),
    "broadcast": (lambda a, b: a * b, [f32(64, 128), f32(128)]),
    "ragged rows": (lambda a, b: a * b, [f32(64, 96), f32(96)]),
    "rows": (lambda a: nova.softmax(a), [f32(70, 200)]),
    "columns": (lambda a: a.sum(0), [f32(90, 100)]),
    "transpose": (lambda a: nova.transpose(a) * 2.0, [f32(70, 90)]),
    "product": (lambda a, b, c: nova.relu(a @ b + c), [f32(64, 40), f32(40, 96), f32(96)]),
    "ragged product": (lambda a, b: a @ b, [f32(72, 40), f32(40, 96)]),
    "batched": (lambda a, b: a @ b, [f32(3, 32, 16), f32(3, 16, 64)]),
    "tall": (lambda a, b: a @ b, [f32(512, 16), f32(16, 64)]),
}


SHARED = ("ragged rows", "ragged product")
"""Blocks end inside of a row, or overlap: all blocks count as touching all bytes."""


def compiled(name: str) -> tuple[Tables, str]:
    function, arrays = CASES[name]
    data = [nova.tensor(a, name=f"a{i}") for i, a in enumerate(arrays)]
    program = nova.compile(function(*data), inputs=data, target="cuda:sm_90a", run_mode="sim")
    return program._executable.tables, program.stages["ptx"]


def masks(tiling: Tiling, block: int, sizes: list[int]) -> tuple[list[Any], list[Any]]:
    """The bytes of each operand that a block may read, and those that it writes."""
    counts = [-(-g // t) for g, t in zip(tiling.grid, tiling.tile, strict=True)]
    corner = np.unravel_index(block, counts) if counts else ()
    points = [
        range(int(c) * t, min(int(c) * t + t, g))
        for c, t, g in zip(corner, tiling.tile, tiling.grid, strict=True)
    ]
    reads, writes = ([np.zeros(size, bool) for size in sizes] for _ in range(2))
    for item in tiling.ranges:
        mask = (writes if item.writes else reads)[item.operand]
        for point in product(*points):
            shift = sum(p * s for p, s in zip(point, item.strides, strict=True))
            mask[item.low + shift : item.high + shift] = True
    return reads, writes


def run(
    ptx: str, kernel: KernelSpec, grid: int, data: list[Any], visible: list[Any]
) -> list[np.ndarray[Any, Any]]:
    """The operands after a launch of so many blocks, on memory that has the visible bytes."""
    memory = SimMemory()
    addresses = [memory.alloc(len(array)) for array in data]
    for address, array, mask in zip(addresses, data, visible, strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
        for start, end in edges.reshape(-1, 2):
            memory.write(address + int(start), array[start:end].tobytes())
    assert kernel.device is not None
    arguments = pack(f"<{len(addresses)}Q", *addresses)
    SimModule(ptx).launch(
        kernel.symbol, (grid,), kernel.device.block, kernel.device.shared, arguments, memory
    )
    return [memory.array(a, len(d), np.uint8) for a, d in zip(addresses, data, strict=True)]


def only_block(ptx: str, block: int) -> str:
    """The code as block `block` of any grid."""
    return re.sub(r"(mov\.u32\s+%r\d+, )%ctaid\.x;", rf"\g<1>{block};", ptx)


def launches(tables: Tables) -> Iterator[tuple[LaunchSpec, KernelSpec]]:
    for launch in tables.launches:
        yield launch, tables.kernels[launch.kernel]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_block_touches_its_tile_and_nothing_else(name: str) -> None:
    tables, ptx = compiled(name)
    for launch, kernel in launches(tables):
        assert kernel.tiling is not None and kernel.device is not None
        blocks = kernel.device.grid[0]
        assert kernel.grid == kernel.tiling.tiles == blocks
        is_whole = not any(stride for item in kernel.tiling.ranges for stride in item.strides)
        assert is_whole == (name in SHARED)
        if is_whole:
            continue
        sizes = [tables.buffers[number].nbytes for number in launch.buffers]
        generator = np.random.default_rng(2)
        data = [generator.standard_normal(s // 4, np.float32).view(np.uint8) for s in sizes]
        expected = run(ptx, kernel, blocks, data, [np.ones(s, bool) for s in sizes])
        written = [np.zeros(size, np.int64) for size in sizes]
        for block in range(blocks):
            reads, writes = masks(kernel.tiling, block, sizes)
            for count, mask in zip(written, writes, strict=True):
                count += mask
            if block not in {0, 1, blocks // 2, blocks - 1}:
                continue
            visible = [r | w for r, w in zip(reads, writes, strict=True)]
            results = run(only_block(ptx, block), kernel, 1, data, visible)
            for result, initial, after, mask, seen in zip(
                results, data, expected, writes, visible, strict=True
            ):
                np.testing.assert_array_equal(result[mask], after[mask])
                only_read = seen & ~mask
                np.testing.assert_array_equal(result[only_read], initial[only_read])
                assert (result[~seen] == UNTOUCHED).all()
        for number, (count, after, initial) in enumerate(zip(written, expected, data, strict=True)):
            changed = after != initial
            assert (count[changed] == 1).all(), f"bytes of operand {number} of several blocks"
