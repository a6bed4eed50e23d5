"""Graph traversal: topological order, and the nodes between outputs and chosen inputs."""

from __future__ import annotations

from collections.abc import Iterable

from nova.errors import GraphError
from nova.graph.tensor import Tensor

_OPEN, _VISITED = 1, 2


def topological(outputs: Iterable[Tensor], stop: Iterable[Tensor] = ()) -> list[Tensor]:
    """Every tensor that `outputs` need, inputs first; deterministic, without recursion.

    Tensors in `stop` are listed but not entered. A cycle is a GraphError.
    """
    stop_ids = {id(t) for t in stop}
    state: dict[int, int] = {}
    order: list[Tensor] = []
    for output in outputs:
        stack = [output]
        while stack:
            node = stack[-1]
            progress = state.get(id(node))
            if progress == _VISITED:
                stack.pop()
                continue
            if progress == _OPEN:
                state[id(node)] = _VISITED
                order.append(stack.pop())
                continue
            state[id(node)] = _OPEN
            if id(node) in stop_ids:
                continue
            for source in reversed(node.inputs):
                if state.get(id(source)) == _OPEN:
                    raise GraphError(
                        f"the graph has a cycle through {source!r}",
                        where=str(source.location),
                        hint="tensors are immutable; build a new one instead of changing inputs",
                    )
                if id(source) not in state:
                    stack.append(source)
    return order


def dependents(order: list[Tensor], sources: Iterable[Tensor]) -> set[int]:
    """The ids of tensors in `order` that depend on any of `sources` through differentiable ops."""
    ids = {id(t) for t in sources}
    for node in order:
        if (
            node.op is not None
            and not node.stopped
            and node.op.name != "detach"
            and (node.dtype.is_differentiable or node.result_types)
            and any(id(i) in ids for i in node.inputs)
        ):
            ids.add(id(node))
    return ids


def reached_by_gradients(loss: Tensor) -> set[int]:
    """The ids of the tensors that a gradient of `loss` flows to."""
    reached = {id(loss)}
    for node in reversed(topological([loss])):
        if id(node) in reached and node.op is not None and node.requires_grad:
            reached.update(id(i) for i in node.inputs if i.dtype.is_differentiable)
    return reached
