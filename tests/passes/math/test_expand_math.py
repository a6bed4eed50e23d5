"""`expand-math`: error bounds, edge cases, and that loops over it vectorize without any call."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as ll
import mpmath as mp
import numpy as np
import pytest
import torch
from native_code import address_of, load_objects
from processors import runs_here

import nova
from nova.compiler.llvm.compat import normalise
from nova.errors import LoweringError
from nova.ir.bindings import ir, llvm, passmanager
from nova.ir.mathlib import EXPANSIONS
from nova.passes.math.expand_math import ExpandMath

INF, NAN = np.inf, np.nan
LOWERING = (
    "builtin.module(convert-scf-to-cf,finalize-memref-to-llvm,convert-math-to-llvm,"
    "convert-arith-to-llvm,convert-index-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts)"
)
DTYPES = {"f32": np.float32, "f64": np.float64}


# --- a loop around one op, compiled in this process -----------------------------------------------


# Ops that are written otherwise than `%r = math.name %x0, ... : kind`.
BODIES = {
    "cube": "%power = arith.constant -3 : i32\n%r = math.fpowi %x0, %power : {kind}, i32",
    "sine": "%r, %c = math.sincos %x0 : {kind}",
    "cosine": "%s, %r = math.sincos %x0 : {kind}",
}


def loop(op: str, kind: str, arity: int) -> str:
    operands = range(arity)
    plain = f"%r = math.{op} {', '.join(f'%x{i}' for i in operands)} : {kind}"
    body = BODIES[op].format(kind=kind) if op in BODIES else plain
    arguments = "".join(f"%a{i}: memref<?x{kind}>, " for i in operands)
    loads = "\n".join(f"%x{i} = memref.load %a{i}[%i] : memref<?x{kind}>" for i in operands)
    return f"""
      func.func @k({arguments}%out: memref<?x{kind}>) {{
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %n = memref.dim %out, %c0 : memref<?x{kind}>
        scf.for %i = %c0 to %n step %c1 {{
          {loads}
          {body}
          memref.store %r, %out[%i] : memref<?x{kind}>
        }}
        return
      }}"""


@dataclass(frozen=True)
class Compiled:
    call: Callable[..., np.ndarray]
    optimized: str
    assembly: str


def to_llvm(op: str, kind: str, arity: int, options: ExpandMath) -> ll.ModuleRef:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(loop(op, kind, arity))
        options.run(module)
        module.operation.verify()
        passmanager.PassManager.parse(LOWERING).run(module.operation)
        text = llvm.translate_module_to_llvmir(module.operation)
    return ll.parse_assembly(normalise(text))


def optimize(module: ll.ModuleRef, machine: ll.TargetMachine) -> None:
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    tuning = ll.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    builder = ll.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)


@functools.cache
def compile_loop(op: str, kind: str, arity: int = 1, *, baseline: bool = False) -> Compiled:
    """Compiled for this machine, or for the oldest x86-64: no FMA, no rounding instruction."""
    ll.initialize_native_target()
    ll.initialize_native_asmprinter()
    parsed = to_llvm(op, kind, arity, ExpandMath(native_rounding=not baseline))
    machine = ll.Target.from_default_triple().create_target_machine(
        cpu="x86-64" if baseline else ll.get_host_cpu_name(),
        features="" if baseline else ll.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
    )
    optimize(parsed, machine)
    optimized, assembly = str(parsed), machine.emit_assembly(parsed)
    code = load_objects([machine.emit_object(parsed)])
    descriptor = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3]
    function = ctypes.CFUNCTYPE(None, *descriptor * (arity + 1))(address_of(code, "k"))

    def call(*inputs: np.ndarray, _code=code) -> np.ndarray:
        arrays = [np.ascontiguousarray(x, DTYPES[kind]) for x in inputs]
        arrays.append(np.empty_like(arrays[0]))
        function(*[v for a in arrays for v in (a.ctypes.data, a.ctypes.data, 0, a.size, 1)])
        return arrays[-1]

    return Compiled(call, optimized, assembly)


# --- f32: over the bit patterns, against f64 ------------------------------------------------------


def with_torch(function: Callable) -> Callable:
    return lambda x: function(torch.from_numpy(x)).numpy()


# name: (reference in f64, bound in ulp)
UNARY_32: dict[str, tuple[Callable, float]] = {
    "acos": (np.arccos, 1.2),
    "acosh": (np.arccosh, 0.51),
    "asin": (np.arcsin, 1.4),
    "asinh": (np.arcsinh, 0.51),
    "atan": (np.arctan, 1.9),
    "atanh": (np.arctanh, 0.51),
    "cbrt": (np.cbrt, 0.9),
    "cos": (np.cos, 0.9),
    "cosh": (np.cosh, 1.6),
    "erf": (with_torch(torch.erf), 1.2),
    "erfc": (with_torch(torch.erfc), 0.51),
    "exp": (np.exp, 1.2),
    "exp2": (np.exp2, 1.0),
    "expm1": (np.expm1, 1.7),
    "log": (np.log, 1.0),
    "log10": (np.log10, 1.2),
    "log1p": (np.log1p, 1.7),
    "log2": (np.log2, 1.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6),
    "sin": (np.sin, 0.9),
    "sinh": (np.sinh, 1.7),
    "tan": (np.tan, 1.8),
    "tanh": (np.tanh, 1.5),
}
HOT = ("exp", "exp2", "expm1", "tanh", "erf", "log", "log1p", "rsqrt")


def worst_ulp_32(actual: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in ulp; inf where one is NaN or infinite and the other is not."""
    expected = exact.astype(np.float32)
    identical = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    identical |= np.isnan(actual) & np.isnan(expected)
    both = np.isfinite(actual) & np.isfinite(expected)
    size = np.maximum(np.abs(exact), 2.0**-126)
    ulp = np.exp2(np.floor(np.log2(size)) - 23)
    error = np.where(both, np.abs(actual.astype(np.float64) - exact) / ulp, INF)
    # A zero of the wrong sign is wrong, too.
    error[both & (actual == 0) & (expected == 0) & ~identical] = INF
    error[~both & identical] = 0
    return float(error.max())


