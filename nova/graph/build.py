"""Applies a row of the op table to tensors: operand checks, casts, attributes, result type.

Only this file creates op nodes. Errors raised by a row's rules get the op's name and
the user's line here.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, bool_, i64, promote_all, weak
from nova.core.dtypes import constant as number_array
from nova.core.dtypes import dtype as as_dtype
from nova.core.location import at, user_location, warn_user
from nova.core.sizes import SizeExpr
from nova.errors import (
    ArgumentCountError,
    ArgumentTypeError,
    AttributeValueError,
    DTypeError,
    GradientError,
    NovaError,
    UnknownKeywordError,
)
from nova.graph.tensor import Tensor, as_array, number_type, on_device
from nova.graph.tensor import tensor as make_tensor
from nova.ops import OPS, REQUIRED, F, Op
from nova.ops.complex.parts import is_complex
from nova.ops.complex.rows import PAIR, PARTS
from nova.ops.complex.rules import ALWAYS, RULES

_NUMBER = (bool, int, float, complex)


def apply(op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> Tensor:
    """The node `op(operands, **attrs)`."""
    try:
        attrs = _attributes(op, attrs)
        values = _operands(op, operands)
        if op.name in ALWAYS or _has_complex(values, attrs):
            result = _apply_complex(op, values, attrs)
            if result is not NotImplemented:
                return result
        tensors = _cast_operands(op, values)
        types = tuple(t.type for t in tensors)
        if op.canon is not None:
            attrs = op.canon(types, attrs)
        if op.infer is None:
            raise AttributeValueError(f"the row of {op.name!r} has no type rule")
        type_ = op.infer(types, attrs)
        warn_of_shapes(op, [t.shape for t in types])
    except NovaError as error:
        raise error.located(str(user_location()), f"{op.name}: ") from None
    return make_node(op, tensors, attrs, type_)


def warn_of_shapes(op: Op, shapes: Sequence[Any]) -> None:
    """The warning of a row for operands of these shapes."""
    warning = None if op.advise is None else op.advise(*shapes)
    if warning is not None:
        warn_user(warning)


def _has_complex(values: Sequence[Any], attrs: dict[str, Any]) -> bool:
    return any(is_complex(v) for v in (*values, attrs.get("value"))) or (
        attrs.get("dtype") is not None and as_dtype(attrs["dtype"]).is_complex
    )


def _apply_complex(op: Op, values: list[Any], attrs: dict[str, Any]) -> Any:
    """The rule of a row for complex operands; NotImplemented if the row itself takes them."""
    rule = RULES.get(op.name)
    if rule is None:
        raise DTypeError(
            "complex numbers are not supported",
            hint="compute with nova.real(x) and nova.imag(x), or with nova.abs(x)",
        )
    return rule(F, *values, **attrs)


def make_node(
    op: Op, tensors: tuple[Tensor, ...], attrs: dict[str, Any], type_: TensorType
) -> Tensor:
    """A node whose operands and attributes are already canonical."""
    node = Tensor(type_, op=op, inputs=tensors, attrs=attrs)
    node.requires_grad = (
        not node.stopped
        and type_.dtype.is_differentiable
        and op.name != "detach"
        and any(t.requires_grad for t in tensors)
    )
    return node


def copy_node(node: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """The op of a node over other inputs of the same types."""
    assert node.op is not None
    if node.op.name in PARTS and inputs[0].op is OPS[PAIR]:
        return inputs[0].inputs[PARTS.index(node.op.name)]
    with at(node.location), on_device(node.device):
        copy = Tensor(node.type, op=node.op, inputs=inputs, attrs=node.attrs)
    copy.region, copy.stopped = node.region, node.stopped
    copy.regions, copy.result_types = node.regions, node.result_types
    copy.requires_grad = not node.stopped and any(t.requires_grad for t in inputs)
    return copy


def constant(value: Any, dtype: DType) -> Tensor:
    """A leaf that holds a constant of type `dtype`."""
    array = number_array(value, dtype)
    return Tensor(TensorType(array.shape, dtype), data=array, fixed=True)


def _operands(op: Op, operands: Sequence[Any]) -> list[Any]:
    if op.variadic and len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = operands[0]
    values = list(operands)
    while values and values[-1] is None:
        values.pop()
    top = op.max_operands
    if len(values) < op.min_operands or (top is not None and len(values) > top):
        wants = ", ".join(op.operands) or "no operands"
        raise ArgumentCountError(f"takes ({wants}), got {len(values)} operands")
    return [_operand(op, i, v) for i, v in enumerate(values)]


def _operand(op: Op, position: int, value: Any) -> Any:
    if isinstance(value, Tensor) or type(value) in _NUMBER:
        return value
    if isinstance(value, SizeExpr):  # like a Python int, it takes the dtype of the other operands
        extent = _extent(value)
        extent.weak = True
        return extent
    if op.is_index(position) and isinstance(value, list | tuple):
        return _stack_indices(value)
    if isinstance(value, np.ndarray | np.generic | list | tuple) or hasattr(value, "__dlpack__"):
        tensor = make_tensor(as_array(value))
        tensor.fixed = isinstance(value, np.generic | list | tuple)
        return tensor
    raise ArgumentTypeError(
        f"operand {position} is a {type(value).__name__}, not a tensor, array or number",
        hint="wrap data with nova.tensor(...)",
    )


def _extent(size: SizeExpr) -> Tensor:
    """The value of a size at run time.

    A sum is computed from its terms: a remainder `n - (n // 3)*3` does not grow with its dims, and
    `2 - n` is not positive for large ones, so no number of the IR can stand for them.
    """
    terms = [(SizeExpr(((factors, 1),)), count) for factors, count in size.terms if factors]
    if len(terms) == 1 and (terms[0][1] > 0 or len(size.terms) == 1):
        return apply(OPS["extent"], (), {"value": size, "dtype": i64})
    total: Any = dict(size.terms).get((), 0)
    for part, count in terms:
        value = apply(OPS["extent"], (), {"value": part, "dtype": i64})
        total = F.add(F.mul(value, count) if count != 1 else value, total)
    return total


def _stack_indices(values: Sequence[Any]) -> Tensor:
    """Indices as one tensor; some of them may be tensors."""
    if not any(isinstance(value, Tensor) for value in values):
        tensor = make_tensor(np.asarray(values, np.int64 if not len(values) else None))
        tensor.fixed = True
        return tensor
    scalars = [
        cast(value, i64) if isinstance(value, Tensor) else constant(value, i64) for value in values
    ]
    stacked: Tensor = F.stack(scalars)
    return stacked


def _cast_operands(op: Op, operands: list[Any]) -> tuple[Tensor, ...]:
    dtypes = [
        v.dtype
        for i, v in enumerate(operands)
        if isinstance(v, Tensor) and not v.weak and not op.is_index(i)
    ]
    if callable(op.cast):
        # A bool operand (a condition, a mask) does not determine the dtype of a Python number.
        dtypes = [d for d in dtypes if d is not bool_] or []
    common = promote_all(dtypes) if dtypes else None
    targets = op.cast_types(
        tuple(operand_dtype(v, None if op.is_index(i) else common) for i, v in enumerate(operands))
    )
    return tuple(
        cast(v, w) if isinstance(v, Tensor) else constant(v, w)
        for v, w in zip(operands, targets, strict=True)
    )


def operand_dtype(value: Any, common: DType | None) -> DType:
    """The type of an operand before the row's cast; numbers take the dtype of tensor operands."""
    if isinstance(value, Tensor):
        if not value.weak:
            return value.dtype
        value = value.dtype.numpy.type().item()  # any value of this dtype determines the type
    return number_type(value) if common is None else weak(value, common)


