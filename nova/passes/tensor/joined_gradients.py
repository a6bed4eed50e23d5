"""Matches gradients of q, k and v that a program only joins.

`form-attention` calls `match_joined_gradients` with the ops of an attention's gradients. A model
that computes queries, keys and values by one matmul and slices its result joins their gradients:
each is transposed, its heads and features are merged, and the three lie one after the other.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.core.records import record
from nova.ir.attention_ops import RESULTS
from nova.ir.dialect import full_name, op_type
from nova.ir.types import nova_type
from nova.ops import OPS


@record
class JoinedGradients:
    """The join, the views between the gradients and it, and the tensor that it makes.

    `order` are the axes of a gradient in the order of that tensor, which has the shape `shape`:
    its axis `axis` is the one of q, k and v.
    """

    join: Any
    views: tuple[Any, ...]
    order: tuple[int, ...]
    axis: int
    shape: tuple[int, ...]


def match_joined_gradients(ops: dict[str, Any]) -> JoinedGradients | None:
    """The join of the gradients of q, k and v, in this order, if it is the only use of each."""
    if set(ops) != set(RESULTS["attend_gradient"]):
        return None
    chains = [_chain(ops[name]) for name in RESULTS["attend_gradient"]]
    joins = [chain[-1] if chain else None for chain in chains]
    join = joins[0]
    if join is None or any(other != join for other in joins):
        return None
    last = [
        chain[-2] if len(chain) > 1 else op for chain, op in zip(chains, ops.values(), strict=True)
    ]
    if list(join.operands) != [op.results[0] for op in last]:
        return None
    layouts = [_layout(op, chain[:-1]) for op, chain in zip(ops.values(), chains, strict=True)]
    order, shape = layouts[0] if layouts[0] else ((), ())
    if not order or any(layout != layouts[0] for layout in layouts):
        return None
    axis = op_type(OPS["join"], join)[1]["axis"] % len(nova_type(join.results[0].type).shape)
    joined = nova_type(join.results[0].type).shape
    if joined != (*shape[:axis], len(ops) * prod(shape[axis:])):
        return None
    views = tuple(op for chain in chains for op in reversed(chain[:-1]))
    return JoinedGradients(join, views, order, axis, (*shape[:axis], len(ops), *shape[axis:]))


def _chain(op: Any) -> list[Any]:
    """The only uses of an op, one after the other, to a join, over a transpose and a reshape."""
    chain = []
    for name in ("permute", "reshape", "join"):
        uses = [use.owner.operation for use in op.results[0].uses]
        if len(uses) == 1 and uses[0].name == full_name(name):
            op = uses[0]
            chain.append(op)
    return chain if chain and chain[-1].name == full_name("join") else []


def _layout(op: Any, views: list[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The order of a gradient's axes, features last, and its shape in this order."""
    shape = nova_type(op.results[0].type).shape
    order = tuple(range(len(shape)))
    for view in views:
        if view.name == full_name("permute"):
            order = tuple(int(axis) for axis in view.attributes["axes"])
    return (order, tuple(shape[axis] for axis in order)) if order[-1] == len(order) - 1 else None
