"""Stages verify once, at their end; `nova-opt` verifies after every pass and names the culprit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nova.errors import PassError
from nova.ir.bindings import ir
from nova.ir.context import make_context, parse_module
from nova.passes.base import Pass, UpstreamPass, run_pipeline, run_verified_once

TEXT = """
func.func @f(%x: f32) -> f32 {
  %0 = arith.addf %x, %x : f32
  return %0 : f32
}
"""


@dataclass(frozen=True)
class BreakReturn(Pass):
    """Leaves a function that returns nothing where its type says f32."""

    name = "break-return"

    def run(self, module: ir.Module) -> None:
        block = module.body.operations[0].entry_block
        block.operations[-1].operation.erase()
        with ir.InsertionPoint(block):
            ir.Operation.create("func.return")


@dataclass(frozen=True)
class MendReturn(Pass):
    """Undoes what `BreakReturn` did."""

    name = "mend-return"

    def run(self, module: ir.Module) -> None:
        block = module.body.operations[0].entry_block
        block.operations[-1].operation.erase()
        with ir.InsertionPoint(block):
            ir.Operation.create("func.return", operands=[block.operations[0].result])


def module() -> ir.Module:
    return parse_module(TEXT, "f.mlir", make_context())


def test_invalid_ir_at_the_end_names_all_passes_and_says_what_is_wrong():
    with pytest.raises(PassError, match=r"one of the passes `cse, break-return`") as caught:
        run_verified_once(module(), [UpstreamPass("cse"), BreakReturn()])
    assert "returns f32" in str(caught.value) or "operands" in str(caught.value)


def test_what_a_later_pass_mends_is_no_error_in_a_stage_but_one_in_a_pipeline():
    mended = module()
    run_verified_once(mended, [BreakReturn(), MendReturn()])
    mended.operation.verify()
    with pytest.raises(PassError, match="pass `break-return` left invalid IR"):
        run_pipeline(module(), [BreakReturn(), MendReturn()])


def test_a_pass_that_fails_is_named_by_itself():
    with pytest.raises(PassError, match="pass `mend-return` does not handle this module"):
        empty = parse_module("", "empty.mlir", make_context())
        run_verified_once(empty, [UpstreamPass("cse"), MendReturn()])
