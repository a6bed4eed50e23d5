"""`decompose-composites`: composite ops become the rows they are composed of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.graph.autodiff import expand_composite
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ir.bindings import ir
from nova.ir.dialect import create_op, op_type
from nova.ir.emit import emit_constant
from nova.ir.types import nova_type
from nova.ir.walk import function_ops
from nova.ops import OPS
from nova.ops.table import CPU_KERNEL, Op
from nova.passes.base import Pass


@record
class DecomposeComposites(Pass):
    """Replace every composite nova op by primitives.

    The `compose` column of the row is traced over placeholders of the operands' types, and the
    resulting small graph is emitted in place of the op, at the op's location. Nested composites are
    expanded too. Afterwards the module has only primitive nova ops. With `keep-whole=true`, it also
    has the composites whose `has_kernel` column says that the schedules have code for them:
    `form-attention` handles those, or their `lower` column. With `cpu=false`, for a device, those
    that only CPUs have code for are expanded.
    """

    name: ClassVar[str] = "decompose-composites"
    keep_whole: bool = False
    cpu: bool = True

    def run(self, module: ir.Module) -> None:
        for op in function_ops(module, "nova."):
            row = OPS.get(op.name.removeprefix("nova."))
            if row is None or row.kind != "composite":
                continue
            result_type, attrs, types = op_type(row, op)
            if self._is_kept(row, types, attrs):
                continue
            leaves = [Tensor(t) for t in types]
            node = Tensor(result_type, op=row, inputs=tuple(leaves), attrs=attrs)
            values = dict(zip(leaves, list(op.operands), strict=True))
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_emit(node, values, self._is_kept))
            op.erase()

    def _is_kept(self, row: Op, types: tuple[TensorType, ...], attrs: dict[str, Any]) -> bool:
        if not self.keep_whole or row.has_kernel is None:
            return False
        return (self.cpu or CPU_KERNEL not in row.tags) and row.has_kernel(types, attrs)


def emit_graph(build: Callable[..., Tensor], operands: Sequence[Any]) -> Any:
    """The value of the graph that `build` makes of tensors like `operands`, without composites.

    It is emitted at the insertion point.
    """
    leaves = [Tensor(nova_type(value.type)) for value in operands]
    values = dict(zip(leaves, operands, strict=True))
    result = build(*leaves)
    for node in topological([result], stop=leaves):
        if node not in values:
            values[node] = _emit(node, values, lambda *_: False)
    return values[result]


def _emit(node: Tensor, values: dict[Tensor, Any], is_kept: Callable[..., bool]) -> Any:
    """The value of a graph node, emitted at the insertion point; operands are in `values`.

    `values` holds the tensors themselves, which keeps the traced expansion alive.
    """
    op = node.op
    if op is None:
        assert node.data is not None
        return emit_constant(node.data, node.type, ir.Location.current)
    types = tuple(value.type for value in node.inputs)
    if op.kind == "composite" and not is_kept(op, types, node.attrs):
        expanded = expand_composite(node, node.inputs)
        inner = topological([expanded], stop=node.inputs)
        for part in inner:
            if part not in values:
                values[part] = _emit(part, values, is_kept)
        return values[expanded]
    return create_op(op, [values[i] for i in node.inputs], node.type, node.attrs)
