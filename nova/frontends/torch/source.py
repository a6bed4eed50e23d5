"""Names of ops and lines of the user's program, from nodes of an FX graph."""

from __future__ import annotations

import re
from typing import Any

import torch

from nova.core.location import Location

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_UNKNOWN = Location("<torch.fx graph>", 0)


def op_name(target: Any) -> str:
    """`aten.add.Tensor` for an op of torch, else the name of the function."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def location_of(node: torch.fx.Node) -> Location:
    """The innermost line of the user's program that created the node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return Location(frames[-1][0], int(frames[-1][1])) if frames else _UNKNOWN
