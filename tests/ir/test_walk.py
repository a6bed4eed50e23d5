"""Listing ops without MLIR's own walk: the same ops in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.compiler.stages import start_from_text
from nova.ir.bindings import ir
from nova.ir.walk import every_op, find_ops, find_tensor_ops


@pytest.fixture(scope="module")
def module() -> ir.Module:
    """Loops in loops, and several functions."""
    x = nova.tensor(np.ones((8, 16), "f4"), name="x")
    text = nova.compile(nova.softmax(x @ np.ones((16, 8), "f4")), inputs=[x]).stages["loops"]
    return start_from_text(text, "loops.mlir")


@pytest.mark.parametrize(
    ("outer_first", "order"),
    [(False, ir.WalkOrder.POST_ORDER), (True, ir.WalkOrder.PRE_ORDER)],
)
def test_every_op_in_the_order_of_mlir(module: ir.Module, outer_first: bool, order: Any) -> None:
    expected: list[Any] = []

    def visit(op: Any) -> Any:
        expected.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, order)
    assert every_op(module, outer_first=outer_first) == expected
    assert len(expected) > 50 and expected[0 if outer_first else -1].name == "builtin.module"


def test_ops_by_name(module: ir.Module) -> None:
    loops = find_ops(module, "scf.for")
    assert len(loops) > 3 and {op.name for op in loops} == {"scf.for"}
    assert find_ops(module, "no.such") == []


def test_ops_outside_of_the_bodies_of_linalg_ops() -> None:
    x = nova.tensor(np.ones((8, 16), "f4"), name="x")
    text = nova.compile(nova.softmax(x @ np.ones((16, 8), "f4")), inputs=[x]).stages["linalg"]
    module = start_from_text(text, "linalg.mlir")
    generics = find_tensor_ops(module, "linalg.generic")
    assert generics == find_ops(module, "linalg.generic") and len(generics) > 2
    assert find_ops(module, "arith.addf") and not find_tensor_ops(module, "arith.addf")
