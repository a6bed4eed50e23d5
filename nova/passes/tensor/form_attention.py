"""`form-attention`: merges the ops of an attention, and folds the views around them.

The merged ops are lowered by FlashAttention-2 schedules (`nova/codegen/*/attention/`), which need
the logsumexp of the forward for the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from nova.core.dtypes import TensorType, accumulator
from nova.core.records import record
from nova.ir.attention_ops import (
    AXES,
    OPERANDS,
    RESULTS,
    ROLES,
    SEGMENTS,
    emit_attention,
    splits_gradient,
)
from nova.ir.attributes import DEVICE
from nova.ir.bindings import ir
from nova.ir.dialect import create_op, full_name, op_type
from nova.ir.types import nova_type, tensor_type
from nova.ir.walk import function_ops
from nova.ops import OPS
from nova.passes.base import Pass
from nova.passes.tensor.attention_views import fold_views
from nova.passes.tensor.joined_gradients import JoinedGradients, match_joined_gradients

_LOGSUMEXPS = tuple(map(full_name, ("attention_logsumexp", "segment_attention_logsumexp")))
_RESULTS = tuple(
    map(full_name, ("scaled_dot_product_attention", "dropout_attention", "segment_attention"))
)
_GRADIENTS = tuple(
    map(
        full_name,
        ("attention_gradient", "dropout_attention_gradient", "segment_attention_gradient"),
    )
)
_DROPOUTS = tuple(map(full_name, ("dropout_attention", "dropout_attention_gradient")))
_SCORES = ("q", "k", *SEGMENTS, "mask")
"""The operands that scores depend on."""


@record
class FormAttention(Pass):
    """Make `nova.attend` and `nova.attend_gradient` of the attention ops that were kept whole.

    The result and the logsumexp of the same queries and keys become one op, and so do the gradients
    of q, k and v. Operands are read in place: slices, reshapes, transposes and broadcasts become
    indexing maps. A transposed result is written in that order, features innermost. Results have
    the accumulator's type, and are rounded afterwards. With `pack`, for a device, gradients of q, k
    and v that the program joins, as it does where a matmul computes all three, are written into one
    tensor.
    """

    name: ClassVar[str] = "form-attention"
    pack: bool = False

    def run(self, module: ir.Module) -> None:
        for ops in [*_forward_groups(module), *_gradient_groups(module)]:
            position = _position(ops)
            if position is not None:
                self._form(ops, position)
                continue
            for op in ops:
                self._form([op], op)

    def _form(self, ops: list[Any], position: Any) -> None:
        with ir.InsertionPoint(position), ops[0].location:
            builder = _AttentionBuilder(ops)
            joined = builder.joined() if self.pack else None
            if joined is None:
                builder.form()
            else:
                builder.form_packed(joined)


def _position(ops: Sequence[Any]) -> Any | None:
    """The first op of a group that comes after the operands of all: the merged op replaces it.

    None if a result is used before it.
    """
    position = ops[0]
    for op in ops[1:]:
        if any(_is_defined_after(value, position) for value in op.operands):
            position = op
    for op in ops:
        if op == position:
            return position
        if any(_in_block(use.owner, op).is_before_in_block(position) for use in op.results[0].uses):
            return None
    return position


def _is_defined_after(value: Any, op: Any) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    return owner.parent == op.parent and not owner.operation.is_before_in_block(op.operation)


def _in_block(user: Any, op: Any) -> Any:
    """The op of the block of `op` that is `user`, or has it in a region."""
    user = user.operation
    while user.parent != op.parent:
        user = user.parent.operation
    return user


def _forward_groups(module: ir.Module) -> list[list[Any]]:
    """Results, each with the logsumexp of the same scores, if the program has it."""
    ops = [op for op in function_ops(module, "nova.") if op.name in (*_RESULTS, *_LOGSUMEXPS)]
    first: dict[Any, Any] = {}
    for op in ops:
        if op.name in _RESULTS:
            first.setdefault(_scores_key(op), _key(op))
    return _grouped(ops, lambda op: _key(op) if op.name in _RESULTS else first.get(_scores_key(op)))


def _gradient_groups(module: ir.Module) -> list[list[Any]]:
    ops = [op for op in function_ops(module, "nova.") if op.name in _GRADIENTS]
    return _grouped(ops, _key)


def _grouped(ops: Sequence[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for op in ops:
        # A logsumexp without a result is grouped with those of the same scores.
        group = key(op) or _scores_key(op)
        groups.setdefault(group, []).append(op)
    return list(groups.values())


def _operands(op: Any) -> dict[str, Any]:
    """The operands of an attention op, by the names of its row; a seed only with dropout."""
    names = [name.rstrip("?") for name in OPS[op.name.removeprefix("nova.")].operands]
    operands = dict(zip(names, op.operands, strict=False))
    if not _attrs(op).get("dropout") and op.name not in _DROPOUTS:
        operands.pop("seed", None)
    return operands


def _attrs(op: Any) -> dict[str, Any]:
    return op_type(OPS[op.name.removeprefix("nova.")], op)[1]


def _batch(op: Any) -> tuple[int, ...]:
    if op.name in _GRADIENTS:
        return nova_type(op.operands[0].type).shape[:-2]
    shape = nova_type(op.results[0].type).shape
    return shape[:-1] if op.name in _LOGSUMEXPS else shape[:-2]


def _scores_key(op: Any) -> tuple[Any, ...]:
    """What the ops of the same scores share; those of several batches of values do not."""
    operands, attrs = _operands(op), _attrs(op)
    scores = tuple(operands.get(name) for name in _SCORES)
    return op.parent, scores, attrs["causal"], attrs["scale"], _batch(op)


def _key(op: Any) -> tuple[Any, ...]:
    """What the ops share that are computed together."""
    others = {n: value for n, value in _operands(op).items() if n not in _SCORES}
    return (*_scores_key(op), tuple(others.items()), _attrs(op).get("dropout"))


class _AttentionBuilder:
    """Builds one op from the attention ops of a group."""

    def __init__(self, ops: list[Any]):
        self.ops = ops
        self.name = "attend_gradient" if ops[0].name in _GRADIENTS else "attend"
        # A logsumexp has neither values nor a seed.
        first = next((op for op in ops if op.name not in _LOGSUMEXPS), ops[0])
        # The logsumexp alone has no values: any rows serve.
        operands = {"v": ops[0].operands[1], **_operands(first)}
        names = OPERANDS[self.name]
        self.extras = tuple(n for n in operands if n not in names)
        self.operands = {n: operands[n] for n in (*names, *self.extras)}
        q, k, v = (nova_type(self.operands[n].type) for n in "qkv")
        attrs = _attrs(first)
        self.causal, self.scale = attrs["causal"], attrs["scale"]
        self.dropout = attrs.get("dropout", 0.0)
        self.dtype = accumulator(q.dtype)
        self.batch = _batch(first)
        self.sizes = (*self.batch, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])

    def form(self) -> None:
        operands = self._folded_operands()
        orders = {n: self._order(n) for n in RESULTS[self.name]}
        results = []
        for n, order in orders.items():
            loops = self._all_loops(n)
            shape = [self.sizes[loops[axis]] for axis in order]
            dims = [ir.AffineDimExpr.get(loops[axis]) for axis in order]
            type_ = tensor_type(TensorType(tuple(shape), self.dtype), dialect=True)
            results.append((type_, ir.AffineMap.get(len(self.sizes), 0, dims)))
        attention_results = emit_attention(
            self.name,
            operands,
            results,
            causal=self.causal,
            scale=self.scale,
            extras=self.extras,
            dropout=self.dropout,
        )
        for op in self.ops:
            n = _result_name(op)
            value = attention_results[RESULTS[self.name].index(n)]
            _replace(op, _narrowed(value, nova_type(op.results[0].type)), orders[n])
        for op in self.ops:
            op.erase()

    def joined(self) -> JoinedGradients | None:
        """The join of the gradients, if it is their only use, and if one op computes them."""
        if self.name != "attend_gradient" or DEVICE.has(self.ops[0].parent):
            return None
        if splits_gradient(self.sizes):
            return None
        return match_joined_gradients({_result_name(op): op for op in self.ops})

    def form_packed(self, joined: JoinedGradients) -> None:
        """One tensor with an axis for q, k and v before the axes that the join merges."""
        results = []
        for number, n in enumerate(RESULTS[self.name]):
            loops = self._all_loops(n)
            dims: list[Any] = [ir.AffineDimExpr.get(loops[axis]) for axis in joined.order]
            dims.insert(joined.axis, ir.AffineConstantExpr.get(number))
            type_ = tensor_type(TensorType(joined.shape, self.dtype), dialect=True)
            results.append((type_, ir.AffineMap.get(len(self.sizes), 0, dims)))
        packed, *_ = emit_attention(
            self.name,
            self._folded_operands(),
            results,
            causal=self.causal,
            scale=self.scale,
            packed=True,
            extras=self.extras,
            dropout=self.dropout,
        )
        target = nova_type(joined.join.results[0].type)
        value = _narrowed(packed, target)
        value = create_op(OPS["reshape"], [value], target, {"shape": target.shape})
        joined.join.results[0].replace_all_uses_with(value)
        for op in (joined.join, *joined.views, *self.ops):
            op.erase()

    def _folded_operands(self) -> list[tuple[Any, Any]]:
        folded = self._fold(frozenset())
        # A view of one row or key may lose its loop, which an operand has to have.
        read = {
            expr.position
            for _, map_ in folded
            for expr in map_.results
            if isinstance(expr, ir.AffineDimExpr)
        }
        roles = range(len(self.batch), len(self.batch) + len(ROLES))
        lost = frozenset(loop for loop in roles if loop not in read)
        return self._fold(lost) if lost else folded

    def _fold(self, kept_loops: frozenset[int]) -> list[tuple[Any, Any]]:
        return [
            fold_views(value, self._loops(n, nova_type(value.type).shape), self.sizes, kept_loops)
            for n, value in self.operands.items()
        ]

    def _loops(self, name: str, shape: Sequence[int]) -> list[int | None]:
        """The loop of each axis of an operand; None where it is broadcast."""
        loops = self._all_loops(name)
        loops = loops[len(loops) - len(shape) :]
        return [d if self.sizes[d] == n else None for d, n in zip(loops, shape, strict=True)]

    def _all_loops(self, name: str) -> list[int]:
        batch = len(self.batch)
        return [*range(batch), *(batch + ROLES.index(r) for r in AXES[name])]

    def _order(self, name: str) -> tuple[int, ...]:
        """The order of a result's axes: that of a transpose of it, if there is one."""
        identity = tuple(range(len(self._all_loops(name))))
        for op in self.ops:
            if _result_name(op) == name:
                transposes = (_transpose(use.owner.operation) for use in op.results[0].uses)
                return next((axes for axes in transposes if axes is not None), identity)
        return identity


