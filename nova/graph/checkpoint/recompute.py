"""`checkpoint(f)`: rematerializes a sub-graph in the backward pass (gradient checkpointing).

Nodes that `f` builds carry a region number. When the backward pass needs the value of such a node
it gets a copy of the region's computation over *barriers* on the region's inputs. A barrier
is an identity that no pass looks through, so common-subexpression elimination cannot merge the
copy with the original, and the original's buffers die at the end of the forward pass.

A policy says which nodes of the region are saved after all: they are inputs of the copy, as if they
came from outside (`checkpoint_policies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import count
from typing import Any

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import OptionTypeError
from nova.graph.build import apply, copy_node
from nova.graph.checkpoint.checkpoint_policies import Policy
from nova.graph.order import topological
from nova.graph.tensor import Tensor, checkpoint_region
from nova.ops import OPS

_regions = count(1)
_policies: dict[int, Policy] = {}
"""The policies of regions; a region without one saves nothing."""


@user_facing
def checkpoint(
    function: Callable[..., Any] | None = None, *, policy: Policy | None = None
) -> Callable[..., Any]:
    """`function`, whose intermediate values are recomputed for the gradient.

    `policy` says which values are saved instead: one of `nova.checkpoint_policies`, or a function
    from a tensor to a bool. Without it, none is.
    """
    if policy is not None and not callable(policy):
        raise OptionTypeError(
            f"checkpoint: policy is a {type(policy).__name__}",
            where=str(user_location()),
            hint="one of nova.checkpoint_policies, or a function from a tensor to a bool",
        )
    if function is None:
        return partial(checkpoint, policy=policy)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        region = next(_regions)
        if policy is not None:
            _policies[region] = policy
        with checkpoint_region(region):
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
        region = node.region
        if not region:
            return node, node.inputs
        if _is_saved(node):
            self._copy_inside(node.inputs, region, grad)
            operands = tuple(self._operand(o, region, grad) for o in node.inputs)
            return self._operand(node, region, grad), operands
        self._copy_inside([node], region, grad)
        copy = self._copies[id(node)]
        return copy, copy.inputs

    def _copy_inside(self, nodes: Sequence[Tensor], region: int, grad: Tensor) -> None:
        """Copy the nodes of the region that these nodes need, up to saved ones."""
        needed = [n for n in nodes if _is_recomputed(n, region)]
        saved = [n for n in topological(needed) if n.region == region and _is_saved(n)]
        for original in topological(needed, stop=saved):
            if not _is_recomputed(original, region) or id(original) in self._copies:
                continue
            operands = tuple(self._operand(o, region, grad) for o in original.inputs)
            copy = copy_node(original, operands)
            copy.region = 0
            self._copies[id(original)] = copy
            self._alive.append(original)

    def _operand(self, operand: Tensor, region: int, grad: Tensor) -> Tensor:
        if _is_recomputed(operand, region):
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


def _is_recomputed(node: Tensor, region: int) -> bool:
    return node.region == region and node.op is not None and not _is_saved(node)


def _is_saved(node: Tensor) -> bool:
    """Whether the policy of its region saves a node; one with several results is not one value."""
    policy = _policies.get(node.region)
    if policy is None or node.op is None or node.result_types:
        return False
    return bool(policy(node))
