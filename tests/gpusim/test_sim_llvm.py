"""What LLVM emits for arithmetic of all types runs, gives what numpy gives, and assembles."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sim_reference as exact
from ptxas import assemble
from sim_llvm import BITS, DTYPES, Case, emit_cases, emit_ptx

from nova.gpusim import SimMemory, SimModule

INTEGERS, FLOATS = ("i8", "i16", "i32", "i64"), ("half", "bfloat", "float", "double")
SUFFIX = {
    "half": "f16",
    "bfloat": "bf16",
    "float": "f32",
    "double": "f64",
    **{t: t for t in INTEGERS},
}
Truth = Callable[..., Any]


def wide(x):
    """Halves are computed in f32: two roundings give what one would."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x


def unsigned(x):
    return x.view(f"u{x.dtype.itemsize}")


def call(name: str, type_: str, count: int, extra: str = "") -> tuple[str, str]:
    """A call of an intrinsic, and its declaration."""
    arguments = ", ".join(f"{type_} %{v}" for v in "abc"[:count]) + (f", {extra}" if extra else "")
    types = ", ".join([type_] * count) + (f", {extra.split()[0]}" if extra else "")
    intrinsic = f"@llvm.{name}.{SUFFIX[type_]}"
    return f"%out = call {type_} {intrinsic}({arguments})", f"declare {type_} {intrinsic}({types})"


def shift_count(type_: str) -> str:
    return f"%s = and {type_} %b, {BITS[type_] - 1}"


def popcount(x):
    return np.bitwise_count(unsigned(x))


def leading_zeros(x):
    bits = 8 * x.dtype.itemsize
    return np.array([bits - int(v).bit_length() for v in unsigned(x)])


def trailing_zeros(x):
    return popcount(~x & (x - 1))


def reversed_bits(x):
    bits = 8 * x.dtype.itemsize
    return np.array(
        [int(f"{int(v):0{bits}b}"[::-1], 2) for v in unsigned(x)], f"u{x.dtype.itemsize}"
    )


