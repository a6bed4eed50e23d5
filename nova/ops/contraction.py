"""Contraction rows: matmul and the ops written with it.

`nova.ops` registers them. A matmul is lowered as one contraction whose subscripts describe how the
batch axes broadcast, so no operand is ever copied to align with the other.
"""

from __future__ import annotations

from math import prod
from string import ascii_lowercase
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.sizes import known_equal, same_shape
from nova.errors import ShapeError
from nova.ops.rules import Types, broadcast_shapes, is_unit, widen
from nova.ops.table import Op, register


def matmul_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    a, b = (t.shape for t in ins)
    if not a or not b:
        raise ShapeError(f"a 0-d operand: {a} @ {b}", hint="multiply with * instead")
    inner = b[-2] if len(b) > 1 else b[0]
    if not known_equal(a[-1], inner):
        raise ShapeError(
            f"{a} @ {b}: the last axis of the first is {a[-1]}, the "
            f"{'second to last' if len(b) > 1 else 'only'} axis of the second is {inner}"
        )
    batch = broadcast_shapes(a[:-2], b[:-2])
    return TensorType(batch + a[-2:-1] + (b[-1:] if len(b) > 1 else ()), ins[0].dtype)


def matmul_subscripts(a: tuple[int, ...], b: tuple[int, ...]) -> str:
    """einsum subscripts of a @ b; '1' marks a size-1 batch axis that broadcasts."""
    batch = broadcast_shapes(a[:-2], b[:-2])
    letters = [c for c in ascii_lowercase if c not in "kmn"][: len(batch)]

    def leading(shape: tuple[int, ...]) -> str:
        subscripts = letters[len(letters) - len(shape) :]
        sizes = batch[len(batch) - len(shape) :]
        return "".join(
            "1" if is_unit(n) and not is_unit(size) else c
            for n, size, c in zip(shape, sizes, subscripts, strict=True)
        )

    rows, columns = "m" * (len(a) > 1), "n" * (len(b) > 1)
    result = "".join(letters) + rows + columns
    return f"{leading(a[:-2])}{rows}k,{leading(b[:-2])}k{columns}->{result}"


def _matmul_lower(b: Any, out: TensorType, x: Any, y: Any) -> Any:
    return b.contract(out, x, y, matmul_subscripts(x.shape, y.shape))


def _matmul_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(np.matmul(widen(x), widen(y))).astype(x.dtype, copy=False)


def _swap_last(F: Any, x: Any) -> Any:
    return F.swapaxes(x, -1, -2)


def matmul_gradients(F: Any, g: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    # 1-D operands become a row on the left and a column on the right, as in numpy.
    x2 = F.unsqueeze(x, 0) if len(x.shape) == 1 else x
    y2 = F.unsqueeze(y, 1) if len(y.shape) == 1 else y
    batch = broadcast_shapes(x2.shape[:-2], y2.shape[:-2])
    g2 = F.reshape(g, (*batch, x2.shape[-2], y2.shape[-1]))
    dx = F.sum_to(F.matmul(g2, _swap_last(F, y2)), x2.shape)
    if len(y2.shape) == 2 and len(x2.shape) > 2:
        # One weight for a whole batch: sum over the batch inside the contraction.
        rows = prod(x2.shape[:-1])
        flat_x = F.reshape(x2, (rows, x2.shape[-1]))
        dy = F.matmul(_swap_last(F, flat_x), F.reshape(g2, (rows, g2.shape[-1])))
    else:
        dy = F.sum_to(F.matmul(_swap_last(F, x2), g2), y2.shape)
    return F.reshape(dx, x.shape), F.reshape(dy, y.shape)


def _linear_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    x, weight = ins[0], ins[1]
    if weight.rank != 2 or not x.rank or not known_equal(x.shape[-1], weight.shape[1]):
        raise ShapeError(
            f"x {x.shape} with weight {weight.shape}",
            hint="the weight is (out_features, in_features), the last axis of x in_features",
        )
    if len(ins) > 2 and not same_shape(ins[2].shape, weight.shape[:1]):
        raise ShapeError(f"bias {ins[2].shape} with weight {weight.shape}: not one per output")
    return x.with_shape((*x.shape[:-1], weight.shape[0]))


def _linear(F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    product = F.matmul(x, F.permute(weight, (1, 0)))
    return product if bias is None else product + bias


def _dot(F: Any, x: Any, y: Any) -> Any:
    return F.matmul(x, y)


def _vectors(ins: Types, *, equal: bool) -> None:
    if any(t.rank != 1 for t in ins) or (equal and not same_shape(ins[0].shape, ins[1].shape)):
        expected = "two vectors of one length" if equal else "two vectors"
        raise ShapeError(f"wants {expected}, got {ins[0].shape} and {ins[1].shape}")


def _dot_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    _vectors(ins, equal=True)
    return ins[0].with_shape(())


def _outer_type(ins: Types, attrs: dict[str, Any]) -> TensorType:
    _vectors(ins, equal=False)
    return ins[0].with_shape(ins[0].shape + ins[1].shape)


def _outer(F: Any, x: Any, y: Any) -> Any:
    return F.mul(F.unsqueeze(x, 1), y)


ROWS: tuple[Op, ...] = (
    Op(
        "matmul",
        "Matmul by numpy's rules: batch axes broadcast, a 1-D operand is a vector; "
        "f16 and bf16 accumulate in f32.",
        operands=("x", "y"),
        cast="same",
        infer=matmul_type,
        numpy=_matmul_numpy,
        vjp=matmul_gradients,
        lower=_matmul_lower,
        methods=("matmul",),
        tags=frozenset({"contraction", "smooth"}),
    ),
    Op(
        "linear",
        "x @ weight.T + bias with weight (out_features, in_features), as torch's linear.",
        operands=("x", "weight", "bias?"),
        cast="same",
        infer=_linear_type,
        compose=_linear,
        tags=frozenset({"contraction", "smooth"}),
    ),
    Op(
        "dot",
        "Inner product of two vectors of one length.",
        operands=("x", "y"),
        cast="same",
        infer=_dot_type,
        compose=_dot,
        methods=("dot",),
        tags=frozenset({"contraction", "smooth"}),
    ),
    Op(
        "outer",
        "Outer product of two vectors: result[i, j] = x[i] * y[j].",
        operands=("x", "y"),
        cast="same",
        infer=_outer_type,
        compose=_outer,
        methods=("outer",),
        tags=frozenset({"smooth"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
