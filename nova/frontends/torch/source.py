"""Names of ops and lines of the user's program, from nodes of an FX graph."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from nova.core.location import Location

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_UNKNOWN = Location("<torch.fx graph>", 0)


def op_name(target: Any) -> str:
    """`aten.add.Tensor` for an op of torch, else the name of the function."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def location_of(node: torch.fx.Node) -> Location:
    """The innermost line outside of torch that created the node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    users = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    for file, line in reversed(users or frames):
        return Location(file, int(line))
    return _UNKNOWN
