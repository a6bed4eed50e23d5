"""`checkpoint(f)`: rematerializes a sub-graph in the backward pass (gradient checkpointing).

Nodes that `f` builds carry a region number. When the backward pass needs the value of such a node
it gets a copy of the region's computation over *barriers* on the region's inputs. A barrier
is an identity that no pass looks through, so common-subexpression elimination cannot merge the
copy with the original, and the original's buffers die at the end of the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from typing import Any

from nova.core.user_facing import user_facing
from nova.graph.build import apply, copy_node
from nova.graph.order import topological
from nova.graph.tensor import Tensor, checkpoint_region
from nova.ops import OPS

_regions = count(1)


@user_facing
def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose intermediate values are recomputed for the gradient."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with checkpoint_region(next(_regions)):
            return function(*args, **kwargs)

    return wrapped


class Recompute:
    """The copies of checkpointed nodes that one backward pass has created."""

    def __init__(self) -> None:
        self._copies: dict[int, Tensor] = {}
        self._barriers: dict[tuple[int, int], Tensor] = {}
        self._alive: list[Tensor] = []

    def values(self, node: Tensor, grad: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """The node and its operands as the backward pass reads them."""
        if not node.region:
            return node, node.inputs
        copy = self._copy(node, grad)
        return copy, copy.inputs

    def _copy(self, node: Tensor, grad: Tensor) -> Tensor:
        region = node.region
        inside = [n for n in topological([node]) if n.region == region and n.op is not None]
        for original in inside:
            if id(original) in self._copies:
                continue
            operands = tuple(self._operand(o, region, grad) for o in original.inputs)
            copy = copy_node(original, operands)
            copy.region = 0
            self._copies[id(original)] = copy
            self._alive.append(original)
        return self._copies[id(node)]

    def _operand(self, operand: Tensor, region: int, grad: Tensor) -> Tensor:
        if operand.region == region and operand.op is not None:
            return self._copies[id(operand)]
        if operand.is_leaf and operand.data is not None and not operand.requires_grad:
            return operand
        key = (id(operand), region)
        if key not in self._barriers:
            with checkpoint_region(0):
                # The barrier depends on a gradient, so the recomputation cannot be moved
                # before the end of the forward pass.
                self._barriers[key] = apply(OPS["barrier"], (operand, grad), {"region": region})
            self._alive.append(operand)
        return self._barriers[key]
