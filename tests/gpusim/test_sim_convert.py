"""cvt between all types, setp, selp, mov and predicates, against exact arithmetic."""

from __future__ import annotations

import itertools
import random

import ml_dtypes
import numpy as np
import pytest
import sim_reference as exact
from sim_programs import apply_instruction, launch, make_kernel
from sim_reference import FORMATS
from test_sim_arithmetic import special_values

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
BITS = {
    **{t: int(t[1:]) for t in INTEGERS},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "tf32": 32,
}
MODES = ("rn", "rz", "rm", "rp")
INTEGRAL = tuple(f"{m}i" for m in MODES)


def has_all(to: str, source: str) -> bool:
    (low, high), (least, most) = exact.integer_bounds(to), exact.integer_bounds(source)
    return low <= least and most <= high


def conversions() -> list[tuple[str, str, str, str]]:
    """(modes, to, source, extra) of everything that PTX has among these types."""
    pairs = list(itertools.product(INTEGERS, repeat=2))
    rows = [("", to, source, "") for to, source in pairs]
    rows += [("", to, source, "sat") for to, source in pairs if not has_all(to, source)]
    mixed = [(i, f) for i in INTEGERS for f in FLOATS if not (f == "bf16" and i in ("u8", "s8"))]
    rows += [(m, i, f, "") for m in INTEGRAL for i, f in mixed]
    rows += [(m, f, i, "") for m in MODES for i, f in mixed]
    rows += [(m, t, t, sat) for m in ("", *INTEGRAL) for t in FLOATS for sat in ("", "sat")]
    rows += [(m, "tf32", "f32", "") for m in ("rna", "rn", "rz")]
    for to, source in itertools.permutations(FLOATS, 2):
        if BITS[to] < BITS[source]:
            rows += [(m, to, source, sat) for m in MODES for sat in ("", "sat")]
        elif BITS[to] > BITS[source]:
            rows += [("", to, source, sat) for sat in ("", "sat")]
    return [row for row in rows if not (row[3] and "bf16" in row[1:3])]


def values_of(type_: str, seed: str) -> list[int]:
    numbers = random.Random(seed)
    bits = BITS[type_]
    values = list(special_values(type_, bits)) + [numbers.getrandbits(bits) for _ in range(60)]
    if type_ in FORMATS:
        f = FORMATS[type_]
        spread = [exact.Fraction(numbers.randint(-(1 << e), 1 << e), 4) for e in range(1, 66)]
        values += [exact.round_value(v, f) for v in spread]
        values += [exact.round_value(exact.Fraction(n, 2), f) for n in range(-9, 10)]
    return values


FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def saturated(values: np.ndarray, name: str) -> np.ndarray:
    """Bits of fp8, with the largest finite value instead of infinity and one NaN."""
    most = float(ml_dtypes.finfo(FP8[name]).max)
    bits = np.clip(values, -most, most).astype(FP8[name]).view(np.uint8)
    return np.where(np.isnan(values), 0x7F, bits)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", list(FP8))
def test_fp8(name: str, relu: str):
    numbers = np.random.default_rng(0)
    scale = np.exp2(numbers.integers(-14, 12, 512)).astype(np.float32)
    x = (numbers.standard_normal((2, 512)) * scale).astype(np.float32)
    x[0, :6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30]
    x[1, :64] = np.arange(64) / 512  # ties
    first, second = (np.where(row <= 0, 0, row) if relu else row for row in x)
    expected = saturated(first, name).astype(np.uint32) << 8 | saturated(second, name)
    columns = [row.view(np.uint32).tolist() for row in x]
    opcode = f"cvt.rn.satfinite{relu}.{name}x2.f32"
    assert apply_instruction(opcode, (16, 32, 32), columns) == expected.tolist()
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    pairs = halves[0].view(np.uint16).astype(np.uint32) << 16 | halves[1].view(np.uint16)
    first, second = (
        np.where(row <= 0, 0, row) if relu else row for row in halves.astype(np.float32)
    )
    expected = saturated(first, name).astype(np.uint32) << 8 | saturated(second, name)
    opcode = f"cvt.rn.satfinite{relu}.{name}x2.f16x2"
    assert apply_instruction(opcode, (16, 32), [pairs.tolist()]) == expected.tolist()


