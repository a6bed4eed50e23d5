"""Every lane function of the simulator, with all modes, against exact arithmetic."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import mpmath
import pytest
import sim_reference as exact
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_integers import integer_reference, is_specified
from sim_programs import apply_instruction
from sim_reference import FORMATS, Format

from nova import _native

LANES = {name: tuple(w for w in widths if w) for name, widths in _native.sim_lanes()}
MODES = ("rn", "rz", "rm", "rp")
# f32 bits: zeros, ones, the ends of the normal and subnormal numbers, infinities, NaN.
SPECIAL_F32 = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x40490FDB, 0x4B800000, 0x7F7FFFFF]
SPECIAL_F32 += [0x7F800000, 0x7FC00000, 0x7F800001]
SPECIAL_HALF = [0, 1, 0x03FF, 0x0400, 0x007F, 0x0080, 0x3C00, 0x3F80, 0x3C01, 0x7BFF, 0x7F7F]
SPECIAL_HALF += [0x7C00, 0x7F80, 0x7E00, 0x7FC0, 0x7C01]


def special_values(type_: str, width: int) -> list[int]:
    if "f" in type_ and width == 32 and not type_.endswith("x2"):
        return [v | sign for v in SPECIAL_F32 for sign in (0, 1 << 31)]
    if "f" in type_ and width == 16:
        return [v | sign for v in SPECIAL_HALF for sign in (0, 1 << 15)]
    if type_ == "f64":
        wide = [0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, (0x3FF << 52) + 1, 0x7FEF << 48]
        wide += [0x7FF << 52, 0x7FF8 << 48, 0x433 << 52]
        return [v | sign for v in wide for sign in (0, 1 << 63)]
    if type_ in ("f16x2", "bf16x2"):
        return [low | high << 16 for low in SPECIAL_HALF[::3] for high in (0x3C00, 0xBF80)]
    if type_ == "f32x2":
        return [low | high << 32 for low in SPECIAL_F32[::3] for high in (0x3F800000, 0x80000001)]
    top = 1 << width - 1
    return sorted({0, 1, 2, 7, 15, 31, 32, 33, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1})


def sample(name: str, widths: tuple[int, ...], count: int = 192) -> list[list[int]]:
    """Columns of raw operands: special values against each other, then random ones."""
    numbers = random.Random(name)
    type_ = name.rpartition(".")[2]
    pool = [special_values(type_, w) for w in widths[1:]]
    rows = list(itertools.product(*pool))
    rows = numbers.sample(rows, min(len(rows), count))
    for _ in range(count):
        row = []
        for width in widths[1:]:
            bits = numbers.getrandbits(width)
            if "f" in type_ and numbers.random() < 0.7:
                bits = near_one(bits, type_, width)
            elif numbers.random() < 0.3:
                bits %= 70
            row.append(bits)
        rows.append(tuple(row))
    return [list(column) for column in zip(*rows, strict=True)]


def near_one(bits: int, type_: str, width: int) -> int:
    """Numbers of similar size, so that sums and products have digits to round."""
    f = FORMATS[type_.removesuffix("x2")]
    keep = f.sign | ((1 << f.fraction) - 1)
    out = 0
    for shift in range(0, width, f.bits):
        part = bits >> shift & ((1 << f.bits) - 1)
        out |= (part & keep | (f.bias - part % 5) << f.fraction) << shift
    return out


def float_reference(name: str) -> Callable[..., int] | None:
    """The truth for a float function with its modes; approximate ones are not here."""
    head, *words = name.split(".")
    type_ = words[-1]
    f = FORMATS.get(type_.removesuffix("x2"))
    if f is None or "approx" in words or "full" in words:
        return None
    mode = next((w for w in words if w in MODES), "rn")
    plain: dict[str, Callable[..., int]] = {
        "add": lambda a, b: exact.add(a, b, f, mode),
        "sub": lambda a, b: exact.sub(a, b, f, mode),
        "mul": lambda a, b: exact.mul(a, b, f, mode),
        "fma": lambda a, b, c: exact.fma(a, b, c, f, mode),
        "div": lambda a, b: exact.div(a, b, f, mode),
        "rcp": lambda a: exact.div(exact.round_value(exact.Fraction(1), f), a, f, mode),
        "sqrt": lambda a: exact.sqrt(a, f, mode),
        "neg": lambda a: f.nan if exact.is_nan(a, f) else a ^ f.sign,
        "abs": lambda a: f.nan if exact.is_nan(a, f) else a & ~f.sign,
        "copysign": lambda a, b: a & f.sign | b & ~f.sign,
    }

    def limit(a: int, b: int) -> int:
        sign = 0
        if exact.is_nan(a, f) and exact.is_nan(b, f):
            return f.nan
        if "xorsign" in words:
            sign, a, b = (a ^ b) & f.sign, a & ~f.sign, b & ~f.sign
        out = exact.least(a, b, f, most=head == "max", nan="NaN" in words)
        return out if exact.is_nan(out, f) and "NaN" in words else out | sign

    function = limit if head in ("min", "max") else plain.get(head)
    if function is None:
        return None

    def apply(*values: int) -> int:
        if "ftz" in words:
            values = tuple(exact.flush(v, f) for v in values)
        out = function(*values)
        if "ftz" in words:
            out = exact.flush(out, f)
        if "sat" in words:
            out = exact.saturate(out, f)
        return exact.relu(out, f) if "relu" in words else out

    if not type_.endswith("x2"):
        return apply

    def both(*values: int) -> int:
        mask = (1 << f.bits) - 1
        low, high = (apply(*(v >> s & mask for v in values)) for s in (0, f.bits))
        return low | high << f.bits

    return both


def same(result: int, expected: int, type_: str) -> bool:
    """Whether bits agree; the payload of a NaN of f64 is nobody's business."""
    if type_ == "f64" and exact.is_nan(expected, FORMATS["f64"]):
        return exact.is_nan(result, FORMATS["f64"])
    return result == expected


