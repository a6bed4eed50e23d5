"""Products of bf16 by dot products of pairs and by tile registers, against numpy in f64.

The same kernels, guards and edges as those of test_packed_gemm.py; where this processor lacks an
instruction, only the code for one that has it is looked at.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from nightly import all_pairs
from test_packed_gemm import Kernel, check, dense, edges, make_unit, numbers

import nova
from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm import strategies
from nova.codegen.cpu.gemm.blocking import choose_tiling
from nova.codegen.cpu.gemm.packed_layout import ELEMENTS, PAIRS, TILES, choose_packed_layout
from nova.compiler.llvm.machine_code import assembly
from nova.core.targets import Target, parse_target

BF16 = ("bf16", "bf16", "f32")
DOTS = ("avx512bf16",)
AMX = ("amx-tile", "amx-bf16")


def with_features(*features: str) -> Target:
    """x86_64-v4 with more features, whatever this processor is."""
    base = parse_target("x86_64-v4")
    return replace(base, name="test", features=tuple(sorted({*base.features, *features})))


TARGETS = {"pairs": with_features(*DOTS), "tiles": with_features(*DOTS, *AMX)}
HOST = set(parse_target("cpu").features)
LAYOUTS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not set(target.features) <= HOST,
            reason=f"this processor lacks {', '.join(sorted(set(target.features) - HOST))}",
        ),
    )
    for name, target in TARGETS.items()
]


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    monkeypatch.setattr(strategies, "GEMM_STRATEGIES", strategies.GEMM_STRATEGIES[-1:])


def product(*sizes, **how):
    return dense(*sizes, types=BF16, **how)


def test_choice_of_the_form():
    plain, pairs, tiles = parse_target("x86_64-v4"), *TARGETS.values()
    large = product(64, 64, 64)
    assert choose_packed_layout(plain, large) is ELEMENTS
    assert choose_packed_layout(pairs, large) is PAIRS
    assert choose_packed_layout(tiles, large) is TILES
    assert choose_packed_layout(tiles, product(4, 64, 64)) is PAIRS
    assert choose_packed_layout(tiles, replace(large, overrides=ScheduleOverrides(mr=4))) is PAIRS
    for types in (("bf16", "f32", "f32"), ("f16", "f16", "f32"), ("bf16", "bf16", "f64")):
        assert choose_packed_layout(tiles, dense(64, 64, 64, types=types)) is ELEMENTS
    # Intel's dot product takes longer than multiply-adds of what is widened.
    intel = replace(tiles, model="GenuineIntel/6/207")
    assert choose_packed_layout(intel, large) is TILES
    assert choose_packed_layout(intel, product(4, 64, 64)) is ELEMENTS
    assert choose_packed_layout(replace(pairs, model="GenuineIntel/6/207"), large) is ELEMENTS
    # AMX of a processor is nothing without the vectors that pack for it.
    assert choose_packed_layout(with_features(*AMX), large) is ELEMENTS


@pytest.mark.parametrize(
    "layout,present,absent",
    [("pairs", {"vdpbf16ps"}, {"tdpbf16ps"}), ("tiles", {"tdpbf16ps", "ldtilecfg"}, {"vdpbf16ps"})],
)
def test_code_has_the_instructions(layout, present, absent):
    """Runs everywhere: only the assembly is looked at. Tiles are released as often as set up."""
    for ta, tb in itertools.product((False, True), repeat=2):
        unit = make_unit(TARGETS[layout], product(70, 70, 70, ta=ta, tb=tb))
        text = assembly(unit, TARGETS[layout])
        words = re.findall(r"^\s+([a-z]\w+)", text, re.MULTILINE)
        assert present <= set(words) and not absent & set(words)
        assert words.count("ldtilecfg") == words.count("tilerelease") == (layout == "tiles")
        calls = re.findall(r"^\s(?:call\w*)\s+(\S+)", text, re.MULTILINE)
        assert {c for c in calls if not c.startswith("nova_")} == set()


@pytest.mark.parametrize(("ta", "tb", "accumulate"), all_pairs(*[(False, True)] * 3))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_edges_of_tiles(layout, ta, tb, accumulate):
    target = TARGETS[layout]
    spec = product(75, 83, 37, ta=ta, tb=tb, accumulate=accumulate)
    assert choose_tiling(target, spec).layout.name == layout
    check(Kernel(target, spec), edges(target, spec))


@pytest.mark.parametrize("ta", (False, True))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_depths_around_words_and_blocks(layout, ta):
    """Odd depths end with half a word, and those below a tile's with zeros; blocks cut at words."""
    target = TARGETS[layout]
    longest = next(
        k for k in range(16, 4096) if choose_tiling(target, product(35, 67, k)).k_blocks > 1
    )
    depths = {1, 2, 3, 16, 17, 31, 32, 33, 63, longest - 1, longest, 2 * longest + 1}
    for depth in sorted(depths):
        spec = product(35, 67, depth, ta=ta, tb=not ta)
        check(Kernel(target, spec), [(0, 35, 0, 67), (3, 34, 1, 66)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout):
    target, base = TARGETS[layout], product(33, 41, 70)
    for spec in (
        replace(base, c_strides=(1, 33)),
        replace(base, c_strides=(90, 2)),
        replace(base, a_strides=(170, 2), b_strides=(3, 230), c_strides=(2, 80)),
        replace(base, a_strides=(80, 1), b_strides=(64, 1), c_strides=(48, 1)),
        replace(base, a_strides=(0, 1)),
    ):
        check(Kernel(target, spec), [(0, 33, 0, 41), (5, 32, 1, 40)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_and_tall_sizes(layout):
    for m, n, k in ((1, 17, 5), (17, 1, 33), (5, 3, 64), (8, 8, 16), (16, 16, 32), (700, 33, 600)):
        check(Kernel(TARGETS[layout], product(m, n, k)), [(0, m, 0, n)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_result_does_not_depend_on_the_cut(layout):
    kernel = Kernel(TARGETS[layout], product(70, 90, 1300))
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (70, 1300), "bf16"), numbers(rng, (1300, 90), "bf16")
    full, pieces = (np.zeros((70, 90), np.float32) for _ in range(2))
    kernel.run(a, b, full, (0, 70, 0, 90))
    for m, n in itertools.product(((0, 1), (1, 20), (20, 70)), ((0, 9), (9, 41), (41, 90))):
        kernel.run(a, b, pieces, (*m, *n))
    assert np.array_equal(full, pieces)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_special_values(layout):
    """Infinity and NaN come through; subnormal operands count as zero, as the docs say."""
    values = np.zeros((32, 32), np.float32)
    values[0, 0], values[1, 1], values[2, 2], values[3, 3] = np.inf, np.nan, 1e-39, -2.0
    c = np.ones((32, 32), np.float32)
    items = np.ones((32, 32), ml_dtypes.bfloat16)
    Kernel(TARGETS[layout], product(32, 32, 32)).run(
        values.astype(ml_dtypes.bfloat16), items, c, (0, 32, 0, 32)
    )
    assert np.isposinf(c[0]).all() and np.isnan(c[1]).all()
    assert (c[2] == 0).all() and (c[3] == -2).all() and (c[4:] == 0).all()


def test_compiled_batch_is_the_same_on_one_and_two_threads():
    """Through the whole compiler, for this processor: a batch, one operand transposed."""
    rng = np.random.default_rng(7)
    a, b = numbers(rng, (3, 100, 130), "bf16"), numbers(rng, (3, 90, 130), "bf16")
    x, y = nova.tensor(a), nova.tensor(b)
    compiled = nova.compile(x @ y.transpose((0, 2, 1)), inputs=[x, y])
    expected = a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1)
    result = []
    for threads in (1, 2):
        with nova.knobs.override(threads=threads):
            result.append(np.asarray(compiled(a, b)))
    assert np.array_equal(result[0].view(np.uint16), result[1].view(np.uint16))
    np.testing.assert_allclose(result[0].astype(np.float64), expected, rtol=2**-8, atol=1e-4)