@pytest.mark.parametrize("name", list(FP8))
def test_fp8_to_halves(name: str):
    values = np.arange(1 << 16, dtype=np.uint16)[::37].copy()
    halves = values.view(np.uint8).view(FP8[name]).astype(np.float16)
    result = apply_instruction(f"cvt.rn.f16x2.{name}x2", (32, 16), [values.tolist()])
    actual = np.array(result, np.uint32).view(np.float16)
    np.testing.assert_array_equal(actual, halves)


def opcode_of(mode: str, to: str, source: str, extra: str) -> str:
    return ".".join(filter(None, ("cvt", mode, extra, to, source)))


@pytest.mark.parametrize(("mode", "to", "source", "extra"), conversions())
def test_conversions(mode: str, to: str, source: str, extra: str):
    values = values_of(source, opcode_of(mode, to, source, extra))
    widths = tuple(max(16, BITS[t]) for t in (to, source))
    result = apply_instruction(opcode_of(mode, to, source, extra), widths, [values])
    for value, out in zip(values, result, strict=True):
        truth = exact.convert(value, to, source, mode, extra == "sat") % (1 << widths[0])
        if to == "f64" and exact.is_nan(truth, FORMATS["f64"]):
            assert exact.is_nan(out, FORMATS["f64"])
            continue
        assert out == truth, (opcode_of(mode, to, source, extra), hex(value), hex(out), hex(truth))


def test_an_integer_in_a_wider_register():
    values = [0x1FF, 0x80, 0x7F, 0xFFFF]
    assert apply_instruction("cvt.u32.u8", (32, 16), [values]) == [0xFF, 0x80, 0x7F, 0xFF]
    signed = apply_instruction("cvt.s64.s8", (64, 16), [values])
    assert [exact.signed(v, 64) for v in signed] == [-1, -128, 127, -1]


def test_flushing_conversions():
    tiny = [1, 0x80000001, 0x007FFFFF]
    assert apply_instruction("cvt.ftz.f64.f32", (64, 32), [tiny]) == [0, 1 << 63, 0]
    assert apply_instruction("cvt.rpi.ftz.s32.f32", (32, 32), [tiny]) == [0, 0, 0]
    assert apply_instruction("cvt.rn.ftz.f32.f64", (32, 64), [[0x3700000000000000]]) == [0]


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rn.relu"])
def test_pairs(type_: str, mode: str):
    high, low = values_of("f32", "high"), values_of("f32", "low")[::-1]
    opcode = f"cvt.{mode}.{type_}x2.f32"
    result = apply_instruction(opcode, (32, 32, 32), [high, low])
    f = FORMATS[type_]
    for a, b, out in zip(high, low, result, strict=True):
        parts = [exact.convert(v, type_, "f32", mode[:2]) for v in (a, b)]
        if mode.endswith("relu"):
            parts = [exact.relu(p, f) for p in parts]
        assert out == parts[0] << 16 | parts[1], (opcode, hex(a), hex(b), hex(out))


def test_finite_tf32():
    huge = [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000]
    result = apply_instruction("cvt.rna.satfinite.tf32.f32", (32, 32), [huge])
    assert result == [0x7F7FE000, 0xFF7FE000, 0x7F7FE000]


# --- comparisons --------------------------------------------------------------------------------