def measure_32(name: str, bits: np.ndarray, *, baseline: bool = False) -> float:
    x = bits.view(np.float32)
    with np.errstate(all="ignore"):
        return worst_ulp_32(
            compile_loop(name, "f32", baseline=baseline).call(x),
            UNARY_32[name][0](x.astype(np.float64)),
        )


@pytest.mark.parametrize("name", UNARY_32)
def test_f32_error_is_bounded(name: str) -> None:
    bits = np.arange(0, 2**32, 2003, dtype=np.uint64).astype(np.uint32)
    assert measure_32(name, bits) <= UNARY_32[name][1]


@pytest.mark.parametrize("name", UNARY_32)
def test_f32_error_is_bounded_without_fma(name: str) -> None:
    bits = np.arange(0, 2**32, 7919, dtype=np.uint64).astype(np.uint32)
    assert measure_32(name, bits, baseline=True) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
@pytest.mark.parametrize("name", UNARY_32)
def test_f32_error_is_bounded_everywhere(name: str, part: int) -> None:
    for start in range(part << 28, (part + 1) << 28, 2**22):
        bits = np.arange(start, start + 2**22, dtype=np.uint64).astype(np.uint32)
        assert measure_32(name, bits) <= 2.0, f"from bits {start:#x}"


@pytest.mark.parametrize(("name", "reference"), [("powf", np.power), ("atan2", np.arctan2)])
def test_f32_binary_error_is_bounded(name: str, reference: Callable) -> None:
    random = np.random.default_rng(7)
    a, c = (
        random.integers(0, 2**32, 1_000_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
        for _ in range(2)
    )
    with np.errstate(all="ignore"):
        if name == "powf":
            # Exponents for which most results are finite.
            c = (random.uniform(-150, 130, a.size) / np.log2(np.abs(a))).astype(np.float32)
        exact = reference(a.astype(np.float64), c.astype(np.float64))
        assert worst_ulp_32(compile_loop(name, "f32", 2).call(a, c), exact) <= 0.51


# --- f64: against mpmath --------------------------------------------------------------------------


def powers(low: float, high: float, *, signed: bool = True) -> np.ndarray:
    random = np.random.default_rng(3)
    sign = random.choice([-1, 1], 700) if signed else 1
    return np.exp2(random.uniform(low, high, 700)) * sign


def uniform(low: float, high: float) -> np.ndarray:
    return np.random.default_rng(5).uniform(low, high, 700)


def near_quarters() -> np.ndarray:
    return np.round(np.concatenate([uniform(-1e6, 1e6), uniform(-6e8, 6e8)])) * (np.pi / 2)


ANGLES = [powers(-1074, 30), uniform(-20, 20), near_quarters()]
NEAR_ONE = 1 - powers(-53, -1, signed=False)
POSITIVE = [powers(-1074, 1024, signed=False), uniform(0.4, 3)]

# name: (reference, arguments, bound in ulp)
UNARY_64: dict[str, tuple[Callable, list[np.ndarray], float]] = {
    "acos": (mp.acos, [uniform(-1, 1), powers(-1074, 0), NEAR_ONE], 1.5),
    "acosh": (mp.acosh, [powers(0, 1024, signed=False), 1 + powers(-52, 3, signed=False)], 2.2),
    "asin": (mp.asin, [uniform(-1, 1), powers(-1074, 0), NEAR_ONE], 1.5),
    "asinh": (mp.asinh, [powers(-1074, 1024), uniform(-3, 3)], 1.8),
    "atan": (mp.atan, [powers(-1074, 1024), uniform(-3, 3)], 1.5),
    "atanh": (mp.atanh, [uniform(-1, 1), powers(-1074, 0), NEAR_ONE], 1.8),
    "cbrt": (mp.cbrt, [powers(-1074, 1024, signed=False), uniform(0, 10)], 0.9),
    "cos": (mp.cos, ANGLES, 1.0),
    "cosh": (mp.cosh, [uniform(-710.4, 710.4), uniform(-3, 3)], 1.6),
    "erf": (mp.erf, [uniform(-6, 6), uniform(-1, 1), powers(-1074, 3)], 1.5),
    "erfc": (mp.erfc, [uniform(-6, 27.3), uniform(-1, 1), uniform(26, 27.3)], 3.5),
    "exp": (mp.exp, [uniform(-745, 710), uniform(-2, 2), powers(-60, 3)], 1.2),
    "exp2": (lambda x: mp.mpf(2) ** x, [uniform(-1074, 1024), uniform(-2, 2)], 1.2),
    "expm1": (mp.expm1, [uniform(-40, 710), uniform(-2, 2), powers(-1074, 3)], 2.0),
    "log": (mp.log, POSITIVE, 1.0),
    "log10": (mp.log10, POSITIVE, 1.3),
    "log1p": (mp.log1p, [*POSITIVE, uniform(-0.999, 3), -NEAR_ONE], 1.6),
    "log2": (lambda x: mp.log(x) / mp.ln2, POSITIVE, 1.4),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), POSITIVE, 1.6),
    "sin": (mp.sin, ANGLES, 1.0),
    "sinh": (mp.sinh, [uniform(-710.4, 710.4), uniform(-3, 3), powers(-1074, 3)], 1.8),
    "tan": (mp.tan, ANGLES, 2.5),
    "tanh": (mp.tanh, [uniform(-20, 20), uniform(-1, 1), powers(-1074, 3)], 1.6),
}


