"""Tiles for many cores: more of them than blocks, and the same bits however they are merged."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from native_tasks import Loaded, load_plan

import nova
from nova import knobs
from nova.artifact.task_plan import plan_tasks
from nova.codegen.cpu import core_tiles
from nova.codegen.cpu.core_tiles import tile_for_cores, wide_tile_for_cores
from nova.core.settings import Settings
from nova.plan import Plan, build_plan


@pytest.mark.parametrize(
    ("sizes", "block", "tile"),
    [
        ((4096, 4096, 4096), (1036, 512), (266, 512)),
        ((1024, 1024, 1024), (266, 512), (128, 256)),
        ((256, 1024, 1024), (256, 256), (64, 128)),
        ((256, 256, 256), (140, 256), (140, 256)),
    ],
)
def test_tiles_are_parts_of_blocks(
    sizes: tuple[int, ...], block: tuple[int, ...], tile: tuple[int, ...]
) -> None:
    work = 2 * int(np.prod(sizes))
    assert tile_for_cores(sizes[:2], block, (14, 32), work, 0) == tile


@pytest.mark.parametrize(
    ("count", "tile"), [(4, (256, 512)), (8, (256, 512)), (16, (256, 256)), (32, (128, 256))]
)
def test_a_tile_for_each_core(count: int, tile: tuple[int, ...]) -> None:
    assert tile_for_cores((1024, 1024), (266, 512), (14, 32), 1 << 31, 0, count) == tile


def test_matmuls_for_many_cores_have_the_same_bits() -> None:
    arrays = [np.random.default_rng(i).standard_normal((1024, 1024)).astype("f4") for i in (0, 1)]
    results = []
    for threads in (1, 8, 16):
        with nova.knobs.override(threads=threads):
            x, y = (nova.input((1024, 1024), name=name) for name in "xy")
            program = nova.compile(x @ y, inputs=[x, y])
            results.append(np.asarray(program(*arrays)))
            grids = [kernel.grid for kernel in program.kernels]
            assert len(grids) > 1 if threads == 1 else grids == [threads]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], arrays[0] @ arrays[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((4096, 4096, 4096), (128, 1024)),
        ((1024, 1024, 1024), (64, 512)),
        ((1000, 1000, 1000), (63, 512)),
        ((64, 64, 64), (64, 64)),
    ],
)
def test_tiles_of_a_packed_operand_have_long_rows(
    sizes: tuple[int, ...], tile: tuple[int, ...]
) -> None:
    work = 2 * int(np.prod(sizes))
    assert wide_tile_for_cores(sizes[:2], (14, 32), work, 0) == tile
    assert wide_tile_for_cores(sizes[1::-1], (32, 14), work, 1) == tile[::-1]


def product_plan() -> Plan:
    x = nova.tensor(np.zeros((150, 70), np.float32), name="x")
    w = nova.tensor(np.zeros((70, 224), np.float32), name="w")
    return build_plan([x @ w], [x, w])


def packed_plan() -> Plan:
    """With a constant, which is packed: tiles of long rows."""
    x = nova.tensor(np.zeros((150, 70), np.float32), name="x")
    weights = np.random.default_rng(3).standard_normal((70, 224)).astype(np.float32)
    return build_plan([x @ nova.tensor(weights)], [x])


def layer_plan() -> Plan:
    """With an epilogue, in row panels."""
    x = nova.tensor(np.zeros((420, 130), np.float32), name="x")
    w = nova.tensor(np.zeros((130, 192), np.float32), name="w")
    b = nova.tensor(np.zeros(192, np.float32), name="b")
    return build_plan([nova.relu(x @ w + b)], [x, w, b])


def transposed_plan() -> Plan:
    x = nova.tensor(np.zeros((90, 160), np.float32), name="x")
    y = nova.tensor(np.zeros((90, 190), np.float32), name="y")
    w = nova.tensor(np.zeros((160, 190), np.float32), name="w")
    return build_plan([w - 0.5 * (x.transpose() @ y)], [x, y, w])


@pytest.fixture
def many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products have many tiles too."""
    monkeypatch.setattr(core_tiles, "_TILES_AND_WORK", ((32, 1),))
    monkeypatch.setattr(core_tiles, "_LEAST_SIDE", 8)


@pytest.mark.usefixtures("many_tiles")
@pytest.mark.parametrize("make", [product_plan, packed_plan, layer_plan, transposed_plan])
@pytest.mark.parametrize("target", ["x86_64-v3", "cpu"])
def test_every_range_of_tiles_gives_the_same_bits(make: object, target: str) -> None:
    assert callable(make)
    plan = make()
    loaded = load_plan(plan, Settings(target=target), workers=5)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(a.type.shape).astype(np.float32) for a in plan.signature.arguments
    ]
    (kernel,) = loaded.tables.kernels
    assert kernel.grid > 8 and kernel.tiling is not None and kernel.tiling.task_ns > 50_000
    expected = loaded.memory(arrays)
    loaded.run_in_order(expected)
    for seed in range(12):
        memory = loaded.memory(arrays, fill=0x5A)
        run_cut(loaded, memory, kernel.grid, random.Random(seed))
        np.testing.assert_array_equal(memory["output", 0], expected["output", 0])


