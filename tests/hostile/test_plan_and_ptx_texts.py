"""Damaged texts of plans and of PTX, which this process reads: each is taken or refused cleanly."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from text_mutations import damage

import nova
from nova.errors import NovaError, PlanSyntaxError, PtxError
from nova.gpusim.module import SimModule
from nova.plan import parse_plan, print_plan

BY_HAND = """.version 7.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.visible .entry k(.param .u64 p)
.maxntid 32
{
.reg .b64 %rd<4>;
.reg .f32 %f<4>;
.reg .pred %p<2>;
.shared .align 16 .b8 s[64];
ld.param.u64 %rd1, [p];
mov.u64 %rd2, table;
ld.global.v2.f32 {%f1, %f2}, [%rd1+8];
setp.lt.f32 %p1, %f1, 0f40000000;
@%p1 bra L1;
st.global.f32 [%rd1], %f2;
L1:
ret;
}
"""


@cache
def plan_texts() -> list[str]:
    x = nova.tensor(np.ones((4, 8), "f4"), name="x")
    w = nova.tensor(np.ones((8, 6), "f4"), name="w")
    column = nova.tensor(np.array([[1.0], [2.0], [3.0], [4.0]], "f4"))
    product = nova.relu(x @ w + 1.5).sum(axis=1, keepdims=True) * column
    joined = nova.concat([nova.softmax(x, axis=1), nova.flip(x, 0)], axis=0)
    programs = [
        nova.compile(product, inputs=[x, w]),
        nova.compile(joined.reshape(8, 8).permute(1, 0)[2:5], inputs=[x]),
        nova.compile((w * w).sum(), params=[w], updates={w: w * 0.5}),
    ]
    return [print_plan(program.plan) for program in programs]


@cache
def ptx_texts() -> list[str]:
    x = nova.tensor(np.ones((64, 64), "f4"), name="x")
    stages = nova.compile(x.sum(axis=0), inputs=[x], target="cuda:sm_80", run_mode="sim").stages
    return [BY_HAND, *(text for name, text in stages.items() if name.startswith("ptx"))]


def check_plans(numbers: range) -> None:
    refused = 0
    for number in numbers:
        try:
            parse_plan(damage(plan_texts(), number))
        except NovaError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"text {number}: {error!r}") from error
    assert refused > len(numbers) // 2


def check_ptx(numbers: range) -> None:
    refused = 0
    for number in numbers:
        try:
            SimModule(damage(ptx_texts(), number))
        except NovaError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"text {number}: {error!r}") from error
    assert refused > len(numbers) // 2


def test_damaged_plans() -> None:
    check_plans(range(500))


def test_damaged_ptx() -> None:
    check_ptx(range(200))


@pytest.mark.slow
def test_many_damaged_plans() -> None:
    check_plans(range(500, 10_000))


@pytest.mark.slow
def test_much_damaged_ptx() -> None:
    check_ptx(range(200, 5_000))


LONG = "9" * 5000
PLANS = {
    "shape": ("f32[4,8]", f"f32[{LONG},8]"),
    "slot": ("slot[0] =", f"slot[{LONG}] ="),
    "reference": ("input[0]", f"input[{LONG}]"),
    "nested attribute": ("keepdims=true", f"keepdims={'(' * 5000}"),
    "signs": ("keepdims=true", f"keepdims={'-' * 100_000}1"),
    "literal": ("<*1.5>", f"<*{'-' * 100_000}1>"),
    "huge literal": ("<*1.5>", f"<*{LONG}>"),
    "line": (r".py:\d+", f".py:{LONG[:12]}"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_python_does_not_read(name: str) -> None:
    old, new = PLANS[name]
    pattern = old if name == "line" else re.escape(old)
    text = plan_texts()[0].replace("<1.5>", "<*1.5>")
    changed = re.sub(pattern, new, text)
    assert changed != text
    with pytest.raises(PlanSyntaxError):
        parse_plan(changed)


PTX = {
    "registers": ("%f<4>", "%f<99999999999>"),
    "array": ("table[8]", "table[9999999999999]"),
    "long number": ("table[8]", f"table[{LONG}]"),
    "octal": ("{1, 2", "{08, 0b2"),
    "alignment": (".align 4 ", ".align 0 "),
    "parameter": (".u64 p)", ".u64 p[99999999])"),
    "bound": (".maxntid 32", ".maxntid 1, 2, 3, 4"),
    "letter": ("%rd1+8", "%rd1+\u00b2"),
    "offset": ("%rd1+8", "%rd1+99999999999999999999"),
    "operands": ("setp.lt.f32 %p1, %f1, 0f40000000", "setp.lt.f32 %p1"),
    "cas": ("mov.u64 %rd2, table", "atom.global.cas.b32 %rd2"),
    "table of jumps": ("mov.u64 %rd2, table", "brx.idx %rd2"),
}


@pytest.mark.parametrize("name", PTX)
def test_ptx_that_nothing_takes(name: str) -> None:
    assert SimModule(BY_HAND).kernels
    changed = BY_HAND.replace(*PTX[name])
    assert changed != BY_HAND
    with pytest.raises(PtxError):
        SimModule(changed)
