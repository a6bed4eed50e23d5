"""How a device's kernels are divided: counters from a number, barriers, and who takes a point."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest

import nova
from nova.codegen.common.index_math import index
from nova.codegen.gpu.block_ops import split
from nova.codegen.gpu.hazards import Hazards, touched
from nova.codegen.gpu.schedule import DeviceSchedule
from nova.compiler.stages import start_from_text
from nova.core.targets import parse_target
from nova.ir.bindings import func, ir
from nova.ir.context import make_context
from nova.ir.walk import find_ops, kernels
from nova.passes.base import UpstreamPass, run_pipeline


@pytest.mark.parametrize("sizes", [(7,), (1,), (2, 3, 4), (1, 5), (5, 1), (1, 1, 3, 1, 2), ()])
def test_split_counts_like_nested_loops(sizes: tuple[int, ...]) -> None:
    """Constants go in, so that MLIR's folding computes what the code would."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        kind = ir.FunctionType.get([], [ir.IndexType.get()] * (prod(sizes) * len(sizes)))
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", kind)
        with ir.InsertionPoint(function.add_entry_block()):
            found = [c for number in range(prod(sizes)) for c in split(index(number), sizes)]
            func.ReturnOp(found)
    run_pipeline(module, [UpstreamPass("canonicalize")])
    (returned,) = find_ops(module, "func.return")
    values = [int(v.owner.operation.attributes["value"].value) for v in returned.operands]
    expected = [list(np.unravel_index(n, sizes)) if sizes else [] for n in range(prod(sizes))]
    assert values == [int(c) for row in expected for c in row]


# Each op is `written = f(read)`: a and b are inputs, y an output, t and u scratch.
_KERNEL = """
#id = affine_map<(d0) -> (d0)>
func.func private @k(%a: memref<8xf32>, %b: memref<8xf32>, %y: memref<8xf32>, %t: memref<8xf32>, %u: memref<8xf32>)
    attributes {{nova.grid = array<i64>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 8 : i64}} {{
{ops}  return
}}
"""
_OP = """  linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}} ins(%{read} : memref<8xf32>) outs(%{written} : memref<8xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %0 = arith.{sum} %in, %{other} : f32
    linalg.yield %0 : f32
  }}
"""


def kernel_of(*ops: str) -> tuple[ir.Module, Any, list[Any]]:
    """A kernel of ops written `y=a`, or `y+=a` for those that read what they write."""
    texts = []
    for op in ops:
        written, _, read = op.partition("=")
        adds = written.endswith("+")
        texts.append(
            _OP.format(
                read=read,
                written=written.rstrip("+"),
                sum="addf" if adds else "mulf",
                other="out" if adds else "in",
            )
        )
    module = start_from_text(_KERNEL.format(ops="".join(texts)), "-")
    (kernel,) = kernels(module)
    return module, kernel, find_ops(kernel, "linalg.generic")


# (ops, the number of each before which a barrier stands)
BARRIERS = [
    (("t=a", "u=b"), []),
    (("t=a", "y=t"), [1]),  # reads what was written
    (("t=a", "t=b"), [1]),  # writes what was written
    (("u=t", "t=a"), [1]),  # writes what was read
    (("t=a", "u=t", "y=t"), [1]),
    (("y=a", "t=b"), []),
    (("t=u", "y=u"), []),
    (("t+=a", "u=b", "y+=t"), [2]),
    (("t=a", "u=t", "t=u"), [1, 2]),
]


@pytest.mark.parametrize(("ops", "expected"), BARRIERS, ids=str)
def test_barriers(ops: tuple[str, ...], expected: list[int]) -> None:
    module, _, found = kernel_of(*ops)
    with module.context:
        hazards = Hazards()
        stands = []
        for number, op in enumerate(found):
            if hazards.conflicts(op):
                stands.append(number)
                hazards.clear()
            hazards.add(op)
    assert stands == expected


def test_touched() -> None:
    module, kernel, (plain, adding) = kernel_of("t=a", "t+=a")
    a, _, _, t, _ = kernel.entry_block.arguments
    with module.context:
        assert touched(plain) == ({a}, {t})
        assert touched(adding) == ({a, t}, {t})


@contextmanager
def schedule_of(program: str, *shapes: str) -> Iterator[DeviceSchedule]:
    """The schedule of a program's first kernel, whose ops are there as long as this is open.

    %0, %1, ... are the arguments of the program.
    """
    arguments = ", ".join(f"%{i}: tensor<{shape}>" for i, shape in enumerate(shapes))
    result = program.rpartition("->")[2].strip()
    text = f"func.func @main({arguments}) -> {result} {{\n%r = {program}\nreturn %r : {result}\n}}"
    buffers = nova.translate(text, targets="cuda:sm_80", emit="buffers").data.decode()
    module = start_from_text(buffers, "-")
    kernel = kernels(module)[0]
    with module.context, ir.Location.unknown():
        ops = [op.operation for op in kernel.entry_block.operations][:-1]
        schedule = DeviceSchedule(kernel, ops, parse_target("cuda:sm_80"))
    yield schedule


def test_elementwise_work_is_by_points() -> None:
    program = '"nova.exp"(%0) : (tensor<64x300xf32>) -> tensor<64x300xf32>'
    with schedule_of(program, "64x300xf32") as schedule:
        assert schedule.by_points and schedule.product is None
        assert schedule.points == 64 * 300 and schedule.inner == 1


def test_sums_of_columns_are_columns() -> None:
    """Neighbouring threads read neighbouring elements."""
    program = '"nova.sum"(%0) {axis = array<i64: 0>, keepdims = false} : (tensor<64x8192xf32>) -> tensor<8192xf32>'
    with schedule_of(program, "64x8192xf32") as schedule:
        assert schedule.columns is not None and schedule.inner == 64
        assert not schedule.by_points and schedule.product is None


def test_rows_are_rows() -> None:
    program = '"nova.softmax"(%0) : (tensor<300x1000xf32>) -> tensor<300x1000xf32>'
    with schedule_of(program, "300x1000xf32") as schedule:
        assert schedule.rows is not None and not schedule.by_points and schedule.product is None
        assert schedule.points == 300 and schedule.inner == 1000


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
def test_products_are_products(kind: str) -> None:
    program = f'"nova.matmul"(%0, %1) : (tensor<128x64x{kind}>, tensor<64x96x{kind}>) -> tensor<128x96x{kind}>'
    with schedule_of(program, f"128x64x{kind}", f"64x96x{kind}") as schedule:
        assert schedule.product is not None
        assert tuple(schedule.grid) == (128, 96)
