"""`dump_dot`: the graph of a tensor as Graphviz text; gradient nodes are drawn differently."""

from __future__ import annotations

from nova.core.user_facing import user_facing
from nova.graph.order import topological
from nova.graph.tensor import Tensor


@user_facing
def dump_dot(*outputs: Tensor) -> str:
    """DOT text of all nodes that the outputs need, and of the gradients of their leaves, if any.

    Leaves are boxes (grey with data, blue if they require gradients), ops are ellipses, gradient
    computations are dashed.
    """
    forward = topological(outputs)
    grads = [t.grad for t in forward if t.is_leaf and t.grad is not None]
    forward_ids = {id(t) for t in forward}
    nodes = forward + [t for t in topological(grads) if id(t) not in forward_ids]
    number = {id(t): i for i, t in enumerate(nodes)}
    lines = ["digraph nova {", "  rankdir=TB; node [fontname=monospace];"]
    for t in nodes:
        lines.append(f"  n{number[id(t)]} [{_style(t, id(t) in forward_ids)}];")
        lines += [f"  n{number[id(i)]} -> n{number[id(t)]};" for i in t.inputs]
    for t in forward:
        if t.is_leaf and t.grad is not None:
            edge = f"n{number[id(t.grad)]} -> n{number[id(t)]}"
            lines.append(f'  {edge} [style=dotted, label="grad"];')
    return "\n".join([*lines, "}"]) + "\n"


def _style(t: Tensor, forward: bool) -> str:
    title = t.op.name if t.op else t.name or ("input" if t.data is None else "constant")
    attrs = "".join(f"\\n{k}={v}" for k, v in t.attrs.items() if v is not None)
    label = f"{title}{attrs}\\n{t.type}".replace('"', "'")
    tip = f'tooltip="{t.location}"'.replace("\\", "/")
    if t.op is None:
        color = "lightblue" if t.requires_grad else "lightgrey"
        return f'label="{label}", shape=box, style=filled, fillcolor={color}, {tip}'
    return f'label="{label}", {tip}' + ("" if forward else ", style=dashed")