def with_modes() -> list[str]:
    """Names of float instructions as PTX spells them, with every mode that they have."""
    names = []
    for head in ("add", "sub", "mul", "fma"):
        names += [
            f"{head}.{m}{ftz}{sat}.f32"
            for m in MODES
            for ftz in ("", ".ftz")
            for sat in ("", ".sat")
        ]
        names += [f"{head}.{m}.f64" for m in MODES]
        names += [f"{head}.rn.f32x2"]
        names += [f"{head}.rn.{t}{x}" for t in ("f16", "bf16") for x in ("", "x2")]
        names += [f"{head}.rn.ftz.sat.f16", f"{head}.rn.ftz.f16x2"]
    names += [
        "add.f32",
        "sub.f32",
        "mul.f32",
        "add.f64",
        "sub.f64",
        "mul.f64",
        "mul.f16",
        "add.bf16",
    ]
    names += ["fma.rn.relu.f16", "fma.rn.relu.f16x2", "fma.rn.relu.bf16", "fma.rn.relu.bf16x2"]
    for head in ("div", "rcp", "sqrt"):
        names += [f"{head}.{m}{ftz}.f32" for m in MODES for ftz in ("", ".ftz")]
        names += [f"{head}.{m}.f64" for m in MODES]
    for head in ("min", "max"):
        names += [f"{head}{n}{x}.f32" for n in ("", ".NaN", ".ftz") for x in ("", ".xorsign.abs")]
        names += [
            f"{head}{n}.{t}" for n in ("", ".NaN") for t in ("f16", "bf16", "f16x2", "bf16x2")
        ]
        names += [f"{head}.f64", f"{head}.NaN.xorsign.abs.f32"]
    for head in ("neg", "abs"):
        names += [
            f"{head}.{t}" for t in ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "ftz.f32")
        ]
    return [*dict.fromkeys(names), "copysign.f32", "copysign.f64"]


def lane_of(name: str) -> str:
    return re.sub(r"\.(rn|rz|rm|rp|ftz|sat|relu|approx|full)\b", "", name)


INTEGERS = [name for name, widths in LANES.items() if integer_reference(name, widths)]
APPROXIMATE = {
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "ex2": lambda x: mpmath.power(2, x),
    "lg2": lambda x: mpmath.log(x, 2),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tanh": mpmath.tanh,
    "rcp": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
}


def test_every_function_is_tested():
    floats = {lane_of(name) for name in with_modes()}
    approximate = {f"{head}.f32" for head in APPROXIMATE} | {"rsqrt.f64"}
    approximate |= {f"{h}.{t}" for h in ("ex2", "tanh") for t in ("f16", "bf16", "f16x2", "bf16x2")}
    assert set(LANES) == set(INTEGERS) | floats | approximate


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, is_on_gpu: bool):
    widths, truth = LANES[name], integer_reference(name, LANES[name])
    columns, literal = sample(name, widths), ""
    if name == "lop3.b32":  # its table is a literal
        columns, literal = columns[:3], "0x96"
        result = apply_instruction(name, widths[:4], columns, literal)
        assert result == [truth(*row, 0x96) for row in zip(*columns, strict=True)]
        return
    result = apply_instruction(name, widths, columns)
    for row, value in zip(zip(*columns, strict=True), result, strict=True):
        if is_on_gpu and not is_specified(name, row):
            continue
        assert value == truth(*row), (name, [hex(v) for v in row], hex(value), hex(truth(*row)))


@pytest.mark.parametrize("name", with_modes())
def test_floats(name: str):
    widths, truth = LANES[lane_of(name)], float_reference(name)
    columns = sample(name, widths)
    result = apply_instruction(name, widths, columns)
    for row, value in zip(zip(*columns, strict=True), result, strict=True):
        expected = truth(*row)
        message = (name, [hex(v) for v in row], hex(value), hex(expected))
        assert same(value, expected, name.rpartition(".")[2]), message


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_values(data: st.DataObject):
    name = data.draw(st.sampled_from([*INTEGERS, *with_modes()]).filter(lambda n: n != "lop3.b32"))
    widths = LANES[lane_of(name)]
    truth = integer_reference(name, widths) if name in LANES else None
    truth = truth or float_reference(name)
    assert truth is not None
    rows = st.tuples(*(st.integers(0, (1 << w) - 1) for w in widths[1:]))
    values = data.draw(st.lists(rows, min_size=1, max_size=8))
    result = apply_instruction(name, widths, [list(c) for c in zip(*values, strict=True)])
    for row, value in zip(values, result, strict=True):
        assert same(value, truth(*row), name.rpartition(".")[2]), (name, row, value, truth(*row))


