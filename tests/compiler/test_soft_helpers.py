"""The functions that LLVM calls for lack of an instruction: each against what it stands for."""

from __future__ import annotations

import ctypes
import os
import random

import numpy as np
import pytest
from native_code import load_objects
from processors import runnable
from roundings import SHORT, boundaries

import nova
from nova.artifact.elf.reader import read_object
from nova.compiler.cpu.soft_float import HELPERS, helper_unit
from nova.compiler.llvm.machine_code import Unit, compile_objects
from nova.core.targets import parse_target

on_x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="runs x86-64 code")
TARGET = parse_target("x86_64")
BITS = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}


def loop(operation: str, source: str, target: str) -> str:
    """A function that applies an instruction to each element of an array."""
    return f"""
define void @run(ptr %in, ptr %out, i64 %n) {{
begin:
  br label %loop
loop:
  %i = phi i64 [ 0, %begin ], [ %next, %loop ]
  %p = getelementptr {source}, ptr %in, i64 %i
  %q = getelementptr {target}, ptr %out, i64 %i
  %x = load {source}, ptr %p
  %y = {operation} {source} %x to {target}
  store {target} %y, ptr %q
  %next = add i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret void
}}
"""


def convert(operation: str, source: str, target: str, helper: str, values, dtype):
    """`values` by an instruction that LLVM has to call `helper` for, in code for plain x86-64."""
    text = loop(operation, source, target)
    [code] = compile_objects([Unit(text, unroll=False, vectorize=False)], TARGET)
    assert helper in undefined(code)
    unit = helper_unit([code])
    assert unit is not None
    [helpers] = compile_objects([unit], TARGET)
    assert not undefined(helpers)
    values = np.ascontiguousarray(values)
    out = np.empty(values.shape, dtype)
    run = load_objects([code, helpers]).run
    run(
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_int64(values.size),
    )
    return out


def undefined(data: bytes) -> set[str]:
    file = read_object(data, "the object")
    return {name for i, name in file.names.items() if name not in file.defined}


@on_x86_64
@pytest.mark.parametrize(
    "short, wide, helper",
    [
        ("f16", np.float32, "__truncsfhf2"),
        ("f16", np.float64, "__truncdfhf2"),
        ("bf16", np.float32, "__truncsfbf2"),
        ("bf16", np.float64, "__truncdfbf2"),
    ],
)
def test_every_boundary_rounds_once(short, wide, helper):
    values, expected = boundaries(short, wide)
    source = {np.float32: "float", np.float64: "double"}[wide]
    target = {"f16": "half", "bf16": "bfloat"}[short]
    actual = convert("fptrunc", source, target, helper, values, SHORT[short]).view(np.uint16)
    wrong = actual != expected
    assert not wrong.any(), (values[wrong][:5], actual[wrong][:5])
    nans = np.array([np.nan, -np.nan], wide)
    actual = convert("fptrunc", source, target, helper, nans, SHORT[short])
    assert np.isnan(actual.astype(np.float32)).all()
    assert list(np.signbit(actual.astype(np.float32))) == [False, True]


@on_x86_64
def test_random_doubles_round_as_numpy_does():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**64, 200_000, np.uint64).view(np.float64)
    values = np.concatenate([values, rng.uniform(-1, 1, 200_000) * 2.0 ** rng.integers(-30, 18)])
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16)
    actual = convert("fptrunc", "double", "half", "__truncdfhf2", values, np.float16)
    identical = actual.view(np.uint16) == expected.view(np.uint16)
    assert (identical | (np.isnan(values) & np.isnan(actual))).all()


@on_x86_64
def test_every_half_is_widened():
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    actual = convert("fpext", "half", "float", "__extendhfsf2", halves, np.float32)
    expected = halves.astype(np.float32)
    np.testing.assert_array_equal(actual, expected)
    assert (np.signbit(actual) == np.signbit(expected)).all()


@on_x86_64
@pytest.mark.parametrize("name", ["__divti3", "__modti3", "__udivti3", "__umodti3"])
def test_wide_divisions(name):
    instruction = {"d": "sdiv", "m": "srem", "ud": "udiv", "um": "urem"}
    operation = instruction[name[2 : 4 if name[2] == "u" else 3]]
    text = f"""
define void @run(ptr %x, ptr %y, ptr %out) {{
  %a = load i128, ptr %x
  %b = load i128, ptr %y
  %q = {operation} i128 %a, %b
  store i128 %q, ptr %out
  ret void
}}
"""
    [code] = compile_objects([Unit(text, unroll=False)], TARGET)
    assert undefined(code) == {name}
    unit = helper_unit([code])
    assert unit is not None
    run = load_objects([code, *compile_objects([unit], TARGET)]).run
    signed = operation[0] == "s"
    chosen = random.Random(0)
    edges = [1, 2, 3, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**127 - 1]
    pairs = [(x, y) for x in [0, *edges] for y in edges]
    pairs += [
        (chosen.getrandbits(chosen.randint(1, 127)), chosen.getrandbits(chosen.randint(1, 126)) + 1)
        for _ in range(300)
    ]
    if signed:
        pairs += [(-x, y) for x, y in pairs] + [(x, -y) for x, y in pairs]
    else:
        pairs += [((1 << 128) - 1 - x, y) for x, y in pairs]
    for x, y in pairs:
        quotient = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
        expected = quotient if "div" in operation else x - quotient * y
        out = bytearray(16)
        positions = [
            (ctypes.c_char * 16).from_buffer(data)
            for data in (
                bytearray((x % 2**128).to_bytes(16, "little")),
                bytearray((y % 2**128).to_bytes(16, "little")),
                out,
            )
        ]
        run(*positions)
        assert int.from_bytes(out, "little") == expected % 2**128, (x, y)


def test_nothing_is_added_where_nothing_is_called():
    [code] = compile_objects([Unit("define void @f() { ret void }", unroll=False)], TARGET)
    assert helper_unit([code]) is None


def test_every_helper_is_code_on_every_architecture():
    """No function is made of itself: what LLVM does with its body calls nothing."""
    for name in ("x86_64", "x86_64-v3", "sapphirerapids", "aarch64", "apple-m1"):
        unit = helper_unit([" ".join(HELPERS).encode()])
        assert unit is not None
        [data] = compile_objects([unit], parse_target(name))
        assert not undefined(data), name
        assert set(HELPERS) <= set(read_object(data, name).defined)


@pytest.mark.parametrize("target", runnable("x86_64", "x86_64-v2", "x86_64-v3"))
def test_ops_of_halves_that_llvm_narrows_from_doubles(target):
    """LLVM moves the narrowing of asinh's last step before a copysign of f64."""
    for shape in ((), (1,), (67,)):
        data = np.linspace(-3, 3, int(np.prod(shape, dtype=int))).astype(np.float16)
        X = nova.tensor(data.reshape(shape), name="X")
        program = nova.compile(nova.tanh(nova.asinh(X)), inputs=[X], target=target)
        expected = np.tanh(np.arcsinh(X.data.astype(np.float64)))
        np.testing.assert_allclose(program.run([X.data]), expected, rtol=2e-3, atol=1e-3)
        complete = nova.tensor(np.full(shape, 2, np.int8), name="whole")
        actual = nova.compile(nova.asinh(complete), inputs=[complete], target=target).run(
            [complete.data]
        )
        np.testing.assert_allclose(actual, np.arcsinh(np.full(shape, 2.0)), rtol=1e-3)