def ulp_64(actual: float, exact: mp.mpf) -> float:
    size = abs(exact)
    if size > np.finfo(np.float64).max:
        return 0.0 if np.isinf(actual) else INF
    if not np.isfinite(actual) or size == 0:
        return 0.0 if actual == exact else INF
    exponent = max(mp.frexp(size)[1] - 1, -1022)
    return float(abs(mp.mpf(float(actual)) - exact) / mp.mpf(2) ** (exponent - 52))


def worst_ulp_64(actual: np.ndarray, reference: Callable, *arguments: np.ndarray) -> float:
    with mp.workprec(250):
        rows = zip(actual, *arguments, strict=True)
        return max(ulp_64(y, reference(*(mp.mpf(float(x)) for x in xs))) for y, *xs in rows)


@pytest.mark.parametrize("baseline", [False, True], ids=["host", "baseline"])
@pytest.mark.parametrize("name", UNARY_64)
def test_f64_error_is_bounded(name: str, baseline: bool) -> None:
    reference, arguments, bound = UNARY_64[name]
    x = np.concatenate(arguments)
    actual = compile_loop(name, "f64", baseline=baseline).call(x)
    assert worst_ulp_64(actual, reference, x) <= (4.0 if baseline else bound)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_f64_large_angles(name: str) -> None:
    # The first is the f64 nearest to a multiple of pi/2 of all.
    hardest = [6381956970095103 * 2.0**797, 2.0**1023, 1e22, 2.0**30 + 1, np.finfo(np.float64).max]
    x = np.concatenate([hardest, powers(30, 1024), powers(29, 60)])
    actual = compile_loop(name, "f64").call(x)
    with mp.workprec(1400):
        exact = [getattr(mp, name)(mp.mpf(float(v))) for v in x]
        assert max(ulp_64(a, b) for a, b in zip(actual, exact, strict=True)) <= 2.5


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    ("name", "reference"), [("cube", lambda x: x**-3), ("sine", np.sin), ("cosine", np.cos)]
)
def test_ops_with_other_forms(name: str, reference: Callable, kind: str) -> None:
    x = np.concatenate([uniform(-9, 9), [0.0, -0.0, INF, -INF, NAN]]).astype(DTYPES[kind])
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64)).astype(DTYPES[kind])
    assert_same(compile_loop(name, kind).call(x), exact)


