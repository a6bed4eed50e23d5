"""The body of a structured op on vectors.

Input: a linalg body and its arguments: vectors where they vary along the vectorized loop, scalars
where they do not. Output: the same ops at the insertion point, on vectors where one of the operands
is a vector and on scalars elsewhere, so that values that all lanes share are computed once.
`vector_loops.py` calls this; `vectorize.py` has checked that every op has a vector form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova.codegen.common.builder import broadcast
from nova.codegen.common.combine import fast_math_flags, is_fast_math
from nova.ir.bindings import ir
from nova.ir.clone import clone_into


def emit_body(
    block: Any,
    elements: Sequence[Any],
    captured: Mapping[Any, Any],
    indices: Mapping[int, Any],
    width: int,
    *,
    relaxed: bool,
    load_row: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> list[Any]:
    """The values that `block` yields, each a vector of `width`.

    `elements` are its arguments (None where one is not used), `indices` the loop counters by
    linalg loop, `relaxed` says that the body is a reduction's. `load_row` emits a `memref.load`
    along the vectorized loop, given its other operands.
    """
    mapping = dict(captured)
    mapping |= {a: v for a, v in zip(block.arguments, elements, strict=False) if v is not None}
    for op in block.operations:
        op = op.operation
        operands = [mapping.get(v, v) for v in op.operands]
        if op.name == "linalg.yield":
            return [as_vector(v, width) for v in operands]
        if op.name == "linalg.index":
            mapping[op.results[0]] = indices[int(op.attributes["dim"].value)]
            continue
        if op.name == "memref.load" and isinstance(operands[-1].type, ir.VectorType):
            assert load_row is not None
            mapping[op.results[0]] = load_row(op, operands[:-1])
            continue
        if any(isinstance(v.type, ir.VectorType) for v in operands):
            new = _widened(op, operands, width)
            mapping.update(zip(op.results, new.results, strict=True))
        else:
            new = clone_into(op, mapping)
        if relaxed and is_fast_math(op.name):
            new.attributes["fastmath"] = fast_math_flags(op.name)
    raise AssertionError("a linalg body ends with a yield")


def as_vector(value: Any, width: int) -> Any:
    """Broadcast a scalar to all lanes; vectors unchanged."""
    if isinstance(value.type, ir.VectorType):
        return value
    return broadcast(ir.VectorType.get([width], value.type), value)


def _widened(op: Any, operands: Sequence[Any], width: int) -> Any:
    return ir.Operation.create(
        op.name,
        [ir.VectorType.get([width], r.type) for r in op.results],
        [as_vector(v, width) for v in operands],
        dict(op.attributes.items()),
    )
