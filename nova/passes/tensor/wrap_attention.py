"""`wrap-attention`: attention as linalg.generic, for the kernels."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attention_ops import (
    OPS,
    PACKED,
    RESULTS,
    ROLES,
    AttentionKind,
    base_of,
    dropout_of,
    emit_point,
    extras_of,
    loop_sizes,
    splits_gradient,
)
from nova.ir.attributes import WORK
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.fourier import OP as FOURIER
from nova.ir.linalg.fourier import wrap_fourier
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.walk import functions
from nova.passes.base import Pass


@record
class WrapAttention(Pass):
    """Make a `linalg.generic` of every `nova.attend` and `nova.attend_gradient`.

    Its loops and maps are those of the op; unused results are dropped. The parallel loops are
    tiled: for the result, batches and rows. The gradients are computed together, by batches,
    because they share most of the work; with few batches of many rows those of k and v are one op,
    by their rows, and that of q is another. Packed gradients are one result. A `nova.fourier` is
    wrapped as well. Runs after elementwise fusion, which could otherwise change the generic.
    """

    name: ClassVar[str] = "wrap-attention"

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if function.is_external:
                continue
            for op in list(function.entry_block.operations):
                if op.operation.name in OPS:
                    with ir.InsertionPoint(op.operation), op.location:
                        _structure(op.operation)
                    op.operation.erase()
                elif op.operation.name == FOURIER:
                    with ir.InsertionPoint(op.operation), op.location:
                        value = wrap_fourier(op.operation)
                    op.operation.results[0].replace_all_uses_with(value)
                    op.operation.erase()


def _structure(op: Any) -> None:
    name = base_of(op)
    if PACKED in op.attributes:
        _generic(op, name, list(RESULTS[name]), "")
        return
    used = [n for n, r in zip(RESULTS[name], op.results, strict=True) if any(True for _ in r.uses)]
    if name == "attend":
        parts = [(used, "if")] if used else []
    elif splits_gradient(loop_sizes(op)):
        parts = [([n for n in used if n == "q"], "i"), ([n for n in used if n != "q"], "j")]
    else:
        parts = [(used, "")]
    for results, parallel in parts:
        if results:
            _generic(op, name, results, parallel)


def _generic(op: Any, name: str, results: list[str], parallel: str) -> None:
    sizes = loop_sizes(op)
    batch = len(sizes) - len(ROLES)
    packed = PACKED in op.attributes
    values = [op.results[RESULTS[name].index(n)] for n in (results[:1] if packed else results)]
    operands = list(op.operands)
    maps = list(op.attributes["maps"])
    out_maps = [maps[len(operands) + RESULTS[name].index(n)] for n in results]
    iterators = ["parallel"] * batch + ["parallel" if r in parallel else "reduction" for r in ROLES]
    generic = generic_op(
        [v.type for v in values],
        operands,
        [tensor.empty(list(v.type.shape), v.type.element_type) for v in values],
        [m.value for m in (*maps[: len(operands)], *out_maps[: len(values)])],
        iterators,
    )
    *_, rows, keys, inner, outer = sizes
    operations = 2 * inner + 2 * outer if name == "attend" else 6 * inner + 4 * outer
    work = prod(sizes[:batch]) * rows * keys * (operations + 16)
    WORK.set(generic, work)
    attention = AttentionKind(
        op=name,
        results=tuple(results),
        causal=op.attributes["causal"].value,
        scale=op.attributes["scale"].value,
        extras=extras_of(op, op.name.removeprefix("nova.")),
        dropout=dropout_of(op),
    )
    elements = [v.type.element_type for v in (*operands, *values)]
    block = generic.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        arguments = list(block.arguments)[: len(operands)]
        element = values[0].type.element_type
        point = emit_point(attention, arguments, element, out_maps if packed else ())
        yield_op([point] * len(values))
    for value, result in zip(values, generic.results, strict=True):
        value.replace_all_uses_with(result)