def test_f64_power_error_is_bounded() -> None:
    base = np.concatenate([powers(-1022, 1023, signed=False), 1 + powers(-45, -2), uniform(0.5, 2)])
    exponent = np.random.default_rng(11).uniform(-1074, 1023.9, base.size) / np.log2(base)
    exponent[::3] = np.random.default_rng(12).uniform(-10, 10, exponent[::3].size)
    actual = compile_loop("powf", "f64", 2).call(base, exponent)
    assert worst_ulp_64(actual, lambda x, y: x**y, base, exponent) <= 1.2


def test_f64_atan2_error_is_bounded() -> None:
    y = np.concatenate([powers(-1074, 1024), uniform(-1, 1)])
    x = np.random.default_rng(13).permutation(y)
    actual = compile_loop("atan2", "f64", 2).call(y, x)
    assert worst_ulp_64(actual, mp.atan2, y, x) <= 1.8


# --- edge cases -----------------------------------------------------------------------------------


def assert_same(actual: np.ndarray, expected: np.ndarray, ulps: float = 4) -> None:
    """NaN for NaN, infinities and signed zeros exactly, the rest within `ulps`."""
    with np.errstate(all="ignore"):
        near = np.isfinite(expected) & (expected != 0)
        near &= np.abs(actual - expected) <= ulps * np.spacing(np.abs(expected))
        exactly = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
        both_nan = np.isnan(actual) & np.isnan(expected)
    assert (near | exactly | both_nan).all()


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", UNARY_32)
def test_edge_cases_of_unary(name: str, kind: str) -> None:
    limits = np.finfo(DTYPES[kind])
    magnitudes = [0, INF, limits.max, limits.tiny, limits.smallest_subnormal, 0.5, 1, 2]
    magnitudes += [1 + limits.eps, 1 - limits.epsneg, 88.7228, 88.73, 103.9, 104, 709.78, 709.79]
    magnitudes += [710.4, 710.5, 744.4, 745.2, 1023.9, 1024, 1074, 1075.1, 126, 128, 149, 150.1]
    x = np.array([*magnitudes, NAN, *(-m for m in magnitudes)], DTYPES[kind])
    with np.errstate(all="ignore"):
        exact = UNARY_32[name][0](x.astype(np.float64)).astype(DTYPES[kind])
    assert_same(compile_loop(name, kind).call(x), exact)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("name", "reference"), [("powf", np.power), ("atan2", np.arctan2)])
