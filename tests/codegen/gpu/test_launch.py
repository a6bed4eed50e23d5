"""Counters from the number of an iteration, and barriers between ops."""

# ruff: noqa: E501 (MLIR text)

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.gpu.block_ops import split
from nova.codegen.gpu.hazards import Hazards, threads_of_elements, touched
from nova.compiler.stages import start_from_text
from nova.ir.bindings import func, ir
from nova.ir.context import make_context
from nova.ir.index import index
from nova.ir.walk import find_ops, kernels
from nova.passes.base import UpstreamPass, run_pipeline


@pytest.mark.parametrize("sizes", [(7,), (1,), (2, 3, 4), (1, 5), (5, 1), (1, 1, 3, 1, 2), ()])
def test_split_counts_like_nested_loops(sizes: tuple[int, ...]) -> None:
    """Constants go in, so that MLIR's folding computes what the code would."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        mode = ir.FunctionType.get([], [ir.IndexType.get()] * (prod(sizes) * len(sizes)))
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", mode)
        with ir.InsertionPoint(function.add_entry_block()):
            result = [c for number in range(prod(sizes)) for c in split(index(number), sizes)]
            func.ReturnOp(result)
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
    module, _, result = kernel_of(*ops)
    with module.context:
        hazards = Hazards()
        stored = []
        for number, op in enumerate(result):
            if hazards.conflicts(op):
                stored.append(number)
                hazards.clear()
            hazards.add(op)
    assert stored == expected


def test_touched() -> None:
    module, kernel, (plain, adding) = kernel_of("t=a", "t+=a")
    a, _, _, t, _ = kernel.entry_block.arguments
    with module.context:
        assert touched(plain) == ({a}, {t})
        assert touched(adding) == ({a, t}, {t})


@pytest.mark.parametrize("ops", [("t=a", "y=t", "u=y"), ("t=a", "t=b", "y+=t")], ids=str)
def test_threads_that_keep_their_elements_need_no_barrier(ops: tuple[str, ...]) -> None:
    module, _, result = kernel_of(*ops)
    with module.context:
        hazards = Hazards()
        for op in result:
            orders = threads_of_elements(make_loop_nest(op), 0, 0)
            assert not hazards.conflicts(op, orders)
            # The same elements on other threads, or on unknown ones.
            others = threads_of_elements(make_loop_nest(op), 0, 32)
            assert hazards.conflicts(op, others) == hazards.conflicts(op) == (op != result[0])
            hazards.add(op, orders)