def distance(result: int, expected: mpmath.mpf, f: Format) -> float:
    """How many units in the last place a number is away from a value."""
    if exact.is_nan(result, f) or exact.is_infinite(result, f):
        return float("inf")
    value = exact.value_of(result, f)
    unit = max(
        abs(expected) * mpmath.mpf(2) ** -f.fraction, mpmath.mpf(2) ** (1 - f.bias - f.fraction)
    )
    return float(abs(mpmath.mpf(value.numerator) / value.denominator - expected) / unit)


def approximate_names() -> list[str]:
    names = [f"{head}.approx{ftz}.f32" for head in APPROXIMATE for ftz in ("", ".ftz")]
    return [name for name in names if name != "tanh.approx.ftz.f32"]  # which PTX does not have


@pytest.mark.parametrize("name", approximate_names())
def test_approximate_f32(name: str):
    f, truth = FORMATS["f32"], APPROXIMATE[name.split(".")[0]]
    numbers = random.Random(name)
    values = [exact.round_value(exact.Fraction(numbers.uniform(0.01, 30)), f) for _ in range(64)]
    result = apply_instruction(name, (32, 32), [values])
    for bits, out in zip(values, result, strict=True):
        value = exact.value_of(bits, f)
        expected = truth(mpmath.mpf(value.numerator) / value.denominator)
        assert distance(out, expected, f) <= 1, (name, hex(bits), hex(out))


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("ex2.approx.f32", {0x7F800000: 0x7F800000, 0xFF800000: 0, 0x43000000: 0x7F800000}),
        ("ex2.approx.ftz.f32", {0xC3000000: 0, 0x00000001: 0x3F800000}),
        ("ex2.approx.f32", {0xC3000000: 0x00200000}),
        ("lg2.approx.f32", {0: 0xFF800000, 0x7F800000: 0x7F800000, 0xBF800000: 0x7FFFFFFF}),
        ("lg2.approx.ftz.f32", {1: 0xFF800000}),
        ("rcp.approx.ftz.f32", {0: 0x7F800000, 0x80000000: 0xFF800000, 0x7F000000: 0}),
        ("rsqrt.approx.f32", {0: 0x7F800000, 0x7F800000: 0, 0xBF800000: 0x7FFFFFFF}),
        ("sqrt.approx.f32", {0x40800000: 0x40000000, 0x80000000: 0x80000000}),
        ("tanh.approx.f32", {0x7F800000: 0x3F800000, 0xFF800000: 0xBF800000}),
    ],
)
def test_approximate_ends(name: str, pairs: dict[int, int]):
    result = apply_instruction(name, (32, 32), [list(pairs)])
    assert [hex(v) for v in result] == [hex(v) for v in pairs.values()]


@pytest.mark.parametrize("name", ["div.approx.f32", "div.full.f32", "div.full.ftz.f32"])
def test_approximate_division(name: str):
    columns = [[0x40400000, 0x3F800000, 0], [0x40000000, 0x40400000, 0x3F800000]]
    assert apply_instruction(name, (32, 32, 32), columns) == [0x3FC00000, 0x3EAAAAAB, 0]


@pytest.mark.parametrize("type_", ["f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("head", ["ex2", "tanh"])
def test_approximate_halves(head: str, type_: str):
    f = FORMATS[type_.removesuffix("x2")]
    ftz = ".ftz" if head == "ex2" and type_.startswith("b") else ""
    width = 32 if type_.endswith("x2") else 16
    values = [exact.round_value(exact.Fraction(i, 7), f) for i in range(-20, 20)]
    raw = [v | v << 16 for v in values] if width == 32 else values
    result = apply_instruction(f"{head}.approx{ftz}.{type_}", (width, width), [raw])
    for bits, out in zip(values, result, strict=True):
        value = exact.value_of(bits, f)
        expected = APPROXIMATE[head](mpmath.mpf(value.numerator) / value.denominator)
        for part in (out & 0xFFFF, out >> 16) if width == 32 else (out,):
            assert distance(part, expected, f) <= 1


def test_rsqrt_f64():
    f = FORMATS["f64"]
    values = [exact.round_value(exact.Fraction(i, 3), f) for i in range(1, 40)]
    for bits, out in zip(
        values, apply_instruction("rsqrt.approx.f64", (64, 64), [values]), strict=True
    ):
        value = exact.value_of(bits, f)
        with mpmath.workdps(40):
            assert (
                distance(out, 1 / mpmath.sqrt(mpmath.mpf(value.numerator) / value.denominator), f)
                <= 2
            )
