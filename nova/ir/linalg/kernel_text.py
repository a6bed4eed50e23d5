"""Inlines a kernel that a user wrote in MLIR.

In: the text of a module with one function `main` at the stage `linalg`, and values of its
arguments. Out: the values of its results, at the insertion point. Called by the linalg builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.dtypes import TensorType
from nova.errors import KernelError, NovaError
from nova.ir.bindings import ir
from nova.ir.clone import clone_into
from nova.ir.context import parse_module
from nova.ir.types import tensor_type
from nova.ir.walk import every_op, functions

_DIALECTS = frozenset({"arith", "math", "linalg", "tensor", "scf", "affine"})


def inline_text(text: str, values: Sequence[Any], results: Sequence[TensorType]) -> list[Any]:
    """The results of the kernel on values; KernelError if the text does not have these types."""
    try:
        module = parse_module(text, "<kernel>", ir.Context.current)
    except NovaError as error:
        raise KernelError(f"the MLIR of a kernel: {error.what}", where=error.where) from None
    definitions = list(functions(module))
    if len(definitions) != 1 or definitions[0].is_external:
        raise KernelError(f"the MLIR of a kernel has {len(definitions)} functions, must have one")
    block = definitions[0].entry_block
    operations = [op.operation for op in block.operations]
    for op in operations[:-1]:
        for inner in every_op(op):
            if inner.name.partition(".")[0] not in _DIALECTS:
                raise KernelError(f"the MLIR of a kernel has the op {inner.name}")
    expected = [v.type for v in values], [tensor_type(t) for t in results]
    actual = [a.type for a in block.arguments], [o.type for o in operations[-1].operands]
    if actual != expected:
        raise KernelError(
            f"the MLIR of a kernel maps {_texts(actual[0])} to {_texts(actual[1])}, and its op "
            f"{_texts(expected[0])} to {_texts(expected[1])}"
        )
    mapping: dict[Any, Any] = dict(zip(block.arguments, values, strict=True))
    for op in operations[:-1]:
        clone_into(op, mapping)
    return [mapping[o] for o in operations[-1].operands]


def _texts(types: Sequence[Any]) -> str:
    return f"({', '.join(map(str, types))})"
