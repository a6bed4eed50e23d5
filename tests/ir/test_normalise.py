"""Constants in the newer LLVM syntax reach the older LLVM bit by bit."""

from __future__ import annotations

import re
import struct

import ml_dtypes
import numpy as np
import pytest
from llvmlite import binding

from nova.compiler.llvm.compat import normalise
from nova.ir.bindings import llvm
from nova.ir.context import make_context, parse_module


def _float(value: float) -> str:
    return "0x" + struct.pack(">d", float(np.float32(value))).hex().upper()


CASES = {
    # bits
    "float f0x3F800000": "float 0x3FF0000000000000",
    "float f0xbf800000": "float 0xBFF0000000000000",
    "float f0x7F800000": "float 0x7FF0000000000000",
    "float f0x00000001": "float 0x36A0000000000000",
    "double f0x3FF0000000000000": "double 0x3FF0000000000000",
    "half f0x3C00": "half 0xH3C00",
    "half f0x7e00": "half 0xH7E00",
    "bfloat f0x3F80": "i16 16256",
    # names
    "float +inf": "float 0x7FF0000000000000",
    "float -inf": "float 0xFFF0000000000000",
    "double +inf": "double 0x7FF0000000000000",
    "half -inf": "half 0xHFC00",
    "bfloat +inf": "i16 32640",
    "bfloat -inf": "i16 -128",
    "float +qnan": "float 0x7FF8000000000000",
    "double +qnan": "double 0x7FF8000000000000",
    "float -qnan": "float 0xFFF8000000000000",
    "half +qnan": "half 0xH7E00",
    "bfloat +qnan": "i16 32704",
    # shortest decimals
    "float 0.1": f"float {_float(0.1)}",
    "float 1.000000e+00": "float 0x3FF0000000000000",
    "float -0.0": "float 0x8000000000000000",
    "float 3.4028235e+38": f"float {_float(3.4028235e38)}",
    "float 1e-45": "float 1e-45",
    "float 1.4e-45": "float 0x36A0000000000000",
    "half 0.1": "half 0xH2E66",
    "half 6.5504e+04": "half 0xH7BFF",
    "bfloat 0.1": "i16 15821",
    "double 0.1": "double 0.1",
    "double 1.000000e-300": "double 1.000000e-300",
    # vectors, splats, arrays, several types on a line
    "<2 x float> <float 0.1, float +inf>": f"<2 x float> <float {_float(0.1)}, "
    "float 0x7FF0000000000000>",
    "<4 x float> splat (float 0.1)": f"<4 x float> splat (float {_float(0.1)})",
    "<4 x half> splat (half 0.5)": "<4 x half> splat (half 0xH3800)",
    "[2 x double] [double 0.1, double +inf]": "[2 x double] [double 0.1, "
    "double 0x7FF0000000000000]",
    "call float @f(float 0.5, double 0.5, half 0.5)": "call float @f(float 0x3FE0000000000000, "
    "double 0.5, half 0xH3800)",
    "%1 = fadd float %x, 0.1": f"%1 = fadd float %x, {_float(0.1)}",
    "select i1 %c, bfloat %0, bfloat 0.5": "select i1 %c, i16 %0, i16 16128",
    "<8 x bfloat> splat (bfloat 1.000000e+00)": "<8 x i16> splat (i16 16256)",
    "@llvm.masked.load.v8bf16.p0(": "@llvm.masked.load.v8i16.p0(",
    # names of instructions
    "@llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %0, <32 x bfloat> %1)":
    "@llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %0, <32 x i16> %1)",
    "@llvm.nvvm.fma.rn.bf16(bfloat %0)": "@llvm.nvvm.fma.rn.bf16(i16 %0)",
    # what is no constant
    "br label %float.1.5": "br label %float.1.5",
    "define float @float.0.5()": "define float @float.0.5()",
    "%v0.5 = load float, ptr %p1.5": "%v0.5 = load float, ptr %p1.5",
    "add i32 %a, -7": "add i32 %a, -7",
    'attributes #0 = { "target-cpu"="x86-64-v3" }': 'attributes #0 = { "target-cpu"="x86-64-v3" }',
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_forms(text: str) -> None:
    assert normalise(text) == CASES[text]


def test_lines_do_not_share_types() -> None:
    text = "ret half 0.5\nret double 0.5\n"
    assert normalise(text) == "ret half 0xH3800\nret double 0.5\n"


KINDS = {
    "f64": ("double", np.dtype(np.float64), np.uint64),
    "f32": ("float", np.dtype(np.float32), np.uint32),
    "f16": ("half", np.dtype(np.float16), np.uint16),
    "bf16": ("i16", np.dtype(ml_dtypes.bfloat16), np.uint16),
}


def _values(kind: str) -> np.ndarray:
    """Ordinary, extreme and special numbers, and a few hundred random patterns."""
    _, dtype, bits = KINDS[kind]
    limits = ml_dtypes.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 1e-3, 123456.789, np.inf, -np.inf, np.nan]
    special += [float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)]
    with np.errstate(over="ignore"):
        ordinary = np.array(special).astype(dtype)
    top = int(np.iinfo(bits).max)
    patterns = np.random.default_rng(0).integers(0, top, 300, dtype=np.uint64, endpoint=True)
    raw = patterns.astype(bits).view(dtype)
    # A NaN's payload may change on the way; that it is one may not.
    return np.concatenate([ordinary, raw[np.isfinite(raw.astype(np.float64))]])


