"""Products whose right operand lies along k: every edge against numpy in f64, on each level.

Operands end at an unreadable page and C lies in a field of sentinels, as in test_packed_gemm.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from nightly import all_pairs
from test_packed_gemm import LEVELS, Kernel, check, dense, make_unit, numbers

import nova
from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm.strategies import is_worth_packing, register_shape, tile_shape
from nova.codegen.cpu.gemm.unpacked_tiling import GemvTile, is_unpacked, unpacked_tile
from nova.codegen.cpu.vectorize import has_masks
from nova.compiler.llvm.machine_code import assembly
from nova.core.targets import parse_target

_ALL = ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64")


def _cuts(spec) -> list[tuple[int, int, int, int]]:
    """All of C, and ranges that begin and end inside of tiles."""
    m, n = spec.m, spec.n
    rows, columns = {(0, m), (m // 2, m), (m - 1, m)}, {(0, n), (1, n - 1), (n // 2, n), (2, 3)}
    return [(*r, *c) for r, c in itertools.product(sorted(rows), sorted(columns))]


@pytest.mark.parametrize(
    ("level", "rows", "accumulate"), all_pairs(LEVELS, (1, 2, 3, 4, 5, 7, 16), (False, True))
)
def test_sizes_around_the_tiles(level, rows, accumulate):
    target = parse_target(level)
    lanes = target.lanes(32)
    sizes = ((4, 4 * lanes), (9, 8 * lanes), (11, 6 * lanes + 1), (13, 5 * lanes - 1))
    for columns, depth in sizes[accumulate::2]:
        depth += 0 if has_masks(target, 32) else -depth % lanes
        spec = dense(rows, columns, depth, tb=True, accumulate=accumulate)
        assert is_unpacked(target, spec) and isinstance(unpacked_tile(target, spec), GemvTile)
        check(Kernel(target, spec), _cuts(spec))


@pytest.mark.parametrize("level", LEVELS)
def test_strides(level):
    target = parse_target(level)
    base = dense(3, 22, 64, tb=True)
    cases = (
        replace(base, a_strides=(80, 1), b_strides=(1, 70), c_strides=(25, 1)),
        replace(base, a_strides=(0, 1)),
        replace(base, c_strides=(50, 2)),
        replace(base, c_strides=(50, 2), accumulate=True),
        dense(5, 22, 64, tb=True, types=("f64", "f64", "f64")),
    )
    for spec in cases:
        assert is_unpacked(target, spec) and is_worth_packing(target, spec)
        check(Kernel(target, spec), _cuts(spec))


@pytest.mark.parametrize("rows", (1, 3, 10))
@pytest.mark.parametrize("level", LEVELS)
def test_result_does_not_depend_on_the_cut(level, rows):
    target, spec = parse_target(level), dense(rows, 150, 720, tb=True)
    assert is_unpacked(target, spec)
    kernel = Kernel(target, spec)
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (rows, 720), "f32"), numbers(rng, (150, 720), "f32")
    full, pieces = (np.zeros((rows, 150), np.float32) for _ in range(2))
    kernel.run(a, b, full, (0, rows, 0, 150))
    for cut in itertools.product(((0, 1), (1, rows)), ((0, 9), (9, 41), (41, 150))):
        kernel.run(a, b, pieces, (*cut[0], *cut[1]))
    assert np.array_equal(full, pieces)


def test_what_is_a_dot_product():
    target = parse_target("x86_64-v3")
    for m, k in ((1, 16), (4, 16), (5, 32), (16, 768)):
        assert is_unpacked(target, dense(m, 64, k, tb=True))
        assert not is_unpacked(target, dense(m, 64, k, tb=True, types=("bf16", "bf16", "f32")))
        assert not is_unpacked(
            target, replace(dense(m, 64, k, tb=True), overrides=ScheduleOverrides(mr=4))
        )
    for spec in (dense(1, 64, 15, tb=True), dense(5, 64, 31, tb=True), dense(17, 64, 64, tb=True)):
        assert not is_unpacked(target, spec)
    assert not is_unpacked(target, dense(2, 768, 768, ta=True, tb=True))
    assert not is_unpacked(parse_target("x86_64"), dense(1, 64, 67, tb=True))


def test_a_large_one_is_two_tasks():
    target = parse_target("x86_64-v3")
    for rows, columns, task in ((1, 768, 384), (3, 770, 388), (1, 300, 300), (16, 256, 256)):
        spec = dense(rows, columns, 768 if rows < 16 else 256, tb=True)
        assert tile_shape(target, spec) == (rows, task)
        assert task % register_shape(target, spec)[1] == 0


@pytest.mark.parametrize("level", _ALL)
def test_registers_suffice_and_no_library_is_called(level):
    target = parse_target(level)
    for rows in range(1, 17):
        tile = unpacked_tile(target, dense(rows, 64, 64, tb=True))
        assert tile.mr * tile.nr * tile.parts + tile.mr + 1 <= target.vector_registers
    text = assembly(make_unit(target, dense(3, 48, 768, tb=True)), target)
    assert "memcpy" not in text
    assert not [line for line in text.splitlines() if "ymm" in line and "rsp" in line]


@pytest.mark.parametrize("rows", (1, 3, 8))
def test_compiled_products_do_not_depend_on_the_threads(rows):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, 701), np.float32)
    w = rng.standard_normal((770, 701), np.float32)
    a, b = nova.tensor(x), nova.tensor(w)
    compiled = nova.compile(nova.relu(a @ b.T), inputs=[a, b])
    results = []
    for threads in (1, 2):
        with nova.knobs.override(threads=threads):
            results.append(np.asarray(compiled(x, w)))
    expected = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64), 0.0)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(*results)
