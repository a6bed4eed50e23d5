"""`split-reductions`: a reduction to few results becomes two, through many partial results.

Runs before kernels are formed: in the device pipelines, and for long reductions on CPUs.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from nova.codegen.common.combine import find_combiners, identity
from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.common.match_contraction import match_contraction
from nova.core.records import record
from nova.ir.bindings import arith, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.index import index
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.linalg.ops import generic_op, loop_index, yield_op
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import main_function
from nova.passes.base import Pass

_ACROSS = 32
"""Columns per block."""
_TILE = 64 * 64
"""Approximate results of a GEMM per block."""
_LONGEST = 16_384
"""Approximate maximum of terms of a part: a block has them in registers."""
_MOST_PARTIAL = 16 << 20
"""Maximum partial results of a GEMM, in all parts."""


@record
class SplitReductions(Pass):
    """Cut the outermost reduced dimension into parts, where that gives more parallelism.

    A sum of everything, of the columns of a tall matrix, or of a matmul along a long k (split-k)
    has too few results for one block of threads (on a CPU: one core) per result, or per tile of
    results. It is cut when its terms are `terms` or more (`depth` or more in a matmul), and the
    number of blocks would be less than `blocks`: then each part gives a row of partial results, and
    a second op combines those. The cut depends on shapes alone, and so does the order of the sums.
    """

    name: ClassVar[str] = "split-reductions"
    terms: int = 65_536
    blocks: int = 264
    part: int = 1_024  # approximate minimum of terms of a part
    depth: int = 65_536
    depth_part: int = 1_024  # the same of a matmul

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        if SizeTable.of(main) is not None:
            return  # the parts of a symbolic size are not a number
        for op in list(main.entry_block.operations):
            op = op.operation
            if is_generic_op(op) and (cut := self._cut(GenericOp(op))):
                _split(GenericOp(op), *cut)

    def _cut(self, generic: GenericOp) -> tuple[int, int, tuple[str, ...]] | None:
        """The loop to cut, the number of parts, and the combining op."""
        reduced = [d for d, iterator in enumerate(generic.iterators) if iterator == "reduction"]
        if not reduced:
            return None
        terms = prod(generic.sizes[d] for d in reduced)
        # Most reductions: nothing else need be known.
        if terms < min(self.depth, self.terms) or generic.is_whole:
            return None
        results = prod(s for d, s in enumerate(generic.sizes) if d not in reduced)
        nest = make_loop_nest(generic.op)
        names = find_combiners(nest)
        is_contraction = match_contraction(nest, accumulate=True) is not None
        across = not is_contraction and _reads_across(generic)
        blocks = (
            results // _ACROSS if across else -(-results // _TILE) if is_contraction else results
        )
        least = self.depth if is_contraction else self.terms
        if names is None or terms < least or blocks >= self.blocks:
            return None
        dim = reduced[0]
        if not all(_is_plain(generic, i, dim) for i in range(len(generic.op.operands))):
            return None
        longest = -(-terms // _LONGEST)
        shortest = self.part // 8 if across else self.depth_part if is_contraction else self.part
        parts = max(longest, min(terms // shortest, self.blocks // max(1, blocks)))
        if is_contraction:
            parts = min(parts, _MOST_PARTIAL // max(1, results))
        parts = _divisor(generic.sizes[dim], parts)
        return (dim, parts, names) if parts > 1 else None


def _reads_across(generic: GenericOp) -> bool:
    """Whether adjacent results read adjacent elements in memory: a block has several."""
    inputs = [a for a in generic.accesses[: generic.num_inputs] if a.coefficients]
    last = [access.row_dim(len(access.coefficients) - 1) for access in inputs]
    return any(d is not None and generic.iterators[d] == "parallel" for d in last)


def _is_plain(generic: GenericOp, operand: int, dim: int) -> bool:
    """Whether an operand has the loop as one of its dimensions, or not at all."""
    access = generic.accesses[operand]
    at = [r for r, row in enumerate(access.coefficients) if row[dim]]
    return not at or (len(at) == 1 and access.row_dim(at[0]) == dim)


def _divisor(size: int, target: int) -> int:
    """A divisor of `size` up to `target`, near to it; 1 where there is none.

    Prefer half as many parts over parts whose elements are not whole vectors.
    """
    divisors = [n for n in range(min(size, target), 0, -1) if size % n == 0]
    near = [n for n in divisors if 2 * n >= divisors[0]]
    return next((n for n in near if size // n % 4 == 0), divisors[0])


def _split(generic: GenericOp, dim: int, parts: int, names: tuple[str, ...]) -> None:
    op, inputs = generic.op, generic.num_inputs
    maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
    with ir.InsertionPoint(op), op.location:
        inputs_cut = [_cut_operand(generic, i, dim, parts) for i in range(inputs)]
        partial = [
            _filled([parts, *value.type.shape], value.type.element_type, name)
            for value, name in zip(generic.outputs, names, strict=True)
        ]
        accesses = [
            *[_access(m, dim, cut=True) for m in maps[:inputs]],
            *[_access(m, dim, cut=False) for m in maps[inputs:]],
        ]
        split = _generic(inputs_cut, partial, accesses, ["parallel", *generic.iterators])
        _copy_body(generic, split, dim, generic.sizes[dim] // parts)
        total = _combined(list(split.results), generic.outputs, names)
    for old, new in zip(op.results, total.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _cut_operand(generic: GenericOp, operand: int, dim: int, parts: int) -> Any:
    """An input with the cut dimension split in two."""
    value = generic.op.operands[operand]
    access = generic.accesses[operand]
    at = [r for r, row in enumerate(access.coefficients) if row[dim]]
    if not at:
        return value
    shape = list(value.type.shape)
    cut = [*shape[: at[0]], parts, shape[at[0]] // parts, *shape[at[0] + 1 :]]
    groups = [[r] if r < at[0] else [r + 1] for r in range(len(shape))]
    groups[at[0]] = [at[0], at[0] + 1]
    type_ = ir.RankedTensorType.get(cut, value.type.element_type)
    return tensor.expand_shape(type_, value, groups, [], cut)


def _access(map_: Any, dim: int, *, cut: bool) -> Any:
    """An access with the loop over parts before all others; `cut` is the original dimension."""
    count = map_.n_dims + 1
    moved = ir.AffineMap.get(count, 0, [ir.AffineExpr.get_dim(d) for d in range(1, count)])
    part = ir.AffineExpr.get_dim(0)
    results = [] if cut else [part]
    for expr in map_.results:
        if cut and isinstance(expr, ir.AffineDimExpr) and expr.position == dim:
            results.append(part)
        results.append(expr.compose(moved))
    return ir.AffineMap.get(count, 0, results)


def _filled(shape: list[int], element: Any, name: str) -> Any:
    """A tensor filled with the identity of the op called `name`."""
    value = identity(name, element)
    count = len(shape)
    scalar = ir.AffineMap.get(count, 0, [])
    empty = tensor.EmptyOp(shape, element).result
    identity_map = ir.AffineMap.get_identity(count)
    fill = _generic([value], [empty], [scalar, identity_map], ["parallel"] * count)
    block = fill.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        yield_op([block.arguments[0]])
    return fill.results[0]


def _generic(inputs: list[Any], outputs: list[Any], maps: list[Any], iterators: list[str]) -> Any:
    """A linalg.generic without a body."""
    return generic_op([value.type for value in outputs], inputs, outputs, maps, iterators)


def _copy_body(generic: GenericOp, target: Any, dim: int, length: int) -> None:
    """The body for parts of `length`: loop indices keep their meaning."""
    old = generic.block
    block = target.regions[0].blocks.append(*[a.type for a in old.arguments])
    mapping = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for op in old.operations:
            op = op.operation
            if op.name != "linalg.index":
                clone_into(op, mapping)
                continue
            number = int(op.attributes["dim"].value)
            counter = loop_index(number + 1)
            if number == dim:
                counter = arith.addi(arith.muli(loop_index(0), index(length)), counter)
            mapping[op.results[0]] = counter


def _combined(partial: list[Any], outputs: list[Any], names: tuple[str, ...]) -> Any:
    """Combine the parts, and the old values of the outputs."""
    count = len(outputs[0].type.shape) + 1
    identity_map = ir.AffineMap.get_identity(count)
    result_map = ir.AffineMap.get(count, 0, [ir.AffineExpr.get_dim(d) for d in range(1, count)])
    maps = [identity_map] * len(partial) + [result_map] * len(outputs)
    combined = _generic(partial, outputs, maps, ["reduction", *["parallel"] * (count - 1)])
    elements = [value.type.element_type for value in outputs]
    block = combined.regions[0].blocks.append(*elements, *elements)
    arguments = list(block.arguments)
    with ir.InsertionPoint(block):
        pairs = zip(arguments[len(elements) :], arguments[: len(elements)], strict=True)
        yield_op(
            [
                ir.Operation.create(name, [old.type], [old, new]).results[0]
                for name, (old, new) in zip(names, pairs, strict=True)
            ]
        )
    return combined
