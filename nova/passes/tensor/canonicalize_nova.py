"""`canonicalize-nova`: identities, reshapes, transposes and constants of the nova dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from nova.core.dtypes import NARROW_FLOATS, TensorType, converted, f16
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import CONSTANT, create_op, full_name
from nova.ir.emit import emit_constant
from nova.ir.op_attributes import from_attributes
from nova.ir.types import HOST_FLOATS, host_float_elements, nova_type
from nova.ir.walk import function_ops
from nova.ops import OPS
from nova.ops.complex.rows import PAIR
from nova.ops.kernels.rows import TAG
from nova.passes.base import Pass

# Maximum elements of a folded constant: more is better computed than stored.
_FOLD_LIMIT = 64

Rule = Callable[[Any], Any | None]


@record
class CanonicalizeNova(Pass):
    """Apply the rewrites of `RULES` until nothing changes.

    A rule takes one op and returns the value to use instead, or None. Rewrites never change a
    result, NaN and signed zeros included; so `x + 0` is folded for integers only.
    """

    name: ClassVar[str] = "canonicalize-nova"
    max_rounds: int = 8

    def run(self, module: ir.Module) -> None:
        rules_of: dict[str, list[Rule]] = {}
        for rule, names in RULES.items():
            for name in names:
                rules_of.setdefault(full_name(name), []).append(rule)
        ops = function_ops(module, "nova.")
        for _ in range(self.max_rounds):
            changed = {value for op in ops for value in _rewrite(op, rules_of)}
            if not changed:
                break
            ops = [op for op in function_ops(module, "nova.") if op.results[0] in changed]
        _erase_dead(module)


def _rewrite(op: Any, rules_of: dict[str, list[Rule]]) -> list[Any]:
    """Apply the first rule that matches; the results of the ops that may match one from now on.

    A rule looks at an op and at the producers of its operands. So these are the users of the result
    and the ops that the rule has created.
    """
    rules = rules_of.get(op.name, [])
    if op.name != CONSTANT and all(_producer(v, "constant") for v in op.operands):
        rules = [*rules_of.get("nova.*", ()), *rules]
    if not rules or not any(True for _ in op.results[0].uses):
        return []
    with ir.InsertionPoint(op), op.location:
        for rule in rules:
            value = rule(op)
            if value is not None:
                users = [use.owner.operation for use in op.results[0].uses]
                created = [value, *value.owner.operands] if isinstance(value, ir.OpResult) else []
                op.results[0].replace_all_uses_with(value)
                return [*created, *(result for user in users for result in user.results)]
    return []


def _erase_dead(module: ir.Module) -> None:
    for op in reversed(function_ops(module, "nova.")):
        if not any(True for _ in op.results[0].uses):
            op.erase()


# --- reading the IR -----------------------------------------------------------------------------


def _name(op: Any) -> str:
    return op.name.removeprefix("nova.")


def _producer(value: Any, name: str) -> Any | None:
    """The op called nova.`name` that defines `value`, or None."""
    if isinstance(value, ir.OpResult) and value.owner.operation.name == full_name(name):
        return value.owner.operation
    return None


def _constant(value: Any) -> np.ndarray | None:
    """The elements of a constant of at most _FOLD_LIMIT elements."""
    op = _producer(value, "constant")
    if op is None:
        return None
    type_ = nova_type(value.type)
    if type_.size > _FOLD_LIMIT:
        return None
    return _elements(op.attributes["value"], type_)


def _elements(attr: Any, type_: TensorType) -> np.ndarray:
    """A dense attribute as an array; elements are read one by one because it is small."""
    if attr.is_splat:
        items = [attr.get_splat_value().value] * type_.size
    elif type_.dtype in HOST_FLOATS:
        return host_float_elements(attr, type_.dtype).reshape(type_.shape)
    elif type_.dtype is f16:
        return np.array(attr).reshape(type_.shape)  # its items cannot be listed
    else:
        items = list(attr)
    return converted(np.asarray(items), type_.dtype).reshape(type_.shape)


def _is_number(value: Any, number: float) -> bool:
    array = _constant(value)
    return array is not None and array.size > 0 and bool((array == number).all())


def _same_type(op: Any, value: Any) -> Any | None:
    return value if value.type == op.results[0].type else None


def _attrs(op: Any) -> dict[str, Any]:
    row = OPS[_name(op)]
    types = tuple(nova_type(v.type) for v in op.operands)
    attrs = from_attributes(row, op.attributes)
    return row.canon(types, attrs) if row.canon else attrs


# --- the rules ----------------------------------------------------------------------------------


def fold_constants(op: Any) -> Any | None:
    """An op on small constants is its value."""
    row = OPS.get(_name(op))
    result = nova_type(op.results[0].type)
    if row is None or row.numpy is None or not op.operands or result.size > _FOLD_LIMIT:
        return None
    if row.tags & {"structural", "random", TAG, PAIR}:  # no constant of the dialect is complex
        return None
    arrays = [_constant(v) for v in op.operands]
    if any(a is None for a in arrays):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(row.numpy(*arrays, **_attrs(op)))
    return emit_constant(value, result, op.location)


def drop_identities(op: Any) -> Any | None:
    """x*1, x/1, x-0, integer x+0, x**1, detach(x), where(c, x, x), cast to its own type."""
    name, operands = _name(op), list(op.operands)
    if name in ("mul", "div", "pow") and _is_number(operands[1], 1):
        return _same_type(op, operands[0])
    if name == "mul" and _is_number(operands[0], 1):
        return _same_type(op, operands[1])
    if name == "sub" and _is_positive_zero(operands[1]):
        return _same_type(op, operands[0])
    if name == "add" and not nova_type(op.results[0].type).dtype.is_float:
        for value, operand in ((operands[0], operands[1]), (operands[1], operands[0])):
            if _is_number(value, 0) and _same_type(op, operand) is not None:
                return operand
    if name == "where" and operands[1] == operands[2]:
        return _same_type(op, operands[1])
    if name in ("cast", "detach", "reshape", "expand", "sum_to"):
        return _same_type(op, operands[0]) if operands else None
    return None


def _is_positive_zero(value: Any) -> bool:
    # x - 0 is x for every x; x - (-0) turns -0 into 0.
    array = _constant(value)
    return array is not None and bool((array == 0).all()) and not bool(np.signbit(array).any())


def drop_double_negation(op: Any) -> Any | None:
    """neg(neg(x)) is x."""
    inner = _producer(op.operands[0], "neg")
    return inner.operands[0] if inner is not None else None


def square_powers(op: Any) -> Any | None:
    """x**2 is x*x: no logarithm, no loop over the exponent's bits."""
    if not _is_number(op.operands[1], 2):
        return None
    base = op.operands[0]
    if base.type != op.results[0].type:
        return None
    return create_op(OPS["mul"], [base, base], nova_type(base.type), {})


