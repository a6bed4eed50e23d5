"""The rows of kernels that users write: `loop_kernel` and `mlir_kernel`.

The text of the kernel is an attribute. The sizes and dtypes of all results follow from the user's
type rule when the graph is built: `ranks` and `sizes` are the shapes of the results one after the
other, `dtypes` their names. A node is one result of the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, dtype
from nova.errors import AttributeValueError, GradientError, KernelError
from nova.ops.kernels.interpret import run_program
from nova.ops.kernels.language import LoopProgram, parse_program
from nova.ops.kernels.stages import Ordered, check_claims, find_stages
from nova.ops.kernels.typing import Typing
from nova.ops.rules import Types
from nova.ops.table import Op, register

Attrs = dict[str, Any]

MOST_OPERANDS = 16
OPERANDS = ("x0", *(f"x{i}?" for i in range(1, MOST_OPERANDS)))
ATTRS: Attrs = {"source": "", "ranks": (), "sizes": (), "dtypes": "", "result": 0}
TAG = "kernel"
"""Passes that compute values when they compile leave these rows alone."""


def result_types(ranks: Any, sizes: Any, dtypes: Any) -> tuple[TensorType, ...]:
    """The types of all results, from the attributes."""
    names = dtypes.split(",") if isinstance(dtypes, str) else []
    fits = isinstance(ranks, tuple) and isinstance(sizes, tuple) and sum(ranks) == len(sizes)
    if not fits or len(names) != len(ranks) or not ranks or min(ranks) < 0:
        raise AttributeValueError(
            f"ranks {ranks}, sizes {sizes} and dtypes {dtypes!r} do not match"
        )
    types, start = [], 0
    for rank, name in zip(ranks, names, strict=True):
        types.append(TensorType(sizes[start : start + rank], dtype(name)))
        start += rank
    return tuple(types)


def type_attrs(types: tuple[TensorType, ...]) -> Attrs:
    """The attributes of the types of all results."""
    return {
        "ranks": tuple(t.rank for t in types),
        "sizes": tuple(n for t in types for n in t.shape),
        "dtypes": ",".join(t.dtype.name for t in types),
    }


def _select(types: tuple[TensorType, ...], result: Any) -> TensorType:
    if type(result) is not int or not 0 <= result < len(types):
        raise AttributeValueError(f"there is no result {result} of {len(types)}")
    return types[result]


def _canon(ins: Types, attrs: Attrs) -> Attrs:
    if not isinstance(attrs["source"], str):
        raise AttributeValueError("source is the text of a kernel")
    return attrs


# --- loops ----------------------------------------------------------------------------------------


def _program(count: int, source: str, results: int) -> LoopProgram:
    program = parse_program(source, results)
    if len(program.inputs) != count:
        raise KernelError(
            f"{program.name} takes {len(program.inputs)} tensors, not {count}",
            where=program.where(program.body[0]),
        )
    return program


def _types_of(program: LoopProgram, ins: Types, outs: tuple[TensorType, ...]) -> dict[str, Any]:
    return dict(zip((*program.inputs, *program.outputs), (*ins, *outs), strict=True))


def _loop_type(ins: Types, attrs: Attrs) -> TensorType:
    types = result_types(attrs["ranks"], attrs["sizes"], attrs["dtypes"])
    result = _select(types, attrs["result"])
    program = _program(len(ins), attrs["source"], len(types))
    typing = Typing(program, _types_of(program, ins, types))
    try:
        find_stages(program, typing, program.outputs[attrs["result"]])
    except Ordered as reason:
        check_claims(program, reason)
    return result


def _loop_numpy(
    *arrays: np.ndarray, source: str, ranks: Any, sizes: Any, dtypes: str, result: int
) -> np.ndarray:
    types = result_types(ranks, sizes, dtypes)
    return run_program(_program(len(arrays), source, len(types)), arrays, types)[result]


def _loop_lower(
    b: Any,
    out: TensorType,
    *operands: Any,
    source: str,
    ranks: Any,
    sizes: Any,
    dtypes: str,
    result: int,
) -> Any:
    types = result_types(ranks, sizes, dtypes)
    program = _program(len(operands), source, len(types))
    every = _types_of(program, tuple(o.type for o in operands), types)
    return b.loop_kernel(program, every, operands, program.outputs[result])


def _no_gradient(F: Any, g: Any, out: Any, *operands: Any, source: str, **attrs: Any) -> Any:
    raise GradientError(
        "the kernel of a custom op has no gradient",
        hint="define one: op.defvjp(forward, backward), as of nova.custom_vjp",
    )


# --- MLIR -----------------------------------------------------------------------------------------

REFERENCES: dict[str, Any] = {}
"""Text of an MLIR kernel -> the user's numpy function, in the process that defined it."""


def _mlir_type(ins: Types, attrs: Attrs) -> TensorType:
    return _select(result_types(attrs["ranks"], attrs["sizes"], attrs["dtypes"]), attrs["result"])


def _mlir_numpy(
    *arrays: np.ndarray, source: str, ranks: Any, sizes: Any, dtypes: str, result: int
) -> np.ndarray:
    if source not in REFERENCES:
        raise KernelError(
            "a custom op in MLIR has no numpy reference here",
            hint="give nova.custom_op a reference, or compile the program",
        )
    types = result_types(ranks, sizes, dtypes)
    values = REFERENCES[source](*arrays)
    values = values if isinstance(values, tuple | list) else (values,)
    return np.asarray(values[result]).astype(types[result].dtype.numpy).reshape(types[result].shape)


def _mlir_lower(
    b: Any,
    out: TensorType,
    *operands: Any,
    source: str,
    ranks: Any,
    sizes: Any,
    dtypes: str,
    result: int,
) -> Any:
    return b.mlir_kernel(source, operands, result_types(ranks, sizes, dtypes), result)


ROWS: tuple[Op, ...] = (
    Op(
        "loop_kernel",
        "A kernel written as loops in Python, from its text: what nova.custom_op makes.",
        operands=OPERANDS,
        attrs=ATTRS,
        canon=_canon,
        infer=_loop_type,
        numpy=_loop_numpy,
        vjp=_no_gradient,
        lower=_loop_lower,
        tags=frozenset({TAG}),
    ),
    Op(
        "mlir_kernel",
        "A kernel written in MLIR, from its text: what nova.custom_op makes.",
        operands=OPERANDS,
        attrs=ATTRS,
        canon=_canon,
        infer=_mlir_type,
        numpy=_mlir_numpy,
        vjp=_no_gradient,
        lower=_mlir_lower,
        tags=frozenset({TAG}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