def test_edge_cases_of_binary(name: str, reference: Callable, kind: str) -> None:
    magnitudes = [0, 0.5, 1, 2, 3, INF, 2.5, 0.75, 1e30, 1e-30, 1e300, 5e-324, 1e-45, 1025, 1075]
    magnitudes += [2**53, 2**53 - 1, 2**52 + 1, 2**51 + 0.5, 1 + 2**-52, 1 - 2**-53, 2**64, 2**70]
    magnitudes += [2**24 - 1, 2**23 + 0.5, 2**22 + 0.5, 1 + 2**-23, np.finfo(np.float64).max]
    values = np.array([*magnitudes, NAN, *(-m for m in magnitudes)], np.float64)
    with np.errstate(all="ignore"):
        x, y = (v.ravel() for v in np.meshgrid(values, values))
        x, y = x.astype(DTYPES[kind]), y.astype(DTYPES[kind])
        exact = reference(x.astype(np.float64), y.astype(np.float64)).astype(DTYPES[kind])
    assert_same(compile_loop(name, kind, 2).call(x, y), exact)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("ceil", np.ceil),
        ("floor", np.floor),
        ("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
        ("roundeven", np.rint),
        ("trunc", np.trunc),
    ],
)
def test_rounding_without_the_instruction(name: str, reference: Callable, kind: str) -> None:
    halves = np.arange(-9, 9, 0.25)
    large = np.array([2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, 2**51 + 0.5, 2**52 + 1, 2**53, 1e300])
    x = np.concatenate([halves, large, -large, [0.0, -0.0, INF, -INF, NAN, -0.3, 5e-324]])
    with np.errstate(all="ignore"):
        x = x.astype(DTYPES[kind])
        exact = reference(x)
    # np.floor(|x| + 0.5) is itself inexact for odd integers at the end of the mantissa.
    full = np.abs(x) >= 2.0 ** (np.finfo(DTYPES[kind]).nmant)
    exact = np.where(full, x, exact)
    compiled = compile_loop(name, kind, baseline=True)
    assert_same(compiled.call(x), exact, ulps=0)
    assert "call" not in compiled.assembly


# --- the code ------------------------------------------------------------------------------------


ALL = [(name, kind) for name in sorted(UNARY_32) for kind in DTYPES]
ALL += [(name, kind) for name in ("powf", "atan2") for kind in DTYPES]


@pytest.mark.parametrize("baseline", [False, True], ids=["host", "baseline"])
@pytest.mark.parametrize(("name", "kind"), ALL)
def test_loops_vectorize_without_calls(name: str, kind: str, baseline: bool) -> None:
    compiled = compile_loop(name, kind, 2 if name in ("powf", "atan2") else 1, baseline=baseline)
    # A sign set by xor is stored as an integer.
    element = "(float|i32)" if kind == "f32" else "(double|i64)"
    assert re.search(rf"store <\d+ x {element}>", compiled.optimized)
    assert not re.search(r"^\s+(call|jmp)q?\s+[a-z_]", compiled.assembly, re.MULTILINE)


@pytest.mark.parametrize(("name", "kind"), ALL)
def test_aarch64_needs_no_calls(name: str, kind: str) -> None:
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()
    machine = ll.Target.from_triple("aarch64-linux-gnu").create_target_machine(opt=3)
    module = to_llvm(name, kind, 2 if name in ("powf", "atan2") else 1, ExpandMath())
    optimize(module, machine)
    assert not re.search(r"^\s+blr?\s", machine.emit_assembly(module), re.MULTILINE)