@pytest.mark.parametrize("mode", KINDS)
def test_every_constant_survives_the_way_to_the_older_llvm(mode: str) -> None:
    name, dtype, bits = KINDS[mode]
    values = _values(mode)
    digits = values.dtype.itemsize * 2
    functions = "\n".join(
        f"llvm.func @f{i}() -> {mode} {{\n"
        f"  %0 = llvm.mlir.constant(0x{int(v):0{digits}X} : {mode}) : {mode}\n"
        f"  llvm.return %0 : {mode}\n}}"
        for i, v in enumerate(values.view(bits))
    )
    vector = ", ".join(f"0x{int(v):0{digits}X}" for v in values.view(bits)[:8])
    functions += (
        f"\nllvm.func @v() -> vector<8x{mode}> {{\n"
        f"  %0 = llvm.mlir.constant(dense<[{vector}]> : vector<8x{mode}>) : vector<8x{mode}>\n"
        f"  llvm.return %0 : vector<8x{mode}>\n}}"
        f"\nllvm.func @s() -> vector<8x{mode}> {{\n"
        f"  %0 = llvm.mlir.constant(dense<{vector.split(', ')[4]}> : vector<8x{mode}>)"
        f" : vector<8x{mode}>\n"
        f"  llvm.return %0 : vector<8x{mode}>\n}}"
    )
    module = parse_module(functions, "constants.mlir", make_context())
    text = normalise(llvm.translate_module_to_llvmir(module.operation))
    read = str(binding.parse_assembly(text, context=binding.create_context()))
    scalars = re.findall(rf"^  ret {name} (\S+)$", read, re.MULTILINE)
    assert len(scalars) == len(values)
    for constant, value in zip(scalars, values, strict=True):
        _same(_read(constant, dtype, bits), value)
    (elements,) = re.findall(rf"ret <8 x {name}> <(.*)>", read)
    for constant, value in zip(elements.split(", "), values[:8], strict=True):
        _same(_read(constant.removeprefix(f"{name} "), dtype, bits), value)
    (splat,) = re.findall(rf"ret <8 x {name}> splat \({name} (\S+)\)", read)
    _same(_read(splat, dtype, bits), values[4])


def _read(constant: str, dtype: np.dtype, bits: type) -> np.generic:
    """A constant as the older LLVM prints it."""
    if constant.startswith("0xH"):
        return np.array(int(constant[3:], 16), bits).view(dtype)[()]
    if dtype == ml_dtypes.bfloat16:  # an integer with the same bits
        return np.array(int(constant) % 2**16, bits).view(dtype)[()]
    if constant.startswith("0x"):
        value = struct.unpack(">d", bytes.fromhex(constant[2:].zfill(16)))[0]
    else:
        value = float(constant)
    return np.array(value).astype(dtype)[()]


def _same(actual: np.generic, wanted: np.generic) -> None:
    assert actual.tobytes() == wanted.tobytes() or (np.isnan(actual) and np.isnan(wanted)), (
        actual,
        wanted,
    )


def test_a_declaration_stays_unless_its_new_name_is_declared() -> None:
    """A function of Nova may have bf16 in its name; an intrinsic of bf16 becomes one of i16."""
    private = "declare void @nova_pack_lanes_bf16_f32_8(ptr)"
    wide = "declare void @llvm.masked.store.v4i16(<4 x i16>)"
    narrow = "declare void @llvm.masked.store.v4bf16(<4 x bfloat>)"
    assert private in normalise(f"{private}\n")
    assert normalise(f"{wide}\n{narrow}\n").count("declare") == 1
    assert normalise(f"{narrow}\n").count("declare") == 1
