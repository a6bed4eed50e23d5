"""Reading PTX: what is understood, what is refused and how, and what ptxas says to it."""

from __future__ import annotations

import re

import pytest
import test_sim_arithmetic
import test_sim_convert
from ptxas import assemble
from sim_programs import HEADER, PREFIX, REGISTERS, make_kernel
from test_sim_sanitized import simple_tests

from nova.errors import PtxError
from nova.gpusim import SimModule
from nova.gpusim import module as sim_module

# Instructions that do not exist, or that the simulator does not know: none of them is guessed.
UNKNOWN = [
    "frobnicate.b32 %r1, %r2",
    "add.approx.f32 %r1, %r2, %r3",
    "add.ftz.rn.f32 %r1, %r2, %r3",
    "add.sat.s32 %r1, %r2, %r3",
    "fma.f32 %r1, %r2, %r3, %r4",
    "div.f32 %r1, %r2, %r3",
    "ex2.f32 %r1, %r2",
    "tanh.approx.ftz.f32 %r1, %r2",
    "min.NaN.f64 %d1, %d2, %d3",
    "mul.s32 %r1, %r2, %r3",
    "mul24.lo.s32 %r1, %r2, %r3",
    "cvt.f32.f64 %r1, %d1",
    "cvt.rn.s32.f32 %r1, %r2",
    "cvt.f32.s32 %r1, %r2",
    "cvt.rn.f64.f32 %d1, %r2",
    "cvt.rni.rn.f32.f32 %r1, %r2",
    "cvt.rn.e4m3x2.f32 %h1, %r1, %r2",
    "cvt.sat.u16.u8 %h1, %h2",
    "cvt.rn.bf16.u8 %h1, %h2",
    "cvt.rn.sat.bf16.f32 %h1, %r2",
    "cvt.ftz.f64.f16 %d1, %h2",
    "cvt.rn.relu.f32.f64 %r1, %d2",
    "sub.s16x2 %r1, %r2, %r3",
    "setp.lt.f32x2 %p1, %d1, %d2",
    "setp.lo.s32 %p1, %r1, %r2",
    "setp.ltu.s32 %p1, %r1, %r2",
    "set.lt.u32.f32 %r1, %r2, %r3",
    "ld.global.b128 %d1, [%d2]",
    "ld.global.v8.b64 %d1, [%d2]",
    "ld.texture.u32 %r1, [%d1]",
    "atom.global.add.b32 %r1, [%d1], %r2",
    "atom.global.nand.b32 %r1, [%d1], %r2",
    "atom.global.min.f32 %r1, [%d1], %r2",
    "fence.proxy.sideways",
    "fence.acq_rel",
    "bar.red.popc.u32 %r1, 0, %p1",
    "barrier.cluster.sync",
    "shfl.up.b32 %r1, %r2, 1, 0",
    "vote.all.pred %p1, %p2",
    "redux.sync.add.f32 %r1, %r2, -1",
    "cp.async.bulk.tensor.6d.global.shared::cta.bulk_group [%d1], [%r2]",
    "cp.async.cg.shared::cluster.global [%r1], [%d1], 16",
    "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r1}, [%r2]",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4}",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4}",
    "wgmma.fence.sync",
    "mbarrier.init.global.b64 [%d1], 1",
    "call.uni helper",
    "selp.pred %p1, %p2, %p3, %p4",
    "mov.b128 %d1, {%d2, %d3}",
    "cvta.to.shared.u32 %r1, %r2",
]


@pytest.mark.parametrize("instruction", UNKNOWN)
def test_an_unknown_instruction_is_named(instruction: str):
    text = make_kernel(f"\n{instruction};")
    opcode = re.escape(instruction.split()[0])
    with pytest.raises(PtxError, match=f"does not know the instruction {opcode}$") as caught:
        try:
            SimModule(text)
        except PtxError as error:
            raise PtxError(error.what) from error
    cause = caught.value.__cause__
    assert isinstance(cause, PtxError) and cause.line is not None
    assert instruction in text.splitlines()[cause.line - 1]
    assert f"line {cause.line} of the PTX" in str(cause)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r1, %r2;", "add.s32 with 2 operands"),
        ("add.s32 %r1, %r2, %d3;", "%d3 has 64 bits where 32 are expected"),
        ("add.s32 %h1, %r2, %r3;", "%h1 has 16 bits"),
        ("add.s32 %r1, %r99, %r3;", "what is '%r99'"),
        ("add.s32 %tid.x, %r2, %r3;", "'%tid.x' cannot be written"),
        ("add.f32 %r1, %r2, 0d3FF0000000000000;", "where 32 bits are expected"),
        ("mov.u32 %r1, nothing;", "what is 'nothing'"),
        ("mov.u32 %r1, %clock;", "what is '%clock'"),
        ("ld.global.u32 %r1, %d1;", "not an address"),
        ("ld.global.v2.u32 %r1, [%d1];", "ld.global.v2.u32 %r1"),
        ("st.param.u32 [%d1], %r1;", "st.param.u32"),
        ("bra NOWHERE;", "no label NOWHERE"),
        ("@%r1 bra END; END:", "%r1 has 32 bits where 1 are expected"),
        ("cp.async.cg.shared.global [%r1], [%d1], 8;", "of 8 bytes"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];", "ldmatrix"),
        ("L: L: mov.u32 %r1, 0;", "the label L is there twice"),
        (".reg .b24 %x;", "of type b24"),
        (".surf .b32 %x;", "not understood: .surf"),
        ("brx.idx %r1, NOWHERE;", "brx.idx NOWHERE"),
        ("??", "not an instruction"),
    ],
)
def test_mistakes(body: str, message: str):
    with pytest.raises(PtxError, match=re.escape(message)):
        SimModule(make_kernel(body))


