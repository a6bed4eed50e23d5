"""Functions of Nova's tensors as code of an imported program.

In: a function of tensors, and values of a module. Out: the values of its results, computed by
linalg and loops at the insertion point. So an op that no conversion lowers, such as a Fourier
transform, is written once, with Nova's ops. Called by rewrites of imported ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.graph.tensor import Tensor
from nova.ir.emit import emit_inline
from nova.ir.types import nova_type
from nova.ir.walk import every_op
from nova.passes.tensor.convert_nova_to_linalg import convert_ops
from nova.plan.build import build_plan
from nova.plan.expand import expand_composites


def inline_graph(function: Callable[..., Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """The results of `function` on tensors for `values`, emitted at the insertion point."""
    leaves = [Tensor(nova_type(value.type)) for value in values]
    plan = expand_composites(build_plan(list(function(*leaves)), inputs=leaves))
    return emit_inline(plan, values)


def lower_inlined(module: Any) -> None:
    """Convert the ops that `inline_graph` has emitted, also inside of loops."""
    convert_ops([op for op in every_op(module, outer_first=True) if op.name.startswith("nova.")])