def _result_name(op: Any) -> str:
    if op.name in _GRADIENTS:
        return str(op.attributes["of"].value) if "of" in op.attributes else "q"
    return "out" if op.name in _RESULTS else "logsumexp"


def _transpose(op: Any) -> tuple[int, ...] | None:
    """The axes of a transpose that leaves the last axis where it is."""
    if op.name != full_name("permute"):
        return None
    axes = tuple(op.attributes["axes"])
    return axes if axes[-1] == len(axes) - 1 else None


def _narrowed(value: Any, target: TensorType) -> Any:
    type_ = nova_type(value.type)
    if type_.dtype is target.dtype:
        return value
    out = type_.with_dtype(target.dtype)
    return create_op(OPS["cast"], [value], out, {"dtype": target.dtype})


def _replace(op: Any, value: Any, order: tuple[int, ...]) -> None:
    """Use `value`, the result of `op` with its axes in another order, instead of it."""
    if order != tuple(range(len(order))):
        for use in list(op.results[0].uses):
            if _transpose(use.owner.operation) == order:
                use.owner.operation.results[0].replace_all_uses_with(value)
        back = tuple(order.index(axis) for axis in range(len(order)))
        type_ = nova_type(op.results[0].type)
        value = create_op(OPS["permute"], [value], type_, {"axes": back})
    op.results[0].replace_all_uses_with(value)
