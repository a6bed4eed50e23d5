"""MLIR text of a custom op, lowered to linalg.

In: a program in StableHLO, TOSA or linalg on tensors, with the types of its operands. Out: the text
of its `main` at the stage `linalg`, which is the attribute of the op: its lowering inlines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from nova.core.dtypes import TensorType, dtype
from nova.core.location import user_location
from nova.errors import KernelError, NovaError
from nova.frontends.import_mlir import import_program
from nova.frontends.source import Source
from nova.ir.walk import functions


@lru_cache(256)
def lowered_text(
    text: str, name: str
) -> tuple[str, tuple[TensorType, ...], tuple[TensorType, ...]]:
    """The text at the stage `linalg`, and the types of its arguments and results."""
    imported = import_program(Source(f"<mlir of {name}>", text.encode()), entry="main")
    if imported.stage != "linalg":
        raise KernelError(
            f"its MLIR is in the dialect {imported.frontend}",
            hint="write StableHLO, TOSA, or linalg on tensors",
        )
    module = imported.module
    if len(list(functions(module))) != 1:
        raise KernelError(
            "its MLIR has loops or branches on tensors",
            hint="call them with nova.scan, nova.while_loop or nova.cond instead",
        )
    signature = imported.signature
    args = tuple(TensorType(a.shape, dtype(a.dtype)) for a in signature.args)
    results = tuple(TensorType(o.shape, dtype(o.dtype)) for o in signature.outputs)
    return str(module), args, results


def kernel_of_text(
    text: str, name: str, operands: Sequence[TensorType]
) -> tuple[str, tuple[TensorType, ...]]:
    """The text that a node has, and the types of its results."""
    where = str(user_location())
    if not isinstance(text, str):
        raise KernelError(f"{name} returned a {type(text).__name__}, not MLIR text", where=where)
    try:
        lowered, args, results = lowered_text(text, name)
    except NovaError as error:
        raise KernelError(
            f"{name}: {error.what}", where=error.where or where, hint=error.hint
        ) from None
    if args != tuple(operands):
        actual, right = (", ".join(map(str, t)) for t in (operands, args))
        raise KernelError(
            f"{name}: its MLIR takes ({right}), and the operands are ({actual})",
            where=where,
            hint="the function gets the types of the operands: write them into the text",
        )
    return lowered, results
