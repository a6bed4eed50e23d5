"""The linalg ops that Nova creates, built without the Python classes of that dialect.

In: operands, maps and iterator types; out: ops at the insertion point. Called by lowerings and
passes. Loading the classes would take 15 ms of every first compile, for these five ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.ir.bindings import fill_builtin_region, ir


def generic_op(
    types: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    maps: Sequence[Any],
    iterators: Sequence[str],
) -> Any:
    """A `linalg.generic` whose single region is still empty.

    `maps` are affine maps, of the inputs and then of the outputs; `iterators` are the iterator
    types, `parallel` and `reduction`.
    """
    attributes = {
        "indexing_maps": _maps(maps),
        "iterator_types": ir.Attribute.parse(
            "[" + ", ".join([f"#linalg.iterator_type<{iterator}>" for iterator in iterators]) + "]"
        ),
    }
    return _structured("linalg.generic", types, inputs, outputs, attributes)


def yield_op(values: Sequence[Any]) -> None:
    """The terminator of a body."""
    ir.Operation.create("linalg.yield", operands=list(values))


def loop_index(dim: int) -> Any:
    """The index of loop `dim`, inside a body."""
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
    op = ir.Operation.create("linalg.index", [ir.IndexType.get()], attributes={"dim": number})
    return op.result


def fill(value: Any, into: Any) -> Any:
    """A tensor of the type of `into`, filled with the scalar `value`."""
    op = _structured("linalg.fill", [into.type], [value], [into], {})
    fill_builtin_region(op)
    return op.result


def contract(a: Any, b: Any, total: Any, maps: Sequence[Any]) -> Any:
    """The contraction `total + a * b`; `maps` are the accesses of all three operands."""
    attributes = {"indexing_maps": _maps(maps)}
    op = _structured("linalg.contract", [total.type], [a, b], [total], attributes)
    fill_builtin_region(op)
    return op.result


def _structured(
    name: str,
    types: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: dict[str, Any],
) -> Any:
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)])
    operands = [*inputs, *outputs]
    return ir.Operation.create(name, list(types), operands, attributes=attributes, regions=1)


def _maps(maps: Sequence[Any]) -> Any:
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])
