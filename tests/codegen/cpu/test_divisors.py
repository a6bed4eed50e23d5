"""Numbers that divide an index, read off the ops that compute it."""

from __future__ import annotations

import pytest

from nova.codegen.cpu.divisors import divisor_of
from nova.ir.context import make_context, parse_module
from nova.ir.walk import find_ops

HEAD = """
func.func @f(%a: index, %b: index, %m: memref<?xindex>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %six = arith.constant 6 : index
  %sixteen = arith.constant 16 : index
  %forty = arith.constant 40 : index
"""


@pytest.mark.parametrize(
    ("code", "divisor"),
    [
        ("%v = arith.constant 24 : index", 24),
        ("%v = arith.constant 0 : index", 0),
        ("%v = arith.addi %a, %sixteen : index", 1),
        ("%v = arith.muli %a, %sixteen : index", 16),
        ("%p = arith.muli %a, %b : index\n %v = arith.muli %p, %six : index", 6),
        ("%p = arith.muli %a, %sixteen : index\n %v = arith.minsi %p, %forty : index", 8),
        ("%p = arith.muli %a, %sixteen : index\n %v = arith.maxui %p, %zero : index", 16),
        ("%p = arith.muli %a, %sixteen : index\n %v = arith.subi %p, %six : index", 2),
        ("%p = arith.muli %a, %sixteen : index\n %v = arith.remui %p, %forty : index", 8),
        ("%p = arith.muli %a, %sixteen : index\n %v = arith.divui %p, %six : index", 1),
        (
            "%p = arith.muli %a, %sixteen : index\n %q = arith.cmpi slt, %a, %b : index\n"
            " %v = arith.select %q, %p, %zero : index",
            16,
        ),
        ("%v = memref.load %m[%a] : memref<?xindex>", 1),
    ],
)
def test_a_divisor_follows_from_the_ops(code: str, divisor: int) -> None:
    text = f"{HEAD} {code}\n memref.store %v, %m[%zero] : memref<?xindex>\n return\n}}"
    module = parse_module(text, "t.mlir", make_context())
    [store] = find_ops(module.operation, "memref.store")
    assert divisor_of(store.operands[0]) == divisor


@pytest.mark.parametrize(("low", "step", "divisor"), [("zero", "six", 6), ("forty", "sixteen", 8)])
def test_a_counter_is_a_multiple_of_its_step_and_start(low: str, step: str, divisor: int) -> None:
    loop = f"scf.for %i = %{low} to %b step %{step} {{ memref.store %i, %m[%i] : memref<?xindex> }}"
    module = parse_module(f"{HEAD} {loop}\n return\n}}", "t.mlir", make_context())
    [store] = find_ops(module.operation, "memref.store")
    assert divisor_of(store.operands[0]) == divisor


def test_a_carried_value_is_not_a_counter() -> None:
    loop = """
      %r = scf.for %i = %zero to %b step %six iter_args(%c = %a) -> index {
        memref.store %c, %m[%i] : memref<?xindex>
        scf.yield %c : index
      }"""
    module = parse_module(f"{HEAD} {loop}\n return\n}}", "t.mlir", make_context())
    [store] = find_ops(module.operation, "memref.store")
    assert divisor_of(store.operands[0]) == 1
