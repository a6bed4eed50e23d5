"""Integer products by words of bytes and by pairs of i16, bit for bit against numpy.

Every pair of i8 and u8, on each level of x86: the x86 levels without VNNI run everywhere, the code
for others is looked at. Operands end at unreadable pages and include the extremes of their types.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from processors import runnable
from test_packed_gemm import Guarded, Kernel, dense, edges, make_unit

from nova.codegen.common.overrides import ScheduleOverrides
from nova.codegen.cpu.gemm import strategies
from nova.codegen.cpu.gemm.blocking import choose_tiling
from nova.codegen.cpu.gemm.packed_layout import (
    ELEMENTS,
    I16_PAIRS,
    QUAD_TILES,
    QUADS,
    choose_packed_layout,
)
from nova.compiler.llvm.machine_code import assembly
from nova.core.targets import Target, parse_target

TYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32}
BYTES = list(itertools.product(("i8", "u8"), repeat=2))
HOST = set(parse_target("cpu").features)


def with_features(level: str, *features: str) -> Target:
    base = parse_target(level)
    return replace(base, name="test", features=tuple(sorted({*base.features, *features})))


TARGETS = {
    "quads-512": with_features("x86_64-v4", "avx512vnni"),
    "quads-256": with_features("x86_64-v3", "avxvnni"),
    "quad-tiles": with_features("x86_64-v4", "avx512vnni", "amx-tile", "amx-int8"),
    "pairs-512": parse_target("x86_64-v4"),
    "pairs-256": parse_target("x86_64-v3"),
    "pairs-128": parse_target("x86_64"),
}
RUNNABLE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not set(target.features) <= HOST or not runnable("x86_64"),
            reason="this processor lacks an instruction",
        ),
    )
    for name, target in TARGETS.items()
]


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    monkeypatch.setattr(strategies, "GEMM_STRATEGIES", strategies.GEMM_STRATEGIES[-1:])


def product(*sizes, types=("i8", "i8"), **how):
    return dense(*sizes, types=(*types, "i32"), **how)


def random_integers(rng, count: int, name: str) -> np.ndarray:
    """Random numbers, of which a third are the extremes."""
    info = np.iinfo(TYPES[name])
    values = rng.integers(info.min, info.max, count, endpoint=True, dtype=TYPES[name])
    extremes = rng.choice(np.array([info.min, info.max], TYPES[name]), count)
    return np.where(rng.random(count) < 1 / 3, extremes, values)


def strided(values: np.ndarray, shape, strides) -> np.ndarray:
    steps = [s * values.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(values, shape, steps)


def check(kernel: Kernel, ranges_list, seed: int = 0) -> None:
    """Run the kernel on guarded operands; each range is exact, and all around it untouched."""
    spec, rng = kernel.spec, np.random.default_rng(seed)

    def extent(shape, strides):
        return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1

    shapes = (spec.m, spec.k), (spec.k, spec.n), (spec.m, spec.n)
    a = random_integers(rng, extent(shapes[0], spec.a_strides), spec.a_type)
    b = random_integers(rng, extent(shapes[1], spec.b_strides), spec.b_type)
    old = random_integers(rng, extent(shapes[2], spec.c_strides), "i32")
    guarded_a, guarded_b = Guarded(a), Guarded(b)
    left = strided(a, shapes[0], spec.a_strides).astype(np.int64)
    right = strided(b, shapes[1], spec.b_strides).astype(np.int64)
    total = left @ right
    if spec.accumulate:
        total = total + strided(old, shapes[2], spec.c_strides)
    for m_lo, m_hi, n_lo, n_hi in ranges_list:
        guarded_c, expected = Guarded(old), old.copy()
        kernel.run(guarded_a.array, guarded_b.array, guarded_c.array, (m_lo, m_hi, n_lo, n_hi))
        part = slice(m_lo, m_hi), slice(n_lo, n_hi)
        strided(expected, shapes[2], spec.c_strides)[part] = total[part].astype(np.int32)
        np.testing.assert_array_equal(guarded_c.array, expected)


def test_choice_of_the_layout():
    large = product(64, 64, 64)
    expected = [QUADS, QUADS, QUAD_TILES, I16_PAIRS, I16_PAIRS, I16_PAIRS]
    assert [choose_packed_layout(t, large) for t in TARGETS.values()] == expected
    tiles = TARGETS["quad-tiles"]
    assert choose_packed_layout(tiles, product(4, 64, 64)) is QUADS
    assert choose_packed_layout(tiles, replace(large, overrides=ScheduleOverrides(mr=4))) is QUADS
    assert choose_packed_layout(parse_target("aarch64"), large) is ELEMENTS
    assert choose_packed_layout(tiles, product(64, 64, 64, types=("i16", "i8"))) is ELEMENTS
    assert choose_packed_layout(parse_target("cascadelake"), large) is QUADS
    assert choose_packed_layout(parse_target("alderlake"), large) is QUADS
    assert choose_packed_layout(parse_target("sapphirerapids"), large) is QUAD_TILES


@pytest.mark.parametrize(
    "name,present,absent",
    [
        ("quads-512", {"vpdpbusd"}, {"vpmaddwd", "vpmulld"}),
        ("quads-256", {"vpdpbusd"}, {"vpmaddwd", "vpmulld"}),
        ("quad-tiles", {"ldtilecfg"}, {"vpdpbusd"}),
        ("pairs-512", {"vpmaddwd"}, {"vpdpbusd", "vpmulld"}),
        ("pairs-256", {"vpmaddwd"}, {"vpdpbusd", "vpmulld"}),
        ("pairs-128", {"pmaddwd"}, {"pmaddubsw"}),
    ],
)
def test_code_has_the_instructions(name, present, absent):
    """Runs everywhere: only the assembly is looked at."""
    tiles = dict(zip(BYTES, ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"), strict=True))
    for types in BYTES:
        unit = make_unit(TARGETS[name], product(70, 70, 70, types=types, tb=types[0] == "u8"))
        text = assembly(unit, TARGETS[name])
        words = set(re.findall(r"^\s+(?:{vex}\s+)?([a-z]\w+)", text, re.MULTILINE))
        needed = {*present, tiles[types]} if name == "quad-tiles" else present
        assert needed <= words and not absent & words
        assert "vpmaddubsw" not in words  # its sums saturate
        calls = re.findall(r"^\s(?:call\w*)\s+(\S+)", text, re.MULTILINE)
        assert {c for c in calls if not c.startswith("nova_")} == set()


@pytest.mark.parametrize("types", BYTES)
@pytest.mark.parametrize("name", RUNNABLE)
def test_edges_of_tiles(name, types):
    target, number = TARGETS[name], BYTES.index(types)
    how = {"ta": number in (1, 3), "tb": number in (2, 3), "accumulate": number in (0, 3)}
    spec = product(61, 75, 37, types=types, **how)
    check(Kernel(target, spec), edges(target, spec))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "ta", "tb", "accumulate"), list(itertools.product(BYTES, *[(False, True)] * 3))
)
@pytest.mark.parametrize("name", RUNNABLE)
def test_edges_of_all_tiles(name, types, ta, tb, accumulate):
    target = TARGETS[name]
    spec = product(61, 75, 37, types=types, ta=ta, tb=tb, accumulate=accumulate)
    check(Kernel(target, spec), edges(target, spec))


@pytest.mark.parametrize(
    "types", [("i8", "i8"), pytest.param(("u8", "i8"), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", RUNNABLE)
def test_depths_around_words_and_blocks(name, types):
    """Depths that end inside of a word; blocks of k cut at words."""
    target = TARGETS[name]
    longest = next(
        k for k in range(16, 8192) if choose_tiling(target, product(35, 67, k)).k_blocks > 1
    )
    depths = (3, 2 * longest + 1)
    if types == ("u8", "i8"):
        depths = (1, 2, 4, 5, 63, 66, longest)
    for number, depth in enumerate(depths):
        spec = product(19, 67, depth, types=types, ta=number % 2 == 0, tb=number % 3 == 0)
        check(Kernel(target, spec), [(0, 19, 0, 67), (3, 18, 1, 66)])


@pytest.mark.parametrize("name", RUNNABLE)
def test_any_strides(name):
    target, base = TARGETS[name], product(33, 41, 70, types=("u8", "u8"))
    for spec in (
        replace(base, c_strides=(90, 2)),
        replace(base, a_strides=(170, 2), b_strides=(3, 230), c_strides=(2, 80)),
        replace(base, a_strides=(0, 1)),
    ):
        check(Kernel(target, spec), [(0, 33, 0, 41), (5, 32, 1, 40)])


@pytest.mark.parametrize(
    "types", [("i32", "i32"), ("i16", "i8"), ("u16", "i16"), ("u8", "u16"), ("i8", "i32")]
)
@pytest.mark.parametrize("level", runnable("cpu", "x86_64-v3", "x86_64", "aarch64"))
def test_other_integers(level, types):
    """i32 sums wrap."""
    target = parse_target(level)
    spec = product(31, 37, 45, types=types, ta=types[0] == "i16", tb=types[0] == "u16")
    check(Kernel(target, spec), [(0, 31, 0, 37), (3, 30, 1, 36)])


def test_sums_of_a_long_k_wrap():
    """40,000 products of 255 and 255 exceed i32."""
    target = parse_target("cpu")
    spec = product(8, 16, 40_000, types=("u8", "u8"))
    kernel = Kernel(target, spec)
    a, b = np.full((8, spec.k), 255, np.uint8), np.full((spec.k, 16), 255, np.uint8)
    c = np.zeros((8, 16), np.int32)
    kernel.run(a, b, c, (0, 8, 0, 16))
    expected = np.int64(255 * 255 * spec.k).astype(np.int32)
    assert expected < 0 and (c == expected).all()
