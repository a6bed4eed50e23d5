"""Ops that users write: `nova.custom_op`, with a body in Nova ops, loops, or MLIR text."""

from nova.api.custom.op import CustomOp, custom_op

__all__ = ["CustomOp", "custom_op"]
