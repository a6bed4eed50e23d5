"""`merge-reductions`: reductions over the columns of one matrix become one op.

Runs in the device pipelines, after sums were split, and before kernels are formed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.combine import find_combiners
from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.common.match_contraction import match_contraction
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.buffers import TENSOR_VIEWS
from nova.ir.clone import clone_into
from nova.ir.control_flow.functions import host_functions
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import main_function
from nova.passes.base import Pass
from nova.passes.kernels.group_ops import captured

_MOST_RESULTS = 4
"""Of an op: each has accumulators in every thread."""


@record
class MergeReductions(Pass):
    """Merge two reductions with the same loops, where both read the same elements of a matrix.

    The gradients of a layer norm's weight and bias both reduce the columns of the gradient of its
    result: as one op, one kernel reads that once, and updates both parameters. The merged op takes
    the place of the first one, if the operands of the second one exist there, or of the second one,
    if all uses of the first one are later. Matmuls, and reductions along the rows of a matrix,
    which share a kernel anyway, stay as they are.
    """

    name: ClassVar[str] = "merge-reductions"

    def run(self, module: ir.Module) -> None:
        if SizeTable.of(main_function(module)) is not None:
            return
        with module.context:
            for function in host_functions(module):
                _merge_in(function.entry_block)


def _merge_in(block: Any) -> None:
    earlier: dict[Any, list[Any]] = {}
    for op in [op.operation for op in block.operations]:
        if not is_generic_op(op) or not _is_column_reduction(GenericOp(op)):
            continue
        generic = GenericOp(op)
        others = earlier.setdefault(_loops(generic), [])
        places = ((o, _place(GenericOp(o), generic)) for o in others)
        first, place = next((pair for pair in places if pair[1] is not None), (None, None))
        if first is None:
            others.append(op)
            continue
        merged = _merge(GenericOp(first), generic, place)
        others[others.index(first)] = merged
        for old in (first, op):
            old.erase()


def _loops(generic: GenericOp) -> tuple[Any, ...]:
    """Equal for ops with the same loops and the same access to results."""
    return generic.iterators, generic.sizes, generic.accesses[generic.num_inputs]


def _is_column_reduction(generic: GenericOp) -> bool:
    """Whether adjacent results are reductions over adjacent elements of memory."""
    if "reduction" not in generic.iterators or generic.is_whole:
        return False
    accesses = generic.accesses[generic.num_inputs :]
    if any(access != accesses[0] for access in accesses) or not _matrices(generic):
        return False
    if any(op.operation.name == "linalg.index" for op in generic.block.operations):
        return False
    nest = make_loop_nest(generic.op)
    return find_combiners(nest) is not None and match_contraction(nest, accumulate=True) is None


def _matrices(generic: GenericOp) -> set[tuple[Any, Any]]:
    """The inputs with an element for each iteration whose last dimension is not reduced."""
    found = set()
    accesses = generic.accesses[: generic.num_inputs]
    for value, access in zip(generic.inputs, accesses, strict=True):
        dims = access.row_dims
        if len(dims) == len(generic.iterators) and None not in dims and len({*dims}) == len(dims):
            last = dims[-1]
            if last is not None and generic.iterators[last] == "parallel":
                found.add((value, access))
    return found


def _place(first: GenericOp, second: GenericOp) -> Any | None:
    """The op that the merged one may replace, after all operands and before all uses; or None."""
    if first.num_outputs + second.num_outputs > _MOST_RESULTS:
        return None
    if not _matrices(first) & _matrices(second):
        return None
    if any(_init_ops(value) is None for value in second.outputs):
        return None
    values = [*second.inputs, *captured(second.op)]
    if all(_is_before(v, first.op) or _can_copy(v, first.op) for v in values):
        return first.op
    users = [_in_block(use.owner) for r in first.op.results for use in r.uses]
    return second.op if all(second.op.is_before_in_block(user) for user in users) else None


def _is_before(value: Any, op: Any) -> bool:
    return not isinstance(value, ir.OpResult) or value.owner.operation.is_before_in_block(op)


def _in_block(op: Any) -> Any:
    """The op of the function's block that a user is, or is inside of."""
    op = op.operation
    while op.parent is not None and op.parent.name != "func.func":
        op = op.parent.operation
    return op