def merge_reshapes(op: Any) -> Any | None:
    """reshape(reshape(x)) is one reshape."""
    inner = _producer(op.operands[0], "reshape")
    if inner is None:
        return None
    result = nova_type(op.results[0].type)
    return create_op(OPS["reshape"], [inner.operands[0]], result, {"shape": result.shape})


def merge_permutes(op: Any) -> Any | None:
    """permute(permute(x)) is one permute, or none."""
    axes = _attrs(op)["axes"]
    if axes == tuple(range(len(axes))):
        return op.operands[0]
    inner = _producer(op.operands[0], "permute")
    if inner is None:
        return None
    first = _attrs(inner)["axes"]
    merged = tuple(first[a] for a in axes)
    return create_op(
        OPS["permute"], [inner.operands[0]], nova_type(op.results[0].type), {"axes": merged}
    )


def merge_flips(op: Any) -> Any | None:
    """flip(flip(x)) over the same axes is x."""
    inner = _producer(op.operands[0], "flip")
    if inner is not None and _attrs(inner) == _attrs(op):
        return inner.operands[0]
    return None


def widen_last(op: Any) -> Any | None:
    """Moving elements of a widened 16-bit float is widening the moved elements."""
    cast = _producer(op.operands[0], "cast")
    if cast is None or not _narrows(op.operands[0], cast.operands[0]):
        return None
    source, result = cast.operands[0], nova_type(op.results[0].type)
    narrow = TensorType(result.shape, nova_type(source.type).dtype)
    moved = create_op(OPS[_name(op)], [source, *list(op.operands)[1:]], narrow, _attrs(op))
    return create_op(OPS["cast"], [moved], result, {"dtype": result.dtype})


def narrow_first(op: Any) -> Any | None:
    """Rounding a reshaped tensor to a 16-bit float is reshaping the rounded one."""
    reshape = _producer(op.operands[0], "reshape")
    if reshape is None or not _narrows(op.operands[0], op.results[0]):
        return None
    source, result = reshape.operands[0], nova_type(op.results[0].type)
    narrow = TensorType(nova_type(source.type).shape, result.dtype)
    rounded = create_op(OPS["cast"], [source], narrow, {"dtype": result.dtype})
    return create_op(OPS["reshape"], [rounded], result, {"shape": result.shape})


def drop_round_trips(op: Any) -> Any | None:
    """A widened float that is rounded to its own type is itself."""
    inner = _producer(op.operands[0], "cast")
    if inner is None or not _narrows(op.operands[0], inner.operands[0]):
        return None
    return _same_type(op, inner.operands[0])


def _narrows(wide: Any, narrow: Any) -> bool:
    """Whether the elements of one value are wider floats than the narrow floats of another."""
    first, second = nova_type(wide.type).dtype, nova_type(narrow.type).dtype
    return second in NARROW_FLOATS and first.is_float and first.bits > second.bits


# In the order in which they are tried, with their ops; `*` is any op on constants.
RULES: dict[Rule, tuple[str, ...]] = {
    fold_constants: ("*",),
    drop_identities: (
        *("mul", "div", "pow", "sub", "add", "where"),
        *("cast", "detach", "reshape", "expand", "sum_to"),
    ),
    drop_double_negation: ("neg",),
    square_powers: ("pow",),
    merge_reshapes: ("reshape",),
    merge_permutes: ("permute",),
    merge_flips: ("flip",),
    # The tensor between two kernels has 16 bits per element.
    widen_last: ("reshape", "gather"),
    narrow_first: ("cast",),
    drop_round_trips: ("cast",),
}