def quotient(a, b):
    return (np.sign(a) * np.sign(b)).astype(a.dtype) * (np.abs(a) // np.abs(b))


def divisor(b):
    return ((b | 1) >> 1) | 1


def count(b):
    return b & (8 * b.dtype.itemsize - 1)


def integer_cases() -> list[tuple[Case, Truth]]:
    rows: list[tuple[Case, Truth]] = []
    for t in INTEGERS:
        plain: dict[str, Truth] = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "and": lambda a, b: a & b,
            "or": lambda a, b: a | b,
            "xor": lambda a, b: a ^ b,
        }
        rows += [(Case(t, (t, t), f"%out = {op} {t} %a, %b"), f) for op, f in plain.items()]
        # Divisors are odd, and small enough that nothing overflows.
        odd = f"%s = or {t} %b, 1\n%d = ashr {t} %s, 1\n%e = or {t} %d, 1"
        rows += [
            (
                Case(t, (t, t), f"{odd}\n%out = sdiv {t} %a, %e"),
                lambda a, b: quotient(a, divisor(b)),
            ),
            (
                Case(t, (t, t), f"{odd}\n%out = srem {t} %a, %e"),
                lambda a, b: a - divisor(b) * quotient(a, divisor(b)),
            ),
            (
                Case(t, (t, t), f"{odd}\n%out = udiv {t} %a, %e"),
                lambda a, b: unsigned(a) // unsigned(divisor(b)),
            ),
            (
                Case(t, (t, t), f"{odd}\n%out = urem {t} %a, %e"),
                lambda a, b: unsigned(a) % unsigned(divisor(b)),
            ),
        ]
        shifts: dict[str, Truth] = {
            "shl": lambda a, b: a << count(b),
            "lshr": lambda a, b: unsigned(a) >> unsigned(count(b)),
            "ashr": lambda a, b: a >> count(b),
        }
        rows += [
            (Case(t, (t, t), f"{shift_count(t)}\n%out = {op} {t} %a, %s"), f)
            for op, f in shifts.items()
        ]
        called: dict[str, tuple[int, str, Truth]] = {
            "smin": (2, "", np.minimum),
            "smax": (2, "", np.maximum),
            "umin": (2, "", lambda a, b: np.minimum(unsigned(a), unsigned(b))),
            "umax": (2, "", lambda a, b: np.maximum(unsigned(a), unsigned(b))),
            "abs": (1, "i1 false", np.abs),
            "ctpop": (1, "", popcount),
            "ctlz": (1, "i1 false", leading_zeros),
            "cttz": (1, "i1 false", trailing_zeros),
            "bitreverse": (1, "", reversed_bits),
            "fshl": (3, "", lambda a, b, c: funnel(a, b, c, left=True)),
            "fshr": (3, "", lambda a, b, c: funnel(a, b, c, left=False)),
            "uadd.sat": (
                2,
                "",
                lambda a, b: np.where(unsigned(a) + unsigned(b) < unsigned(a), -1, a + b),
            ),
        }
        for name, (arity, extra, truth) in called.items():
            line, declare = call(name, t, arity, extra)
            rows.append((Case(t, (t,) * arity, line, declare), truth))
        comparisons: dict[str, Truth] = {
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "slt": lambda a, b: a < b,
            "sle": lambda a, b: a <= b,
            "sgt": lambda a, b: a > b,
            "sge": lambda a, b: a >= b,
            "ult": lambda a, b: unsigned(a) < unsigned(b),
            "ule": lambda a, b: unsigned(a) <= unsigned(b),
            "ugt": lambda a, b: unsigned(a) > unsigned(b),
            "uge": lambda a, b: unsigned(a) >= unsigned(b),
        }
        for name, truth in comparisons.items():
            line = f"%x = icmp {name} {t} %a, %b\n%out = zext i1 %x to i8"
            rows.append((Case("i8", (t, t), line), truth))
            chosen = f"%x = icmp {name} {t} %a, %b\n%out = select i1 %x, {t} %b, {t} %a"
            rows.append((Case(t, (t, t), chosen), lambda a, b, f=truth: np.where(f(a, b), b, a)))
    high = "%x = sext i32 %a to i64\n%y = sext i32 %b to i64\n%z = mul i64 %x, %y\n"
    wide_sum = "%x = sext i32 %b to i64\n%y = sext i32 %c to i64\n%z = mul i64 %x, %y\n"
    wide_sum += "%out = add i64 %z, %a"
    rows += [
        (
            Case("i64", ("i32", "i32"), high + "%out = add i64 %z, 0"),
            lambda a, b: a.astype("i8") * b,
        ),
        (
            Case("i32", ("i32", "i32"), high + "%w = lshr i64 %z, 32\n%out = trunc i64 %w to i32"),
            lambda a, b: (a.astype("i8") * b >> 32).astype("i4"),
        ),
        (
            Case("i64", ("i64", "i32", "i32"), wide_sum),
            lambda a, b, c: a + b.astype("i8") * c,
        ),
    ]
    return rows


def funnel(a, b, c, *, left: bool):
    bits = 8 * a.dtype.itemsize
    out = []
    for x, y, n in zip(unsigned(a), unsigned(b), unsigned(c), strict=True):
        both, shift = int(x) << bits | int(y), int(n) % bits
        out.append((both << shift >> bits if left else both >> shift) & ((1 << bits) - 1))
    return np.array(out, f"u{a.dtype.itemsize}")


def fused(a, b, c):
    """a * b + c, rounded once."""
    if a.dtype != np.float64:
        return a.astype("f8") * b.astype("f8") + c.astype("f8")
    rows = zip(a.view("u8"), b.view("u8"), c.view("u8"), strict=True)
    bits = [exact.fma(*map(int, row), exact.FORMATS["f64"]) for row in rows]
    return np.array(bits, "u8").view("f8")


