"""Products without packed operands: every edge of their tiles against numpy in f64, on each level.

Operands end at an unreadable page and C lies in a field of sentinels, as in test_packed_gemm.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from nightly import each_value
from test_packed_gemm import LEVELS, Kernel, check, dense, make_unit, numbers

import nova
from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm.blocking import registers_used
from nova.codegen.cpu.gemm.prepacked_constants import panels_of
from nova.codegen.cpu.gemm.strategies import is_worth_packing, register_shape, tile_shape
from nova.codegen.cpu.gemm.unpacked_tiling import is_unpacked, unpacked_tile
from nova.codegen.cpu.vectorize import has_masks
from nova.compiler.llvm.machine_code import assembly
from nova.core.targets import parse_target

_ROWS, _COLUMNS = (1, 2, 3, 5, 13, 31), (4, 10, 33, 48, 70)


def _cuts(spec) -> list[tuple[int, int, int, int]]:
    """All of C, and ranges that begin and end inside of tiles."""
    m, n = spec.m, spec.n
    rows = {(0, m), (0, 1), (m // 2, m), (m - 1, m)}
    columns = {(0, n), (0, n - 1), (1, n), (n // 2, n), (n - 1, n)}
    return [(*r, *c) for r, c in itertools.product(sorted(rows), sorted(columns))]


@pytest.mark.parametrize("accumulate", (False, True))
@pytest.mark.parametrize("level", LEVELS)
def test_sizes_around_the_tiles(level, accumulate):
    target = parse_target(level)
    tried = 0
    for m, n in itertools.product(_ROWS[accumulate::2], _COLUMNS):
        spec = dense(m, n, 19, accumulate=accumulate)
        if is_unpacked(target, spec):
            check(Kernel(target, spec), _cuts(spec))
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize(
    ("level", "rows", "accumulate"), each_value(LEVELS, (1, 2, 3, 4), (False, True))
)
def test_few_rows_read_a_large_right_operand_in_chunks(level, rows, accumulate):
    target = parse_target(level)
    columns = 1043 if has_masks(target, 32) else 1040
    for depth in (71, 72, 73):
        spec = dense(rows, columns, depth, accumulate=accumulate)
        assert is_unpacked(target, spec)
        assert unpacked_tile(target, spec).chunk < depth
        check(Kernel(target, spec), [(0, rows, 0, columns), (rows - 1, rows, 5, columns - 3)])


@pytest.mark.parametrize("level", LEVELS)
def test_strides(level):
    target = parse_target(level)
    base = dense(21, 48, 29)
    cases = (
        replace(base, a_strides=(1, 21)),
        replace(base, a_strides=(40, 1), b_strides=(64, 1), c_strides=(50, 1)),
        replace(base, a_strides=(0, 1)),
        replace(dense(3, 64, 700), a_strides=(1, 5)),
        dense(21, 48, 29, types=("f64", "f64", "f64")),
    )
    for spec in cases:
        assert is_unpacked(target, spec)
        check(Kernel(target, spec), [(0, spec.m, 0, spec.n), (1, spec.m - 1, 3, spec.n - 1)])


def test_columns_that_come_first_are_the_rows():
    target = parse_target(LEVELS[0])
    spec = replace(dense(48, 21, 29), a_strides=(1, 48), c_strides=(1, 48))
    assert is_worth_packing(target, spec) and not is_unpacked(target, spec)
    assert tile_shape(target, spec) == (48, 21)
    check(Kernel(target, spec), [(0, 48, 0, 21), (2, 47, 1, 20)])


@pytest.mark.parametrize("shape", [(4, 1024, 600), (40, 70, 60), (127, 126, 120)])
@pytest.mark.parametrize("level", LEVELS)
def test_result_does_not_depend_on_the_cut(level, shape):
    m, n, k = shape
    n += n % 4  # whole vectors of the target without masks
    target, spec = parse_target(level), dense(m, n, k)
    assert is_unpacked(target, spec)
    kernel = Kernel(target, spec)
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (m, k), "f32"), numbers(rng, (k, n), "f32")
    full, pieces = (np.zeros((m, n), np.float32) for _ in range(2))
    kernel.run(a, b, full, (0, m, 0, n))
    for rows, columns in itertools.product(((0, 1), (1, m)), ((0, 9), (9, 41), (41, n))):
        kernel.run(a, b, pieces, (*rows, *columns))
    assert np.array_equal(full, pieces)


def test_what_is_direct():
    target = parse_target("x86_64-v3")
    for m, n, k in ((8, 10, 16), (1, 768, 768), (64, 64, 64), (1, 4096, 4096), (128, 128, 128)):
        spec = dense(m, n, k)
        assert is_unpacked(target, spec) and is_worth_packing(target, spec)
        assert (panels_of(target, spec) is None) == (m < 128)
        assert not is_unpacked(target, replace(spec, overrides=ScheduleOverrides(mr=4)))
        assert is_unpacked(target, dense(m, n, k, tb=True)) == (m == 1)
    for spec in (dense(1, 2, 3), dense(160, 160, 160), dense(8, 8, 8, types=("f16", "f32", "f32"))):
        assert not is_unpacked(target, spec)
    assert not is_unpacked(parse_target("x86_64"), dense(8, 10, 16))
    assert not is_unpacked(target, dense(6, 600, 300)) and is_unpacked(target, dense(16, 256, 256))
    assert tile_shape(target, dense(128, 128, 128)) == (128, 64)
    assert tile_shape(target, dense(16, 256, 256)) == (16, 256)
    rows, columns = tile_shape(target, dense(1, 768, 768))
    assert rows == 1 and columns == 384
    assert columns % register_shape(target, dense(1, 768, 768))[1] == 0


@pytest.mark.parametrize("level", ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64"))
def test_registers_suffice_and_no_library_is_called(level):
    target = parse_target(level)
    for m, n, k in ((1, 512, 512), (2, 512, 512), (4, 512, 512), (64, 64, 64), (7, 16, 9)):
        tile = unpacked_tile(target, dense(m, n, k))
        assert registers_used(target, tile.mr, tile.nv) <= target.vector_registers
    text = assembly(make_unit(target, dense(9, 48, 20)), target)
    assert "memcpy" not in text


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize(
    "remaining,right", [((1, 768), (768, 768)), ((6, 20, 24), (6, 24, 30)), ((8, 16), (16, 10))]
)
def test_compiled_products(remaining, right, threads):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(remaining, np.float32), rng.standard_normal(right, np.float32)
    a, b = nova.tensor(x), nova.tensor(y)
    with nova.knobs.override(threads=threads):
        result = np.asarray(nova.compile(a @ b, inputs=[a, b])(x, y))
    expected = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
