"""The packed matrix product: every edge of its tiles against numpy in f64, on each x86 level.

One kernel is compiled per contraction and called with many row and column ranges, so the edges of
the register tile are covered without compiling a kernel for each. Operands end at an unreadable
page and C lies in a field of sentinels: reading or writing past a block is seen.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from native_code import address_of, load_objects
from processors import runnable

from nova.codegen.common.builder import element_type
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm import strategies
from nova.codegen.cpu.gemm.blocking import choose_tiling, edge_rows
from nova.codegen.cpu.gemm.strategies import (
    emit_block,
    flops,
    is_worth_packing,
    tile_shape,
)
from nova.compiler.llvm.compat import normalise
from nova.compiler.llvm.machine_code import Unit, assembly, compile_objects
from nova.core.targets import Target, parse_target
from nova.ir.bindings import func, ir, passmanager
from nova.ir.bindings import llvm as llvm_dialect
from nova.passes.cpu.export_kernels import ExportKernels

DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PIPELINE = ",".join(
    (
        "convert-vector-to-scf",
        "expand-strided-metadata",
        "lower-affine",
        "convert-scf-to-cf",
        "func.func(arith-expand)",
        "convert-vector-to-llvm",
        "finalize-memref-to-llvm",
        "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
        "convert-arith-to-llvm",
        "convert-cf-to-llvm",
        "reconcile-unrealized-casts",
    )
)


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    """Products of every size are packed here; test_unpacked_gemm.py has those that are not."""
    monkeypatch.setattr(strategies, "GEMM_STRATEGIES", strategies.GEMM_STRATEGIES[-1:])


LEVELS = runnable("cpu", "x86_64-v3", "x86_64", "aarch64")


def make_unit(target: Target, spec: Contraction) -> Unit:
    """The contraction in LLVM IR, to be compiled as Nova compiles code that is vectors already."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        modes = [
            ir.MemRefType.get([1 << 40], element_type(t))
            for t in (spec.a_type, spec.b_type, spec.acc_type)
        ]
        with ir.InsertionPoint(module.body):
            kernel = func.FuncOp("kernel", (modes + [ir.IndexType.get()] * 7, []))
            with ir.InsertionPoint(kernel.add_entry_block()):
                a, b, c, a_at, b_at, c_at, *ranges = kernel.arguments
                emit_block(target, spec, a, a_at, b, b_at, c, c_at, *ranges)
                func.ReturnOp([])
        assert module.operation.verify()
        passmanager.PassManager.parse(f"builtin.module({PIPELINE})").run(module.operation)
        ExportKernels(target.vector_bits).run(module)
        text = normalise(llvm_dialect.translate_module_to_llvmir(module.operation))
    return Unit(text, unroll=False, vectorize=False)


class Kernel:
    """A compiled contraction; keeps its code alive."""

    def __init__(self, target: Target, spec: Contraction):
        self.spec = spec
        self.code = load_objects(compile_objects([make_unit(target, spec)], target))
        mode = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 7)
        self.call = mode(address_of(self.code, "kernel"))

    def run(self, a, b, c, ranges, offsets=(0, 0, 0)) -> None:
        self.call(a.ctypes.data, b.ctypes.data, c.ctypes.data, *offsets, *ranges)


def dense(m, n, k, *, ta=False, tb=False, types=("f32", "f32", "f32"), accumulate=False):
    return Contraction(
        m=m,
        n=n,
        k=k,
        a_strides=(1, m) if ta else (k, 1),
        b_strides=(1, k) if tb else (n, 1),
        c_strides=(n, 1),
        a_type=types[0],
        b_type=types[1],
        acc_type=types[2],
        accumulate=accumulate,
    )


@functools.cache
def _mprotect():
    return ctypes.CDLL(None, use_errno=True).mprotect