def float_cases() -> list[tuple[Case, Truth]]:
    rows: list[tuple[Case, Truth]] = []
    for t in FLOATS:
        plain: dict[str, Truth] = {
            "fadd": lambda a, b: wide(a) + wide(b),
            "fsub": lambda a, b: wide(a) - wide(b),
            "fmul": lambda a, b: wide(a) * wide(b),
            "fdiv": lambda a, b: wide(a) / wide(b),
        }
        rows += [(Case(t, (t, t), f"%out = {op} {t} %a, %b"), f) for op, f in plain.items()]
        rows.append((Case(t, (t,), f"%out = fneg {t} %a"), lambda a: -a))
        called: dict[str, tuple[int, Truth]] = {
            "fabs": (1, np.abs),
            "sqrt": (1, lambda a: np.sqrt(np.abs(wide(a)))),
            "minnum": (2, lambda a, b: np.fmin(wide(a), wide(b))),
            "maxnum": (2, lambda a, b: np.fmax(wide(a), wide(b))),
            "minimum": (2, lambda a, b: np.minimum(wide(a), wide(b))),
            "maximum": (2, lambda a, b: np.maximum(wide(a), wide(b))),
            "copysign": (2, lambda a, b: np.copysign(wide(a), wide(b))),
            "floor": (1, lambda a: np.floor(wide(a))),
            "ceil": (1, lambda a: np.ceil(wide(a))),
            "trunc": (1, lambda a: np.trunc(wide(a))),
            "rint": (1, lambda a: np.rint(wide(a))),
            "roundeven": (1, lambda a: np.rint(wide(a))),
            "fma": (3, fused),
        }
        for name, (arity, truth) in called.items():
            line, declare = call(name, t, arity)
            if name == "sqrt":
                fabs, more = call("fabs", t, 1)
                line = fabs.replace("%out", "%x") + "\n" + line.replace("%a", "%x")
                declare += "\n" + more
            rows.append((Case(t, (t,) * arity, line, declare), truth))
        comparisons: dict[str, Truth] = {
            "oeq": lambda a, b: a == b,
            "une": lambda a, b: a != b,
            "olt": lambda a, b: a < b,
            "ole": lambda a, b: a <= b,
            "ogt": lambda a, b: a > b,
            "oge": lambda a, b: a >= b,
            "ult": lambda a, b: ~(a >= b),
            "uge": lambda a, b: ~(a < b),
            "ueq": lambda a, b: ~((a < b) | (a > b)),
            "one": lambda a, b: (a < b) | (a > b),
            "ord": lambda a, b: (a == a) & (b == b),
            "uno": lambda a, b: (a != a) | (b != b),
        }
        for name, truth in comparisons.items():
            line = f"%x = fcmp {name} {t} %a, %b\n%out = zext i1 %x to i8"
            rows.append((Case("i8", (t, t), line), lambda a, b, f=truth: f(wide(a), wide(b))))
    for t in ("half", "float"):
        line, declare = call("exp2", t, 1)
        rows.append((Case(t, (t,), line, declare), lambda a: np.exp2(a.astype("f8"))))
    return rows


def conversion_cases() -> list[tuple[Case, Truth]]:
    rows: list[tuple[Case, Truth]] = []
    for a in INTEGERS:
        for b in INTEGERS:
            if BITS[a] < BITS[b]:
                rows.append((Case(b, (a,), f"%out = sext {a} %a to {b}"), lambda x: x))
                rows.append((Case(b, (a,), f"%out = zext {a} %a to {b}"), unsigned))
            elif BITS[a] > BITS[b]:
                rows.append((Case(b, (a,), f"%out = trunc {a} %a to {b}"), lambda x: x))
        for f in FLOATS:
            rows.append((Case(f, (a,), f"%out = sitofp {a} %a to {f}"), lambda x: x))
            rows.append((Case(f, (a,), f"%out = uitofp {a} %a to {f}"), unsigned))
            small = f"%s = fptosi {f} %a to {a}\n%out = add {a} %s, 0"
            rows.append((Case(a, (f,), small), lambda x: np.trunc(x.astype("f8"))))
            saturated = f"%out = call {a} @llvm.fptosi.sat.{a}.{SUFFIX[f]}({f} %a)"
            declare = f"declare {a} @llvm.fptosi.sat.{a}.{SUFFIX[f]}({f})"
            rows.append((Case(a, (f,), saturated, declare), lambda x: np.trunc(x.astype("f8"))))
    for f in FLOATS:
        for g in FLOATS:
            if BITS[f] < BITS[g]:
                rows.append((Case(g, (f,), f"%out = fpext {f} %a to {g}"), lambda x: x))
            elif BITS[f] > BITS[g]:
                rows.append((Case(g, (f,), f"%out = fptrunc {f} %a to {g}"), lambda x: x))
    return rows


