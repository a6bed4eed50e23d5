"""`in_precision`: a graph that computes in a 16-bit float, for inference.

In: the outputs, inputs and params of a program. Out: outputs of the same types from the same
inputs, with params of the other dtype. Float32 operands become that dtype, and every op is applied
again, so that the type rules of its row decide: an explicit cast to f32 in the program stays, and
what is computed from it is f32. `nova.compile(..., precision=)` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova.core.dtypes import DType, TensorType, bf16, converted, f16, f32
from nova.core.location import user_location
from nova.errors import AttributeValueError
from nova.graph.build import apply, cast
from nova.graph.order import topological
from nova.graph.tensor import Tensor, on_device

PRECISIONS: dict[str, DType] = {"bf16": bf16, "f16": f16}


def parse_precision(name: str, precisions: Mapping[str, DType] = PRECISIONS) -> DType:
    """The dtype of a precision; AttributeValueError for an unknown name."""
    if name not in precisions:
        raise AttributeValueError(
            f"precision {name!r}",
            where=str(user_location()),
            hint=f"it is None or one of {', '.join(map(repr, precisions))}",
        )
    return precisions[name]


def in_precision(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], params: Sequence[Tensor], half: DType
) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs and params of the program that computes in `half` instead of f32."""
    new: dict[int, Tensor] = {id(value): _lowered(value, half) for value in inputs}
    new_params = [_converted(param, half) for param in params]
    new |= {id(old): param for old, param in zip(params, new_params, strict=True)}
    for node in topological(outputs, stop=[*inputs, *params]):
        if id(node) not in new:
            new[id(node)] = _applied(node, new, half)
    results = [cast(new[id(output)], output.dtype) for output in outputs]
    return results, new_params


def _applied(node: Tensor, new: dict[int, Tensor], half: DType) -> Tensor:
    if node.op is None:
        return _converted(node, half)
    with on_device(node.device):
        operands = [new[id(operand)] for operand in node.inputs]
        result = apply(node.op, operands, node.attrs)
        # Ops without operands, such as `full`, have the dtype of an attribute.
        result = result if node.inputs else _lowered(result, half)
    result.location, result.name = node.location, node.name
    return result


def _lowered(value: Tensor, half: DType) -> Tensor:
    return cast(value, half) if value.dtype is f32 else value


def _converted(leaf: Tensor, half: DType) -> Tensor:
    """A leaf with its values converted once; a placeholder is cast in every run."""
    if leaf.dtype is not f32 or leaf.weak:
        return leaf
    if leaf.data is None:
        return cast(leaf, half)
    data = converted(leaf.data, half)
    result = Tensor(TensorType(leaf.shape, half), data=data, name=leaf.name, fixed=leaf.fixed)
    result.location = leaf.location
    return result