class Guarded:
    """An array whose last element lies at the end of a page that nothing may read past."""

    def __init__(self, values: np.ndarray):
        size = -(-max(values.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.map = mmap.mmap(-1, size + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        end = ctypes.c_void_p(start + size)
        assert _mprotect()(end, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        self.array = np.frombuffer(
            self.map, values.dtype, count=values.size, offset=size - values.nbytes
        )
        self.array[:] = values.ravel()


def numbers(rng, shape, dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def check(kernel: Kernel, ranges_list, seed: int = 0) -> None:
    """Run the kernel on guarded random operands, and compare each range and all around it."""
    spec, rng = kernel.spec, np.random.default_rng(seed)
    a = numbers(
        rng, (spec.m - 1) * spec.a_strides[0] + (spec.k - 1) * spec.a_strides[1] + 1, spec.a_type
    )
    b = numbers(
        rng, (spec.k - 1) * spec.b_strides[0] + (spec.n - 1) * spec.b_strides[1] + 1, spec.b_type
    )
    guarded_a, guarded_b = Guarded(a), Guarded(b)
    remaining = np.lib.stride_tricks.as_strided(
        a, (spec.m, spec.k), [s * a.itemsize for s in spec.a_strides]
    ).astype(np.float64)
    right = np.lib.stride_tricks.as_strided(
        b, (spec.k, spec.n), [s * b.itemsize for s in spec.b_strides]
    ).astype(np.float64)
    product, size = remaining @ right, np.abs(remaining) @ np.abs(right)
    dtype = DTYPES[spec.acc_type]
    extent = (spec.m - 1) * spec.c_strides[0] + (spec.n - 1) * spec.c_strides[1] + 1
    old = numbers(rng, extent, spec.acc_type) if spec.accumulate else np.full(extent, np.nan, dtype)
    for m_lo, m_hi, n_lo, n_hi in ranges_list:
        guarded_c = Guarded(old)
        kernel.run(guarded_a.array, guarded_b.array, guarded_c.array, (m_lo, m_hi, n_lo, n_hi))
        after, untouched = guarded_c.array.copy(), np.ones(extent, bool)
        strides = [s * old.itemsize for s in spec.c_strides]
        view = np.lib.stride_tricks.as_strided(after, (spec.m, spec.n), strides)
        before = np.lib.stride_tricks.as_strided(old, (spec.m, spec.n), strides)
        rows, columns = slice(m_lo, m_hi), slice(n_lo, n_hi)
        np.lib.stride_tricks.as_strided(untouched, (spec.m, spec.n), spec.c_strides)[
            rows, columns
        ] = False
        expected, bound = product[rows, columns], size[rows, columns]
        if spec.accumulate:
            expected = expected + before[rows, columns]
            bound = bound + np.abs(before[rows, columns])
        error = np.abs(view[rows, columns] - expected)
        assert (error <= np.finfo(dtype).eps * (spec.k + 8) * bound).all(), (m_lo, m_hi, n_lo, n_hi)
        assert np.array_equal(after[untouched], old[untouched], equal_nan=True)


def edges(target: Target, spec: Contraction) -> list[tuple[int, int, int, int]]:
    """Ranges whose extents lie around whole register tiles, at the start and at the end of C."""
    tiling = choose_tiling(target, spec)
    rows = {1, tiling.mr - 1, tiling.mr, tiling.mr + 1, 2 * tiling.mr + 1, spec.m}
    columns = {1, tiling.vl, tiling.nr - 1, tiling.nr, tiling.nr + 1, spec.n}
    extents = itertools.product(
        sorted(r for r in rows if 0 < r <= spec.m), sorted(c for c in columns if 0 < c <= spec.n)
    )
    ranges = [(0, r, 0, c) for r, c in extents]
    return ranges + [(spec.m - r, spec.m, spec.n - c, spec.n) for _, r, _, c in ranges]


@pytest.mark.parametrize("ta,tb", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("level", LEVELS)
def test_edges_of_the_register_tile(level, ta, tb):
    target = parse_target(level)
    spec = dense(61, 83, 37, ta=ta, tb=tb)
    check(Kernel(target, spec), edges(target, spec))


@pytest.mark.parametrize("ta", (False, True))
@pytest.mark.parametrize("level", LEVELS)
def test_depths_around_vectors_and_k_blocks(level, ta):
    target = parse_target(level)
    lanes = target.lanes(32)
    longest = next(
        k for k in range(1, 4096) if choose_tiling(target, dense(29, 67, k)).k_blocks > 1
    )
    depths = {1, lanes - 1, lanes, lanes + 1, longest - 1, longest, 2 * longest + 1}
    for depth in sorted(depths):
        spec = dense(29, 67, depth, ta=ta, tb=not ta)
        check(Kernel(target, spec), [(0, 29, 0, 67), (3, 28, 1, 66)])


@pytest.mark.parametrize("level", LEVELS[:1])
@pytest.mark.parametrize(
    "m,n,k",
    [(1, 1, 1), (1, 17, 5), (17, 1, 33), (1, 64, 300), (5, 3, 64), (31, 65, 7), (600, 33, 127)],
)
def test_small_and_odd_sizes(level, m, n, k):
    for ta, tb in ((False, False), (True, True)):
        check(Kernel(parse_target(level), dense(m, n, k, ta=ta, tb=tb)), [(0, m, 0, n)])


@pytest.mark.parametrize(
    "types",
    [
        ("f64", "f64", "f64"),
        ("f16", "f16", "f32"),
        ("bf16", "bf16", "f32"),
        ("bf16", "f32", "f32"),
        ("f16", "bf16", "f64"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("level", LEVELS)
def test_element_types(level, types):
    target = parse_target(level)
    for ta in (False, True):
        spec = dense(23, 45, 41, ta=ta, tb=ta, types=types)
        check(Kernel(target, spec), [(0, 23, 0, 45), (2, 21, 3, 44)])


@pytest.mark.parametrize("level", LEVELS)
def test_f16_widening_is_exact(level):
    """All f16 values, subnormals, infinities and NaN among them, times one."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(1 << 8, 1 << 8)
    target = parse_target(level)
    kernel = Kernel(target, dense(256, 256, 1, types=("f32", "f16", "f32")))
    for row in values:
        c = np.zeros((256, 256), np.float32)
        kernel.run(np.ones((256, 1), np.float32), row.copy(), c, (0, 1, 0, 256))
        with np.errstate(invalid="ignore"):
            assert np.array_equal(c[0], row.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("level", LEVELS)
def test_accumulates_over_k_blocks(level):
    target = parse_target(level)
    spec = dense(40, 50, 700, tb=True, accumulate=True)
    assert choose_tiling(target, spec).k_blocks > 1
    check(Kernel(target, spec), edges(target, spec)[::5])


@pytest.mark.parametrize("shape", [(128, 2304), (128, 3072), (2600, 96), (64, 1030)])
@pytest.mark.parametrize("level", LEVELS)
def test_two_cores_have_the_same_to_do(level, shape):
    """A product of several tiles has an even number of them, and no short one at the end."""
    spec = dense(*shape, 768)
    rows, columns = tile_shape(parse_target(level), spec)
    row_tiles, column_tiles = -(-spec.m // rows), -(-spec.n // columns)
    assert row_tiles * column_tiles % 2 == 0
    assert spec.m - (row_tiles - 1) * rows > rows / 2
    assert spec.n - (column_tiles - 1) * columns > columns / 2


@pytest.mark.parametrize("accumulate", (False, True))
@pytest.mark.parametrize("level", LEVELS)
def test_columns_copied_in_use(level, accumulate):
    """B is copied by the first micropanel, also where a range has more rows than a task."""
    target = parse_target(level)
    spec = dense(1200, 75, 19, accumulate=accumulate)
    tiling = choose_tiling(target, spec)
    assert tiling.copying
    assert tiling.mc < spec.m
    check(Kernel(target, spec), [(0, 1200, 0, 75), (7, 1199, 1, 2 * tiling.nr), (5, 6, 0, 75)])


@pytest.mark.parametrize("level", LEVELS)
def test_contiguous_columns_over_k_blocks(level):
    """Copied in use where all rows are packed at once, and packed before where they are not."""
    target = parse_target(level)
    for mc in (None, 20):
        spec = replace(dense(100, 50, 700), overrides=ScheduleOverrides(mc=mc))
        tiling = choose_tiling(target, spec)
        assert tiling.k_blocks > 1
        assert tiling.copying == (mc is None)
        check(Kernel(target, spec), edges(target, spec)[::5])


@pytest.mark.parametrize("accumulate", (False, True))
def test_any_strides(accumulate):
    target = parse_target(LEVELS[0])
    base = dense(33, 41, 29, accumulate=accumulate)
    cases = {
        "C transposed": replace(base, c_strides=(1, 33)),
        "C strided": replace(base, c_strides=(90, 2)),
        "all strided": replace(base, a_strides=(70, 2), b_strides=(3, 100), c_strides=(2, 80)),
        "padded rows": replace(base, a_strides=(40, 1), b_strides=(64, 1), c_strides=(48, 1)),
        "A one row for all": replace(base, a_strides=(0, 1)),
    }
    for spec in cases.values():
        check(Kernel(target, spec), [(0, 33, 0, 41), (5, 32, 1, 40)])


def test_vectors_as_columns_and_rows():
    target = parse_target(LEVELS[0])
    check(Kernel(target, replace(dense(70, 1, 50), c_strides=(1, 1))), [(0, 70, 0, 1)])
    check(Kernel(target, replace(dense(70, 1, 50), c_strides=(9, 1))), [(3, 69, 0, 1)])
    check(Kernel(target, replace(dense(1, 70, 50), c_strides=(1, 1))), [(0, 1, 1, 70)])


@pytest.mark.parametrize("accumulate", (False, True))
def test_empty_sum_clears_or_keeps(accumulate):
    spec = replace(dense(3, 5, 0), a_strides=(1, 1), accumulate=accumulate)
    c = np.full((3, 5), 7.0, np.float32)
    empty = np.zeros(1, np.float32)
    Kernel(parse_target(LEVELS[0]), spec).run(empty, empty, c, (0, 3, 1, 5))
    assert (c[:, 0] == 7).all()
    assert (c[:, 1:] == (7 if accumulate else 0)).all()


def test_offsets_select_a_batch():
    kernel = Kernel(parse_target(LEVELS[0]), dense(20, 30, 10))
    rng = np.random.default_rng(3)
    a, b = numbers(rng, (4, 20, 10), "f32"), numbers(rng, (4, 10, 30), "f32")
    c = np.zeros((4, 20, 30), np.float32)
    for batch in range(4):
        kernel.run(a, b, c, (0, 20, 0, 30), (batch * 200, batch * 300, batch * 600))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_result_does_not_depend_on_the_cut(level):
    kernel = Kernel(parse_target(level), dense(50, 70, 600))
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (50, 600), "f32"), numbers(rng, (600, 70), "f32")
    full, pieces = (np.zeros((50, 70), np.float32) for _ in range(2))
    kernel.run(a, b, full, (0, 50, 0, 70))
    for m, n in itertools.product(((0, 1), (1, 14), (14, 50)), ((0, 9), (9, 41), (41, 70))):
        kernel.run(a, b, pieces, (*m, *n))
    assert np.array_equal(full, pieces)


@pytest.mark.parametrize("types", [("f32", "f32", "f32"), ("f16", "bf16", "f32")], ids="-".join)
@pytest.mark.parametrize("level", ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64"))
def test_calls_no_library(level, types):
    target = parse_target(level)
    text = assembly(make_unit(target, dense(64, 48, 64, types=types)), target)
    calls = re.findall(r"^\s(?:call\w*|bl)\s+(\S+)", text, re.MULTILINE)
    others = {c.partition("@")[0] for c in calls if not c.startswith("nova_")}
    assert others <= {"memcpy", "memset"}


def test_work_and_tiles():
    target = parse_target("x86_64-v3")
    assert flops(dense(3, 4, 5)) == 120
    assert not is_worth_packing(target, dense(8, 10, 16))
    assert not is_worth_packing(target, dense(1, 4096, 4096))
    assert is_worth_packing(target, dense(64, 10, 512))
    for m, n, k in ((64, 512, 784), (2048, 2048, 2048), (8, 8, 300_000), (1, 1, 1), (0, 5, 3)):
        for spec in (dense(m, n, k), replace(dense(m, n, k), c_strides=(1, max(m, 1)))):
            rows, columns = tile_shape(target, spec)
            assert rows > 0 and columns > 0
    tiling = choose_tiling(target, dense(512, 512, 512))
    rows, columns = tile_shape(target, dense(512, 512, 512))
    assert rows % tiling.mr == 0 and columns % tiling.nr == 0


@pytest.mark.parametrize("level", ("x86_64-v3", "x86_64-v4"))
@pytest.mark.parametrize("size", (128, 256, 512))
def test_squares_are_cut_for_two_cores(level, size):
    rows, columns = tile_shape(parse_target(level), dense(size, size, size))
    assert columns == size and size / 2 <= rows < size * 0.56


@pytest.mark.parametrize("level", LEVELS)
def test_last_rows_have_a_shorter_tile(level):
    """All heights from one row to two tiles: the tile of the last rows, and where it begins."""
    target = parse_target(level)
    spec = dense(40, 70, 37)
    mr = choose_tiling(target, spec).mr
    assert 1 < edge_rows(mr) < mr
    check(Kernel(target, spec), [(0, rows, 0, 70) for rows in range(1, 2 * mr + 2)])


@pytest.mark.parametrize("level", ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64"))
@pytest.mark.parametrize("mode", ("f32", "f64"))
def test_buffers_are_bounded_and_registers_suffice(level, mode):
    target = parse_target(level)
    for size in (1, 10, 64, 100, 512, 3000):
        tiling = choose_tiling(target, dense(size, size, size, types=(mode,) * 3))
        assert (tiling.a_size + tiling.b_size) * np.dtype(DTYPES[mode]).itemsize <= 1440 << 10
        assert tiling.mr * tiling.nv + tiling.nv + 1 < target.vector_registers