def run_cut(loaded: Loaded, memory: dict, grid: int, rng: random.Random) -> None:
    """All tiles, cut at random places, the parts in any order."""
    inner = rng.sample(range(1, grid), rng.randrange(grid))
    cuts = [0, *sorted(inner), grid]
    ranges = list(pairwise(cuts))
    rng.shuffle(ranges)
    for begin, end in ranges:
        loaded.run(0, begin, end, memory)


@pytest.mark.usefixtures("many_tiles")
@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_a_task_writes_what_it_claims(workers: int) -> None:
    """A range of tiles is a strip of rows: the footprint has the order of the code."""
    plan = product_plan()
    loaded = load_plan(plan, Settings(target="cpu"), workers=workers)
    arrays = [np.ones(a.type.shape, np.float32) for a in plan.signature.arguments]
    (kernel,) = loaded.tables.kernels
    assert kernel.tiling is not None
    counts = [-(-g // t) for g, t in zip(kernel.tiling.grid, kernel.tiling.tile, strict=True)]
    grid, tile = kernel.tiling.grid, kernel.tiling.tile
    for number in range(kernel.grid):
        memory = loaded.memory(arrays, fill=0xFF)
        loaded.run(0, number, number + 1, memory)
        written = ~np.isnan(memory["output", 0].view(np.float32).reshape(150, 224))
        column, row = np.unravel_index(number, counts)
        expected = np.zeros_like(written)
        (low, high), (left, right) = (
            (int(at) * size, min((int(at) + 1) * size, extent))
            for at, size, extent in zip((row, column), tile[::-1], grid[::-1], strict=True)
        )
        expected[low:high, left:right] = True
        np.testing.assert_array_equal(written, expected)


# --- whole programs -------------------------------------------------------------------------------


def test_large_programs_use_many_cores() -> None:
    """A file from any machine: the product of 4096 and the sum of 16M elements."""
    x = nova.tensor(np.zeros((4096, 4096), np.float32), name="x")
    product = nova.compile(x @ x, inputs=[x], target="x86_64-v3")
    assert product.simulate(cores=64).speedup >= 45
    flat = nova.tensor(np.zeros(1 << 24, np.float32), name="flat")
    total = nova.compile(nova.sum(flat), inputs=[flat], target="x86_64-v3")
    assert total.simulate(cores=64).speedup >= 30
    counts = [len(plan_tasks(product._executable.tables, n)) for n in (1, 16, 128)]
    assert counts == sorted(counts) and counts[0] < 16 < counts[-1]


@pytest.mark.parametrize(("rows", "columns", "depth"), [(64, 64, 16384), (128, 128, 8192)])
def test_small_products_along_a_long_k_use_many_cores(rows: int, columns: int, depth: int) -> None:
    """Their k is cut, by shapes alone: the bits do not depend on the number of threads."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((rows, depth), (depth, columns)))
    x, y = nova.input(a.shape, name="x"), nova.input(b.shape, name="y")
    program = nova.compile(nova.relu(x @ y), inputs=[x, y])
    assert program.simulate(cores=16).speedup >= 7
    results = []
    for threads in (1, 2, 5):
        with knobs.override(threads=threads):
            results.append(np.asarray(program(a, b)))
    exact = np.maximum(a.astype("f8") @ b.astype("f8"), 0)
    np.testing.assert_allclose(results[0], exact, rtol=0, atol=2e-6 * depth**0.5 * 8)
    assert all(result.tobytes() == results[0].tobytes() for result in results[1:])


@pytest.mark.parametrize("reduce", [nova.sum, nova.max, nova.mean])
def test_long_reductions_have_the_same_bits_on_any_cores(reduce: object) -> None:
    assert callable(reduce)
    values = np.random.default_rng(1).standard_normal(3 << 18).astype(np.float32)
    x = nova.tensor(values, name="x")
    program = nova.compile(reduce(x * x), inputs=[x])
    assert len(program._executable.tables.launches) > 1
    results = []
    for threads in (1, 2, 4):
        with nova.knobs.override(threads=threads):
            results.append(program(values).tobytes())
    assert len(set(results)) == 1
    name = reduce.__name__
    expected = getattr(np, name)(values.astype(np.float64) ** 2)
    np.testing.assert_allclose(np.frombuffer(results[0], np.float32)[0], expected, rtol=1e-6)


def test_a_deep_product_is_cut_along_k() -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((40_960, 24)).astype(np.float32)
    b = rng.standard_normal((40_960, 40)).astype(np.float32)
    x, y = nova.tensor(a, name="x"), nova.tensor(b, name="y")
    program = nova.compile(x.transpose() @ y, inputs=[x, y])
    first = program._executable.tables.kernels[0]
    assert first.core == "matrix" and first.grid >= 8
    results = []
    for threads in (1, 3):
        with nova.knobs.override(threads=threads):
            results.append(program(a, b))
    np.testing.assert_array_equal(results[0], results[1])
    expected = a.astype(np.float64).T @ b
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=2e-2)