def _can_copy(value: Any, op: Any) -> bool:
    """Whether a value is a constant, or a reshape of one that exists before `op`."""
    if not isinstance(value, ir.OpResult):
        return False
    source = value.owner.operation
    if source.name in TENSOR_VIEWS:
        return all(_is_before(operand, op) for operand in source.operands)
    return source.name == "arith.constant"


def _init_ops(value: Any) -> list[Any] | None:
    """The ops that fill an initial value, in order; None where it is not a fill of a constant."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    if op.name in ("arith.constant", "tensor.empty"):
        return [op]
    if not is_generic_op(op) or "reduction" in GenericOp(op).iterators:
        return None
    ops: list[Any] = []
    for operand in op.operands:
        inner = _init_ops(operand) if len(ops) < 4 else None
        if inner is None:
            return None
        ops += [o for o in inner if o not in ops]
    return [*ops, op]


def _merge(first: GenericOp, second: GenericOp, place: Any) -> Any:
    """The op with the results of both, before `place`."""
    with ir.InsertionPoint(place), first.op.location:
        copies: dict[Any, Any] = {}
        values = [*second.inputs, *captured(second.op)]
        needed = [v.owner.operation for v in values if not _is_before(v, place)]
        needed += [op for value in second.outputs for op in _init_ops(value) or ()]
        for op in dict.fromkeys(needed):
            clone_into(op, copies)
        outputs = [*first.outputs, *(copies[value] for value in second.outputs)]
        keys = _input_keys(first) + [(copies.get(v, v), m) for v, m in _input_keys(second)]
        inputs = list(dict.fromkeys(keys))
        maps = [
            *(map_ for _, map_ in inputs),
            *(_maps(g)[g.num_inputs + i] for g in (first, second) for i in range(g.num_outputs)),
        ]
        merged = generic_op(
            [value.type for value in outputs],
            [value for value, _ in inputs],
            outputs,
            maps,
            first.iterators,
        )
        _merge_bodies(merged, (first, second), inputs, copies)
    results = list(merged.results)
    for old, new in zip([*first.op.results, *second.op.results], results, strict=True):
        old.replace_all_uses_with(new)
    return merged.operation


def _maps(generic: GenericOp) -> list[Any]:
    return [attribute.value for attribute in generic.op.attributes["indexing_maps"]]


def _input_keys(generic: GenericOp) -> list[tuple[Any, Any]]:
    return list(zip(generic.inputs, _maps(generic)[: generic.num_inputs], strict=True))


def _merge_bodies(
    merged: Any, parts: tuple[GenericOp, ...], inputs: list[Any], copies: dict[Any, Any]
) -> None:
    types = dict.fromkeys(inputs)
    for part in parts:
        for (value, map_), argument in zip(_input_keys(part), part.block.arguments, strict=False):
            types[copies.get(value, value), map_] = argument.type
    results = [a.type for p in parts for a in list(p.block.arguments)[p.num_inputs :]]
    block = merged.regions[0].blocks.append(*types.values(), *results)
    arguments = list(block.arguments)
    yielded: list[Any] = []
    with ir.InsertionPoint(block):
        for part in parts:
            keys = [(copies.get(v, v), m) for v, m in _input_keys(part)]
            old = list(part.block.arguments)
            mapping = dict(copies) if part is parts[1] else {}
            mapping |= {old[i]: arguments[inputs.index(key)] for i, key in enumerate(keys)}
            first = len(inputs) + len(yielded)
            for i in range(part.num_outputs):
                mapping[old[part.num_inputs + i]] = arguments[first + i]
            *body, end = [op.operation for op in part.block.operations]
            for op in body:
                clone_into(op, mapping)
            yielded += [mapping.get(value, value) for value in end.operands]
        yield_op(yielded)