# Together more than 4 GiB, each less than 1 GiB.
LOCALS = "".join(f".local .b8 v{i}[{1 << 28}];" for i in range(20))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no .target"),
        (f"{HEADER}.extern .func (.param .b32 r) sinf (.param .b32 x);", "calls sinf"),
        (f"{HEADER}.func helper() {{ ret; }}", "not understood: .func helper"),
        (f"{HEADER}.global .u64 p = table;", "p begins with 'table'"),
        (f"{HEADER}.visible .entry k() {{ ret;", "the text ends"),
        (f"{HEADER}.visible .entry k(.param .b128 x) {{ ret; }}", "a parameter of k"),
        (f"{HEADER}.visible .entry k() .reqnctapersm 2 {{ ret; }}", "not understood"),
        (f"{HEADER}.visible .entry k() .maxntid 6442450944 {{ ret; }}", "k: .maxntid 6442450944"),
        (f"{HEADER}.visible .entry k() .reqntid 0, 1, 1 {{ ret; }}", "k: .reqntid 0, 1, 1"),
        (f"{HEADER}.visible .entry k() {{ {LOCALS} ret; }}", "v4 ends at byte"),
    ],
)
def test_texts_that_are_refused(text: str, message: str):
    with pytest.raises(PtxError, match=message):
        SimModule(text)


def test_a_kernel_that_is_not_there():
    module = SimModule(make_kernel("", name="one"))
    with pytest.raises(PtxError, match="kernels of this PTX: one"):
        module.kernel("two")


def test_comments_and_debug_lines_are_skipped():
    body = """/* several
    lines */ .loc 1 2 3
    .pragma "nounroll"; // here add.nonsense
    mov.u32 %r1, 0;"""
    module = SimModule(make_kernel(body))
    assert "mov.u32" in module.kernels["k"].opcodes


# --- ptxas --------------------------------------------------------------------------------------


def test_ptxas_accepts_what_the_tests_run(monkeypatch: pytest.MonkeyPatch):
    """Kernels of the tests without parameters, all in one text."""
    texts: list[str] = []
    parse = sim_module.parse_ptx
    monkeypatch.setattr(sim_module, "parse_ptx", lambda text: (texts.append(text), parse(text))[1])
    for test in simple_tests():
        if "damaged" not in test.__name__:
            test()
    parts = []
    for number, text in enumerate(dict.fromkeys(texts)):
        text = text.replace(HEADER, "")
        for name in (*re.findall(r"\.entry (\w+)", text), *re.findall(r"b8 (\w+)\[", text)):
            text = re.sub(rf"\b{name}(?=\b|_)", f"{name}_{number}", text)
        for name in ("table", "half", "total"):
            text = re.sub(rf"\b{name}\b", f"{name}_{number}", text)
        parts.append(text)
    assert len(parts) > 60
    assemble(HEADER + "\n".join(parts), "sm_90a")


def instructions() -> dict[str, str]:
    """Every instruction that the tests of arithmetic and of conversions apply, by name."""
    lanes = test_sim_arithmetic.LANES
    names = [*test_sim_arithmetic.INTEGERS, *test_sim_arithmetic.with_modes()]
    names += test_sim_arithmetic.approximate_names()
    lines = {}
    for name in names:
        out, *ins = lanes[test_sim_arithmetic.lane_of(name)]
        operands = [f"%{PREFIX[w]}{number + 3}" for number, w in enumerate(ins)]
        if name == "lop3.b32":
            operands[3] = "0x96"
        lines[name] = f"{name} %{PREFIX[out]}20, {', '.join(operands)};"
    for row in test_sim_convert.conversions():
        name = test_sim_convert.opcode_of(*row)
        widths = [PREFIX[max(16, test_sim_convert.BITS[t])] for t in row[1:3]]
        lines[name] = f"{name} %{widths[0]}20, %{widths[1]}3;"
    return lines


def test_ptxas_accepts_every_instruction():
    lines = instructions()
    assert len(lines) > 600
    newer = {name for name in lines if name.endswith("f32x2")}
    body = "\n".join(line for name, line in lines.items() if name not in newer)
    text = f"{HEADER}.visible .entry k() {{ {REGISTERS}\n{body}\nret; }}\n"
    assemble(text, "sm_90a")
    body = "\n".join(lines[name] for name in sorted(newer))
    text = f"{HEADER}.visible .entry k() {{ {REGISTERS}\n{body}\nret; }}\n"
    assemble(text.replace("sm_90a", "sm_100a"), "sm_100a")