COMPARED = ("u16", "s16", "u32", "s32", "u64", "s64", *FLOATS)
ORDERED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def compare(opcode: str, type_: str, columns: list[list[int]]) -> list[int]:
    """1 where a comparison holds."""
    bits = BITS[type_]
    prefix = {16: "h", 32: "r", 64: "d"}[bits]
    body = "\n".join(
        [
            f"mul.wide.u32 %d20, %r0, {bits // 8};",
            "add.s64 %d21, %d1, %d20;",
            "add.s64 %d22, %d2, %d20;",
            f"ld.global.b{bits} %{prefix}30, [%d21];",
            f"ld.global.b{bits} %{prefix}31, [%d22];",
            f"{opcode} %p1, %{prefix}30, %{prefix}31;",
            "selp.b32 %r10, 1, 0, %p1;",
            "mul.wide.u32 %d20, %r0, 4;",
            "add.s64 %d20, %d0, %d20;",
            "st.global.u32 [%d20], %r10;",
        ]
    )
    unsigned = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    count = -(-len(columns[0]) // 32) * 32
    arrays = [np.resize(np.array(c, unsigned), count) for c in columns]
    result = launch(
        make_kernel(body, 3), [np.zeros(count, np.uint32), *arrays], grid=(count // 32,)
    )
    return [int(v) for v in result[0][: len(columns[0])]]


def compared(value: int, type_: str):
    if type_ in FORMATS:
        f = FORMATS[type_]
        if exact.is_nan(value, f):
            return None
        if exact.is_infinite(value, f):
            return exact.Fraction(2) ** 2000 * (-1 if value & f.sign else 1)
        return exact.value_of(value, f)
    return exact.signed(value, BITS[type_]) if type_[0] == "s" else value


@pytest.mark.parametrize("type_", COMPARED)
@pytest.mark.parametrize("name", ORDERED)
def test_comparisons(name: str, type_: str):
    pairs = list(itertools.product(special_values(type_, BITS[type_])[:14], repeat=2))
    columns = [list(c) for c in zip(*pairs, strict=True)]
    for unordered in (False, True) if type_ in FORMATS else (False,):
        result = compare(f"setp.{name}{'u' if unordered else ''}.{type_}", type_, columns)
        for (a, b), out in zip(pairs, result, strict=True):
            x, y = compared(a, type_), compared(b, type_)
            missing = x is None or y is None
            truth = unordered if missing else ORDERED[name](x, y)
            assert out == truth, (name, type_, hex(a), hex(b), out)


@pytest.mark.parametrize("type_", FLOATS)
def test_numbers_and_nan(type_: str):
    pairs = list(itertools.product(special_values(type_, BITS[type_]), repeat=2))[:320]
    columns = [list(c) for c in zip(*pairs, strict=True)]
    number = compare(f"setp.num.{type_}", type_, columns)
    nan = compare(f"setp.nan.{type_}", type_, columns)
    truth = [int(all(compared(v, type_) is not None for v in pair)) for pair in pairs]
    assert number == truth and nan == [1 - t for t in truth]


def test_other_spellings():
    values = [[1, 5, 0xFFFFFFFF], [5, 5, 1]]
    assert compare("setp.lo.u32", "u32", values) == [1, 0, 0]
    assert compare("setp.ls.u32", "u32", values) == [1, 1, 0]
    assert compare("setp.hi.u32", "u32", values) == [0, 0, 1]
    assert compare("setp.hs.u32", "u32", values) == [0, 1, 1]
    assert compare("setp.lt.ftz.f32", "f32", [[0], [1]]) == [0]
    assert compare("setp.lt.f32", "f32", [[0], [1]]) == [1]


def run_predicates(body: str) -> list[int]:
    """Eight lanes with %p1, %p2, %p3 as the bits of the lane; %p4 is stored."""
    bits = "\n".join(
        f"and.b32 %r1{i}, %r2, {1 << i}; setp.ne.u32 %p{i + 1}, %r1{i}, 0;" for i in range(3)
    )
    end = "selp.u32 %r20, 1, 0, %p4; mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d0, %d2;"
    text = make_kernel(f"{bits}\n{body}\n{end}\nst.global.u32 [%d2], %r20;")
    return [int(v) for v in launch(text, [np.zeros(32, np.uint32)])[0][:8]]


@pytest.mark.parametrize(
    ("body", "truth"),
    [
        ("and.pred %p4, %p1, %p2;", lambda a, b, c: a & b),
        ("or.pred %p4, %p1, %p2;", lambda a, b, c: a | b),
        ("xor.pred %p4, %p1, %p3;", lambda a, b, c: a ^ c),
        ("not.pred %p4, %p2;", lambda a, b, c: 1 - b),
        ("mov.pred %p4, %p3;", lambda a, b, c: c),
        ("mov.pred %p4, 1;", lambda a, b, c: 1),
        ("and.pred %p4, %p1, !%p2;", lambda a, b, c: a & (1 - b)),
        ("setp.gt.and.s32 %p4, %r2, 2, %p1;", lambda a, b, c: a & (a + 2 * b + 4 * c > 2)),
        ("setp.gt.or.s32 %p4, %r2, 5, !%p1;", lambda a, b, c: (1 - a) | (a + 2 * b + 4 * c > 5)),
        ("setp.gt.xor.s32 %p4, %r2, 3, %p1;", lambda a, b, c: a ^ (a + 2 * b + 4 * c > 3)),
        ("setp.gt.s32 %p5|%p4, %r2, 3;", lambda a, b, c: a + 2 * b + 4 * c <= 3),
        ("setp.gt.and.s32 %p5|%p4, %r2, 3, %p1;", lambda a, b, c: a & (a + 2 * b + 4 * c <= 3)),
        ("mov.pred %p4, 0; @%p2 mov.pred %p4, 1;", lambda a, b, c: b),
        ("mov.pred %p4, 0; @!%p2 mov.pred %p4, %p1;", lambda a, b, c: a & (1 - b)),
    ],
)
def test_predicates(body: str, truth):
    assert run_predicates(body) == [int(truth(i & 1, i >> 1 & 1, i >> 2)) for i in range(8)]


def test_pairs_of_comparisons():
    body = """
    mov.b32 %r10, 0x3C004000; mov.b32 %r11, 0x40003C00;
    setp.gt.f16x2 %p4|%p5, %r10, %r11;
    mov.b32 %r10, 0x3F804000; mov.b32 %r11, 0x40003F80;
    setp.gt.bf16x2 %p6|%p7, %r10, %r11;
    not.pred %p5, %p5; not.pred %p7, %p7;
    and.pred %p4, %p4, %p5; and.pred %p4, %p4, %p6; and.pred %p4, %p4, %p7;
    """
    assert run_predicates(body) == [1] * 8


def test_moves():
    body = """
    mov.u32 %r10, 0x11223344; mov.b32 {%h1, %h2}, %r10;
    mov.b32 %r11, {%h2, %h1};
    mov.b64 %d10, {%r10, %r11}; mov.b64 {%r12, _}, %d10; mov.b64 {%h3, %h4, %h5, %h6}, %d10;
    cvt.u32.u16 %r13, %h6;
    mov.b16 %h7, -1; cvt.u32.u16 %r14, %h7;
    mov.s64 %d11, -2; mov.b64 {%r15, %r16}, %d11;
    mov.f32 %r17, 0f3F800000; mov.f64 %d12, 0d3FF0000000000000; mov.b64 {_, %r18}, %d12;
    st.global.v4.u32 [%d0], {%r10, %r11, %r12, %r13};
    st.global.v4.u32 [%d0+16], {%r14, %r15, %r16, %r17};
    st.global.u32 [%d0+32], %r18;
    st.global.u32 [%d0+36], WARP_SZ;
    """
    out = launch(make_kernel(body), [np.zeros(10, np.uint32)], block=(1,))[0]
    expected = [0x11223344, 0x33441122, 0x11223344, 0x3344, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF]
    assert [int(v) for v in out] == [*expected, 0x3F800000, 0x3FF00000, 32]