@pytest.mark.parametrize("name", HOT)
def test_hot_f32_functions_stay_in_f32(name: str) -> None:
    assert "double" not in compile_loop(name, "f32").optimized


def run_on(text: str, **options: bool) -> str:
    with ir.Context():
        module = ir.Module.parse(text)
        ExpandMath(**options).run(module)
        module.operation.verify()
        return module.operation.get_asm(enable_debug_info=True)


@pytest.mark.parametrize("kind", ["f32", "f64", "vector<8xf32>", "vector<2x4xf64>"])
@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_only_instructions_are_left(name: str, kind: str) -> None:
    binary = name in ("math.powf", "math.atan2", "arith.remf")
    operands = "%x, %x" if binary else "%x"
    types, results, names = kind, kind, "%r"
    if name == "math.fpowi":
        integer = re.sub(r"f\d\d", "i32", kind)
        operands, types = "%x, %n", f"{kind}, {integer}"
    else:
        integer = "i32"
    if name == "math.sincos":
        names = "%r, %c"
    source = (
        f"func.func @f(%x: {kind}, %n: {integer}) -> {results} {{\n"
        f"  {names} = {name} {operands} : {types}\n  return %r : {results}\n}}"
    )
    if name == "arith.remf" and kind.startswith("vector"):
        with pytest.raises(LoweringError, match="remf of vectors"):  # it is a loop
            run_on(source)
        return
    text = run_on(source)
    assert set(re.findall(r"math\.\w+", text)) <= {
        "math.absf",
        "math.copysign",
        "math.roundeven",
        "math.sqrt",
    }


def test_locations_are_kept() -> None:
    text = run_on(
        'func.func @f(%x: f32) -> f32 {\n  %r = math.exp %x : f32 loc("model.py":12:3)\n'
        "  return %r : f32\n}"
    )
    multiplications = re.findall(r"arith\.mulf .* loc\((#\w+)\)", text)
    assert multiplications
    assert {re.search(rf"^{m} = (.*)$", text, re.M)[1] for m in multiplications} == {
        'loc("model.py":12:3)'
    }


def test_native_rounding_keeps_the_ops() -> None:
    text = "func.func @f(%x: f32) -> f32 {\n  %r = math.floor %x : f32\n  return %r : f32\n}"
    assert "math.floor" in run_on(text)
    assert "math.floor" not in run_on(text, native_rounding=False)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tensor<4xf32>"])
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(LoweringError, match=r"math\.tanh.*\n.*model\.py.*12"):
        run_on(
            f"func.func @f(%x: {kind}) -> {kind} {{\n"
            f'  %r = math.tanh %x : {kind} loc("model.py":12:3)\n  return %r : {kind}\n}}'
        )


def test_large_f64_angles_may_be_left_out() -> None:
    text = "func.func @f(%x: f64) -> f64 {\n  %r = math.sin %x : f64\n  return %r : f64\n}"
    assert len(run_on(text, large_angles=False)) < len(run_on(text)) / 2


@pytest.mark.skipif(not runs_here("x86_64-v4"), reason="needs AVX-512")
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("function", [nova.exp, nova.exp2, nova.sinh, nova.erfc])
def test_the_instruction_for_powers_of_two_gives_the_bits_of_two_factors(function, kind):
    """Also for subnormal results, at the limits of overflow, and for special values."""
    bound = {"f32": 160.0, "f64": 1100.0}[kind]
    x = np.append(np.linspace(-bound, bound, 99_997), [0.0, -0.0, INF, -INF, NAN])
    x = x.astype(DTYPES[kind])
    results = []
    for target in ("x86_64-v3", "x86_64-v4"):
        tensor = nova.tensor(x, name="x")
        results.append(nova.compile(function(tensor), inputs=[tensor], target=target)(x))
    np.testing.assert_array_equal(*results)