def operands(case: Case, number: int) -> list[Any]:
    random = np.random.default_rng(number)
    arrays = []
    for t in case.ins:
        if t in INTEGERS:
            arrays.append(
                random.integers(0, 256, 64 * BITS[t] // 8, dtype=np.uint8).view(DTYPES[t])
            )
        else:
            values = random.uniform(-100, 100, 64)
            values[:8] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-3]
            arrays.append(random.permutation(values).astype(DTYPES[t]))
    return arrays


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("make", [integer_cases, float_cases, conversion_cases])
def test_arithmetic(make: Callable[[], list[tuple[Case, Truth]]], arch: str, is_on_gpu: bool):
    rows = make()
    text = emit_cases([case for case, _ in rows], arch)
    module = SimModule(text)
    for number, (case, truth) in enumerate(rows):
        arrays = operands(case, number)
        memory = SimMemory()
        pointers = [memory.alloc(64 * BITS[case.out] // 8), *map(memory.put, arrays)]
        arguments = struct.pack(f"<{len(pointers)}Q", *pointers)
        module.launch(f"k{number}", (1,), (64,), 0, arguments, memory)
        result = memory.array(pointers[0], 64, DTYPES[case.out])
        with np.errstate(all="ignore"):
            expected = np.asarray(truth(*arrays)).astype(DTYPES[case.out])
        message = f"{case.lines}\n{text}"[:400]
        if "llvm.exp2.f16" in str(case.lines):  # approximate on a device
            np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-7, err_msg=message)
        elif is_on_gpu and "llvm.exp2.f32" in str(case.lines):  # ex2.approx: 2 ulp by PTX
            np.testing.assert_array_max_ulp(result, expected, maxulp=2)
        else:
            np.testing.assert_array_equal(result, expected, err_msg=message)
    assemble(text, arch)


PAIRS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare <2 x half> @llvm.fma.v2f16(<2 x half>, <2 x half>, <2 x half>)
declare <2 x bfloat> @llvm.fma.v2bf16(<2 x bfloat>, <2 x bfloat>, <2 x bfloat>)
declare <2 x half> @llvm.maximum.v2f16(<2 x half>, <2 x half>)
declare <2 x i16> @llvm.smax.v2i16(<2 x i16>, <2 x i16>)
define ptx_kernel void @k(ptr addrspace(1) align 16 %p, ptr addrspace(1) align 16 %q) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %h0 = getelementptr <8 x half>, ptr addrspace(1) %p, i32 %i
  %h = load <8 x half>, ptr addrspace(1) %h0, align 16
  %a = shufflevector <8 x half> %h, <8 x half> poison, <2 x i32> <i32 0, i32 1>
  %b = shufflevector <8 x half> %h, <8 x half> poison, <2 x i32> <i32 2, i32 3>
  %c = shufflevector <8 x half> %h, <8 x half> poison, <2 x i32> <i32 4, i32 5>
  %r0 = call <2 x half> @llvm.fma.v2f16(<2 x half> %a, <2 x half> %b, <2 x half> %c)
  %r1 = fadd <2 x half> %a, %b
  %r2 = call <2 x half> @llvm.maximum.v2f16(<2 x half> %a, <2 x half> %b)
  %less = fcmp olt <2 x half> %a, %b
  %r3 = select <2 x i1> %less, <2 x half> %c, <2 x half> %a
  %x = bitcast <2 x half> %a to <2 x i16>
  %y = bitcast <2 x half> %b to <2 x i16>
  %s = add <2 x i16> %x, %y
  %m = call <2 x i16> @llvm.smax.v2i16(<2 x i16> %s, <2 x i16> %y)
  %r4 = bitcast <2 x i16> %m to <2 x half>
  %u = bitcast <2 x half> %a to <2 x bfloat>
  %v = bitcast <2 x half> %b to <2 x bfloat>
  %w = call <2 x bfloat> @llvm.fma.v2bf16(<2 x bfloat> %u, <2 x bfloat> %v, <2 x bfloat> %u)
  %r5 = bitcast <2 x bfloat> %w to <2 x half>
  %o = getelementptr <12 x half>, ptr addrspace(1) %q, i32 %i
  %t0 = shufflevector <2 x half> %r0, <2 x half> %r1, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %t1 = shufflevector <2 x half> %r2, <2 x half> %r3, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %t2 = shufflevector <2 x half> %r4, <2 x half> %r5, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  store <4 x half> %t0, ptr addrspace(1) %o, align 8
  %o1 = getelementptr <4 x half>, ptr addrspace(1) %o, i32 1
  store <4 x half> %t1, ptr addrspace(1) %o1, align 8
  %o2 = getelementptr <4 x half>, ptr addrspace(1) %o, i32 2
  store <4 x half> %t2, ptr addrspace(1) %o2, align 8
  ret void
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_pairs(arch: str):
    text = emit_ptx(PAIRS, arch)
    data = np.random.default_rng(2).uniform(-4, 4, (32, 8)).astype(np.float16)
    memory = SimMemory()
    # An array of <12 x half> is laid out in steps of 32 bytes.
    pointers = [memory.put(data), memory.put(np.zeros((32, 16), np.float16))]
    SimModule(text).launch("k", (1,), (32,), 0, struct.pack("<2Q", *pointers), memory)
    out = memory.array(pointers[1], (32, 16), np.float16)
    a, b, c = (data[:, i : i + 2] for i in (0, 2, 4))
    np.testing.assert_array_equal(out[:, 0:2], fused(a, b, c).astype("f2"))
    np.testing.assert_array_equal(out[:, 2:4], a + b)
    np.testing.assert_array_equal(out[:, 4:6], np.maximum(a, b))
    np.testing.assert_array_equal(out[:, 6:8], np.where(a < b, c, a))
    words = [np.ascontiguousarray(x).view(np.int16) for x in (a, b)]
    np.testing.assert_array_equal(
        out[:, 8:10].copy().view(np.int16), np.maximum(words[0] + words[1], words[1])
    )
    halves = [np.ascontiguousarray(x).view(DTYPES["bfloat"]).astype("f8") for x in (a, b)]
    truth = (halves[0] * halves[1] + halves[0]).astype(DTYPES["bfloat"])
    np.testing.assert_array_equal(out[:, 10:12].copy().view(np.int16), truth.view(np.int16))
    assemble(text, arch)


ATOMIC = {
    "add": ("i32", np.add),
    "sub": ("i64", np.subtract),
    "and": ("i32", np.bitwise_and),
    "nand": ("i32", lambda a, b: ~(a & b)),
    "or": ("i64", np.bitwise_or),
    "xor": ("i32", np.bitwise_xor),
    "max": ("i64", np.maximum),
    "min": ("i32", np.minimum),
    "fadd": ("float", np.add),
    "fmax": ("float", np.fmax),
    "uinc_wrap": ("i32", lambda a, b: np.where(a >= b, 0, a + 1)),
}
# Of two bytes only these: LLVM 22 takes the rest (fsub, fmin, fmax, max, min, and fadd of bf16 for
# sm_80) out of the loop that should compute them again.
MORE_ATOMIC = [("fadd", ("double", np.add)), ("fadd", ("half", np.add)), ("add", ("i16", np.add))]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "row"), [*ATOMIC.items(), *MORE_ATOMIC])
def test_atomics(name: str, row: tuple[str, Truth], arch: str):
    """One thread after the other, on the same place; some are loops of compare-and-swap."""
    type_, truth = row
    ir = f"""
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @k(ptr addrspace(1) align 16 %p, ptr addrspace(1) align 16 %q) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %a = getelementptr {type_}, ptr addrspace(1) %q, i32 %i
  %v = load {type_}, ptr addrspace(1) %a
  %old = atomicrmw {name} ptr addrspace(1) %p, {type_} %v monotonic
  ret void
}}"""
    text = emit_ptx(ir, arch)
    dtype = DTYPES[type_]
    values = np.random.default_rng(3).integers(0, 100, 16).astype(dtype)
    memory = SimMemory()
    pointers = [memory.put(np.full(4, 7).astype(dtype)), memory.put(values)]
    SimModule(text).launch("k", (1,), (16,), 0, struct.pack("<2Q", *pointers), memory)
    total = np.array(7).astype(dtype)
    for value in values:
        total = np.asarray(truth(total, value)).astype(dtype)
    assert memory.array(pointers[0], 4, dtype).tolist() == [total, 7, 7, 7]
    assemble(text, arch)


