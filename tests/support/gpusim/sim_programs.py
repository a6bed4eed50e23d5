"""Small PTX programs for the tests of the simulator, and how they are run."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from nova.gpusim import SimMemory, SimModule

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
PREFIX = {1: "p", 16: "h", 32: "r", 64: "d"}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
REGISTERS = "\n".join(
    f".reg .{'pred' if bits == 1 else f'b{bits}'} %{prefix}<40>;" for bits, prefix in PREFIX.items()
)


def make_kernel(
    body: str, pointers: int = 1, name: str = "k", rest: str = "", outside: str = ""
) -> str:
    """A kernel whose parameters are pointers in %d0, %d1, ...; %r0 is the thread of the grid."""
    params = ",\n".join(f".param .u64 {name}_{i}" for i in range(pointers))
    loads = "\n".join(f"ld.param.u64 %d{i}, [{name}_{i}];" for i in range(pointers))
    return f"""{HEADER}{outside}
.visible .entry {name}(
{params}
)
{rest}
{{
{REGISTERS}
{loads}
mov.u32 %r0, %ctaid.x;
mov.u32 %r1, %ntid.x;
mov.u32 %r2, %tid.x;
mad.lo.s32 %r0, %r0, %r1, %r2;
{body}
ret;
}}
"""


def launch(
    text: str,
    arrays: Sequence[np.ndarray[Any, Any]],
    *,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    shared: int = 0,
    name: str = "k",
    **options: Any,
) -> list[Any]:
    """Run a kernel on copies of the arrays, and return what is in them then."""
    memory = SimMemory()
    addresses = [memory.put(array) for array in arrays]
    arguments = struct.pack(f"<{len(addresses)}Q", *addresses)
    SimModule(text).launch(name, grid, block, shared, arguments, memory, **options)
    return [memory.array(p, a.shape, a.dtype) for p, a in zip(addresses, arrays, strict=True)]


def instruction_body(opcode: str, widths: Sequence[int], last: str = "") -> str:
    """One instruction of each thread: operands from %d1, ..., its result to %d0."""
    out, *ins = widths
    lines = []
    for number, bits in enumerate(ins):
        lines += [
            f"mul.wide.u32 %d20, %r0, {bits // 8};",
            f"add.s64 %d20, %d{number + 1}, %d20;",
            f"ld.global.b{bits} %{PREFIX[bits]}{30 + number}, [%d20];",
        ]
    operands = [f"%{PREFIX[bits]}{30 + number}" for number, bits in enumerate(ins)]
    operands += [last] if last else []
    lines += [
        f"{opcode} %{PREFIX[out]}39, {', '.join(operands)};",
        f"mul.wide.u32 %d20, %r0, {out // 8};",
        "add.s64 %d20, %d0, %d20;",
        f"st.global.b{out} [%d20], %{PREFIX[out]}39;",
    ]
    return "\n".join(lines)


def apply_instruction(
    opcode: str, widths: Sequence[int], values: Sequence[Sequence[int]], last: str = ""
) -> list[int]:
    """What an instruction gives for columns of raw bits; `last` is a literal operand."""
    out, *ins = widths
    columns = [np.array(column, UNSIGNED[bits]) for column, bits in zip(values, ins, strict=True)]
    count = len(columns[0])
    padded = -count % 32
    columns = [np.pad(column, (0, padded)) for column in columns]
    text = make_kernel(instruction_body(opcode, widths, last), len(widths))
    result = np.zeros(count + padded, UNSIGNED[out])
    actual, *_ = launch(text, [result, *columns], grid=((count + padded) // 32,))
    return [int(value) for value in actual[:count]]
