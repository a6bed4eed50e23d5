"""Plans of warpgroup GEMMs: tiles, maps and shared memory; when there is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.plan import EnclosingLoop, GpuGemm
from nova.codegen.gpu.wgmma.boxes import Term
from nova.codegen.gpu.wgmma.plan import (
    TILES,
    Tile,
    make_wgmma_plan,
    parse_tiles,
    plan_wgmma,
)

SQUARE = Contraction(
    4096, 4096, 4096, (4096, 1), (4096, 1), (4096, 1), "bf16", "bf16", "f32", False
)


def gemm(m: int, n: int, k: int, layout: str = "nn") -> GpuGemm:
    a = (k, 1) if layout[0] == "n" else (1, m)
    b = (n, 1) if layout[1] == "n" else (1, k)
    return GpuGemm(replace(SQUARE, m=m, n=n, k=k, a_strides=a, b_strides=b, c_strides=(n, 1)))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_a_plan_fits_and_covers_c(tile: Tile, layout: str) -> None:
    m, n = (256, 320) if tile.split > 1 or tile.consumers == 1 else (1024, 768)
    plan = make_wgmma_plan(gemm(m, n, 512, layout), (0, 1), tile, False, 132)
    assert plan is not None
    assert plan.shared_bytes <= 227 << 10
    rows, columns = plan.tiles
    assert rows * tile.rows * tile.cluster >= m and columns * tile.columns >= n
    assert plan.blocks <= 132 and plan.blocks % plan.cluster == 0
    assert plan.lhs.along_k == (layout[0] == "n") and plan.rhs.along_k == (layout[1] == "t")
    for side, extent in ((plan.lhs, tile.rows), (plan.rhs, tile.columns // tile.cluster)):
        assert side.outer >= extent and side.map.box_bytes * side.boxes == side.outer * 128
    # Groups of 8 rows of 128 bytes, which the swizzle permutes, are aligned.
    assert plan.lhs_bytes % 1024 == 0 and plan.stage_bytes % 1024 == 0


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_blocks_that_divide_k_finish_pairs_of_8_columns(tile: Tile) -> None:
    assert tile.columns % (16 * tile.split) == 0
    assert tile.split == 1 or tile.cluster == 1


def test_maps_have_the_strides_of_the_operands() -> None:
    plan = make_wgmma_plan(gemm(1024, 768, 512, "tn"), (3, 5), TILES[1], False, 132)
    assert plan is not None
    assert plan.lhs.map.row() == (3, 0, 9, 2, 1024, 512, 2048, 64, 64)
    assert plan.rhs.map.row() == (5, 0, 9, 2, 768, 512, 1536, 64, 64)


def test_batches_are_dimensions_of_a_map() -> None:
    loops = (
        EnclosingLoop(6, (1024 * 512, 0, 1024 * 768)),
        EnclosingLoop(3, (6 * 1024 * 512, 512 * 768, 0), parallel=False),
    )
    batched = replace(gemm(1024, 768, 512), enclosing=loops)
    plan = make_wgmma_plan(batched, (0, 1), TILES[1], False, 132)
    assert plan is not None
    assert plan.lhs.map.dims == (512, 1024, 6, 3) and plan.lhs.terms == ((Term(0),), (Term(1),))
    assert plan.rhs.map.dims == (768, 512, 3) and plan.rhs.terms == ((Term(1),),)
    assert plan.work_items == 6 * 8 * 3 and plan.stages == 3 * 8


@pytest.mark.parametrize(
    ("reason", "contraction"),
    [
        ("odd row stride", replace(SQUARE, k=4097, a_strides=(4097, 1))),
        ("no adjacent elements", replace(SQUARE, a_strides=(8192, 2))),
        ("f32", replace(SQUARE, a_type="f32", b_type="f32")),
        ("mixed types", replace(SQUARE, a_type="f16")),
        ("f64 sums", replace(SQUARE, acc_type="f64")),
        ("one row", replace(SQUARE, m=1)),
    ],
)
def test_operands_that_the_copy_engine_cannot_read(reason: str, contraction: Contraction) -> None:
    assert plan_wgmma(GpuGemm(contraction), (0, 1), 132) is None, reason


def test_an_offset_must_be_aligned() -> None:
    assert plan_wgmma(GpuGemm(SQUARE, offsets=(8, 16, 0)), (0, 1), 132) is not None
    assert plan_wgmma(GpuGemm(SQUARE, offsets=(4, 16, 0)), (0, 1), 132) is None


def test_few_tiles_fill_the_multiprocessors() -> None:
    plan = plan_wgmma(gemm(768, 3072, 8192, "tn"), (0, 1), 132)
    assert plan is not None and 120 <= plan.blocks <= 132


def test_blocks_divide_a_long_k() -> None:
    plan = plan_wgmma(gemm(768, 768, 8192, "tn"), (0, 1), 132)
    assert plan is not None and plan.tile.split > 1 and plan.tile.cluster == 1
    assert plan.clusters == plan.work_items  # one tile for each cluster
    assert plan.part_stages * plan.tile.split >= plan.stages
    # The sums of a block fit where its stages are.
    assert plan.tile.rows * plan.tile.columns * 4 <= plan.pieces_offset


def test_a_short_k_is_not_divided() -> None:
    tile = replace(TILES[3], split=4)
    assert make_wgmma_plan(gemm(256, 256, 128), (0, 1), tile, False, 132) is None
    assert make_wgmma_plan(gemm(256, 256, 256), (0, 1), tile, False, 132) is not None


def test_more_tiles_than_clusters_are_not_divided() -> None:
    tile = replace(TILES[3], split=4)
    assert make_wgmma_plan(gemm(4096, 4096, 4096), (0, 1), tile, False, 132) is None


def test_small_tiles_are_for_one_wave_of_whole_tiles() -> None:
    tile = Tile(64, 64, 5)
    for m, n in ((1024, 768), (32, 768)):
        assert make_wgmma_plan(gemm(m, n, 768), (0, 1), tile, False, 132) is None
    plan = make_wgmma_plan(gemm(128, 768, 768), (0, 1), tile, False, 132)
    assert plan is not None and plan.threads == 256
    assert 2 * (plan.shared_bytes + 1024) <= 228 << 10  # two blocks on a multiprocessor


def test_the_ring_has_no_more_stages_than_a_block_needs() -> None:
    short = make_wgmma_plan(gemm(256, 256, 128), (0, 1), Tile(128, 64, 8), False, 132)
    assert short is not None and short.ring_stages == 2
    many = make_wgmma_plan(gemm(4096, 4096, 128), (0, 1), Tile(128, 64, 8), False, 132)
    assert many is not None and many.ring_stages == 8  # the copies of the next tile
    # The sums that blocks exchange need more memory than their stages.
    split = make_wgmma_plan(gemm(256, 256, 256), (0, 1), Tile(128, 256, 4, split=4), False, 132)
    assert split is not None and split.part_stages == 1
    assert split.tile.rows * split.tile.columns * 4 <= split.pieces_offset


def test_transposed_results_are_swapped() -> None:
    plan = plan_wgmma(GpuGemm(replace(SQUARE, n=1024, c_strides=(1, 4096))), (0, 1), 132)
    assert plan is not None and plan.swapped
    assert plan.gemm.contraction.m == 1024
    assert (plan.lhs.map.argument, plan.rhs.map.argument) == (1, 0)


def test_the_knob_selects_tiles() -> None:
    assert parse_tiles("auto") is None and parse_tiles("wgmma") is None
    assert parse_tiles("mma") == ()
    assert parse_tiles("wgmma-128x256x2") == TILES[:1]
    assert parse_tiles("wgmma-128x256x1x1") == TILES[1:2]
    wide = parse_tiles("wgmma-128x256")
    assert wide is not None and {tile.split for tile in wide} == {1, 2, 4}


def test_choices_that_were_measured() -> None:
    """The fastest tiles of an H200 for GEMMs of GPT-2 (benchmarks/gpu/wgmma.py time --tiles)."""
    measured = {
        (8192, 2304, 768, "nn"): (128, 192, 1),
        (8192, 768, 3072, "nn"): (128, 192, 1),
        (8192, 3072, 768, "nn"): (128, 192, 1),
        (16384, 768, 768, "nn"): (128, 192, 1),
        (768, 2304, 8192, "tn"): (128, 128, 1),
        (768, 3072, 8192, "tn"): (128, 144, 1),
        (768, 768, 8192, "tn"): (128, 192, 4),
        (1024, 768, 3072, "nn"): (128, 64, 1),
        (1024, 1024, 1024, "nn"): (128, 64, 1),
        (4096, 4096, 4096, "nn"): (128, 256, 1),
        (128, 2304, 768, "nn"): (64, 64, 1),
        (128, 768, 768, "nn"): (64, 64, 4),
        (128, 3072, 768, "nn"): (64, 64, 1),
        (128, 768, 3072, "nn"): (64, 64, 4),
    }
    for (m, n, k, layout), expected in measured.items():
        plan = plan_wgmma(gemm(m, n, k, layout), (0, 1), 132)
        assert plan is not None
        assert (plan.tile.rows, plan.tile.columns, plan.tile.split) == expected, (m, n, k)
    assert parse_tiles("wgmma-1x1") == ()
