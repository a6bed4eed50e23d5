"""Copies ops with other operands."""

from __future__ import annotations

from typing import Any


def clone_into(op: Any, mapping: dict[Any, Any]) -> Any:
    """Copy `op` to the insertion point, with operands (also nested ones) from `mapping`.

    `mapping` gains the results.
    """
    new = op.clone()
    _remap(new, mapping)
    mapping.update(zip(op.results, new.results, strict=True))
    return new


def _remap(op: Any, mapping: dict[Any, Any]) -> None:
    for i, operand in enumerate(op.operands):
        if operand in mapping:
            op.operands[i] = mapping[operand]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                _remap(inner.operation, mapping)