def cast(value: Tensor, dtype: DType) -> Tensor:
    """`value` as `dtype`; the tensor itself if it has that dtype."""
    if value.dtype is dtype:
        return value
    return make_node(OPS["cast"], (value,), {"dtype": dtype}, value.type.with_dtype(dtype))


def settled(value: Tensor) -> Tensor:
    """A number's placeholder in its default dtype; other tensors unchanged."""
    return cast(value, operand_dtype(value, None)) if value.weak else value


def _attributes(op: Op, keywords: dict[str, Any]) -> dict[str, Any]:
    for name in keywords:
        if name not in op.attrs:
            from difflib import get_close_matches  # only for an error message

            close = get_close_matches(name, op.attrs, 1)
            optional = [n.rstrip("?") for n in op.operands if n.endswith("?")]
            names = ", ".join([*optional, *op.attrs]) or "none"
            hint = f"did you mean {close[0]!r}?" if close else f"its keywords: {names}"
            if (function := _function_with(op, name)) is not None:
                hint += f"; nova.{function} takes {name}"
            raise UnknownKeywordError(f"has no keyword {name!r}", hint=hint)
    attrs = {**op.attrs, **keywords}
    missing = [n for n, v in attrs.items() if v is REQUIRED]
    if missing:
        raise ArgumentCountError(f"needs {', '.join(missing)}")
    return attrs


def _function_with(op: Op, keyword: str) -> str | None:
    """The function of the same operands whose description names `op`, if it has the keyword."""
    for row in OPS.values():
        is_over = row.operands == op.operands[: len(row.operands)] and f"`{op.name}`" in row.doc
        if row.build is not None and is_over and keyword in signature(row.build).parameters:
            return row.name
    return None


def require_float(value: Tensor, title: str) -> None:
    """GradientError unless `value` can have gradients."""
    if not value.dtype.is_differentiable:
        raise GradientError(
            f"{title} is {value.type}: only float tensors have gradients",
            where=str(value.location),
            hint="cast to a float type before the computation",
        )