def test_a_switch_through_a_table():
    arms = "\n".join(f"i32 {i}, label %l{i}" for i in range(8))
    blocks = "\n".join(f"l{i}:\n%v{i} = mul i32 %i, {i * i + 3}\nbr label %end" for i in range(8))
    phis = ", ".join(f"[%v{i}, %l{i}]" for i in range(8))
    ir = f"""
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0()
define ptx_kernel void @k(ptr addrspace(1) align 16 %p) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %s = and i32 %i, 15
  switch i32 %s, label %other [ {arms} ]
{blocks}
other:
  call void @llvm.nvvm.barrier0()
  br label %end
end:
  %r = phi i32 {phis}, [7, %other]
  %a = getelementptr i32, ptr addrspace(1) %p, i32 %i
  store i32 %r, ptr addrspace(1) %a
  ret void
}}"""
    text = emit_ptx(ir.replace("  call void @llvm.nvvm.barrier0()\n", ""))
    memory = SimMemory()
    address = memory.alloc(128)
    SimModule(text).launch("k", (1,), (32,), 0, address.to_bytes(8, "little"), memory)
    lanes = np.arange(32)
    low = lanes % 16
    expected = np.where(low < 8, lanes * (low * low + 3), 7)
    np.testing.assert_array_equal(memory.array(address, 32, "i4"), expected)
