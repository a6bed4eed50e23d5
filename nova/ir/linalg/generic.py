"""Views of linalg.generic ops, for form-kernels and the kernel lowering.

Works on tensor and memref operands. An access is stored as affine coefficients (per operand
dimension: one coefficient per loop, and a constant); every access from Nova and the importers has
this form.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

from nova.core.records import lazy_property, record
from nova.errors import LoweringError
from nova.ir.attention_ops import POINTS
from nova.ir.attributes import WORK
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.linalg.attribute_cache import read_cached
from nova.ir.linalg.fourier import POINT
from nova.ir.linalg.winograd import OP as WINOGRAD_POINT
from nova.ir.symbolic.size_table import Extent, decoded

_ITERATOR = re.compile(r"iterator_type<(\w+)>")
_ACCESSES: dict[str, Access] = {}
"""Keyed by map text: programs have few different maps, and a map would keep its context alive."""
_MOST_ACCESSES = 4096


@record
class Access:
    """index[r] = sum(coefficients[r][d] * loop d) + constants[r]."""

    coefficients: tuple[tuple[int, ...], ...]
    constants: tuple[int, ...]

    def row_dim(self, result: int) -> int | None:
        """The loop that index `result` is equal to, or None."""
        return self.row_dims[result]

    @lazy_property
    def row_dims(self) -> tuple[int | None, ...]:
        """For each index the loop that it is equal to, or None."""
        return tuple(
            row.index(1)
            if constant == 0 and sum(c != 0 for c in row) == 1 and max(row) == 1
            else None
            for row, constant in zip(self.coefficients, self.constants, strict=True)
        )

    def linear(self, shape: tuple[Extent, ...]) -> tuple[tuple[Extent, ...], Extent]:
        """Element strides per loop and the offset, in a row-major buffer of `shape`."""
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        loops = len(self.coefficients[0]) if self.coefficients else 0
        per_loop = tuple(
            sum(s * row[d] for s, row in zip(strides, self.coefficients, strict=True))
            for d in range(loops)
        )
        constants = decoded(self.constants)
        return per_loop, sum(s * c for s, c in zip(strides, constants, strict=True))


_ARITHMETIC = (
    *("addf", "subf", "mulf", "divf", "remf", "negf"),
    *("maximumf", "minimumf", "maxnumf", "minnumf"),
)
_ALGORITHMS = {*POINTS, POINT, WINOGRAD_POINT}
"""Ops of the bodies that stand for an attention or a Fourier transform."""

_FLOPS = {**{f"arith.{name}": 1 for name in _ARITHMETIC}, "math.fma": 2}
"""Floating-point operations of an op; one for each other op of the dialect `math`."""


@record
class GenericOp:
    """A linalg.generic; sizes are expressions while a symbolic program is lowered."""

    op: Any

    @lazy_property
    def accesses(self) -> tuple[Access, ...]:
        return read_cached(_accesses, self.op.attributes["indexing_maps"])

    @lazy_property
    def iterators(self) -> tuple[str, ...]:
        return read_cached(_iterators, self.op.attributes["iterator_types"])

    @lazy_property
    def num_inputs(self) -> int:
        return len(self.op.operands) - self.num_outputs

    @lazy_property
    def num_outputs(self) -> int:
        return read_cached(_num_outputs, self.op.attributes["operandSegmentSizes"])

    @property
    def inputs(self) -> list[Any]:
        return list(self.op.operands)[: self.num_inputs]

    @property
    def outputs(self) -> list[Any]:
        return list(self.op.operands)[self.num_inputs :]

    @property
    def block(self) -> Any:
        return self.op.regions[0].blocks[0]

    @lazy_property
    def sizes(self) -> tuple[Extent, ...]:
        """The extent of every loop, from operand dimensions that are indexed by that loop alone."""
        sizes: list[Extent | None] = [None] * len(self.iterators)
        for operand, access in zip(self.op.operands, self.accesses, strict=True):
            for loop, extent in zip(access.row_dims, shape_of(operand), strict=False):
                if loop is not None:
                    sizes[loop] = extent
        if None in sizes:
            raise LoweringError(
                "a linalg.generic whose loop bounds no operand gives",
                where=place_of(self.op.location),
            )
        return tuple(s for s in sizes if s is not None)

    @lazy_property
    def out_dims(self) -> tuple[int, ...]:
        """The loops in the order of the first output's dimensions."""
        access = self.accesses[self.num_inputs]
        dims = [access.row_dim(i) for i in range(len(access.coefficients))]
        if any(d is None for d in dims):
            return ()
        return tuple(d for d in dims if d is not None)

    @lazy_property
    def grid_dims(self) -> tuple[int, ...]:
        """The loops that are the output's dimensions; the leading ones where it is not all written.

        A copy to the middle of a padded tensor writes all of its leading dimensions.
        """
        if self.out_dims or len(self.outputs) != 1:
            return self.out_dims
        access, shape = self.accesses[-1], shape_of(self.outputs[0])
        loops = zip(self.sizes, shape, self.iterators, strict=False)
        count = 0
        for loop, (size, extent, iterator) in enumerate(loops):
            if iterator != "parallel" or access.row_dim(loop) != loop or size != extent:
                break
            count += 1
        return tuple(range(count))

    @lazy_property
    def work(self) -> Extent:
        """Estimated work: body executions times ops in the body, or an attribute of the op."""
        return WORK.get(self.op) if WORK.has(self.op) else self.operations

    @property
    def operations(self) -> Extent:
        """Body executions times ops in the body."""
        return prod(self.sizes) * max(1, len(self.block.operations) - 1)

    @lazy_property
    def flops(self) -> int:
        """Floating-point operations: body executions times float arithmetic in the body.

        A multiply-add is two; conversions, comparisons and integers do not count. An op that stands
        for a whole algorithm has its estimate.
        """
        if WORK.has(self.op):
            return WORK.get(self.op)
        names = [op.operation.name for op in self.block.operations]
        return prod(self.sizes) * sum(_FLOPS.get(n, n.startswith("math.")) for n in names)

    @lazy_property
    def is_whole(self) -> bool:
        """Whether the body stands for a whole algorithm; see nova/ir/attention_ops.py."""
        return stands_for_algorithm(self.op)

    @lazy_property
    def uses_output(self) -> bool:
        """Whether the body reads the previous value of the output."""
        arguments = list(self.block.arguments)[self.num_inputs :]
        return any(len(list(a.uses)) > 0 for a in arguments)


def stands_for_algorithm(op: Any) -> bool:
    """Whether the body of a linalg.generic is an attention, or a transform."""
    return any(inner.operation.name in _ALGORITHMS for inner in op.regions[0].blocks[0].operations)


def is_generic_op(op: Any) -> bool:
    """Whether `op` is a linalg.generic."""
    return op.operation.name == "linalg.generic"


def shape_of(value: Any) -> tuple[Extent, ...]:
    """The shape of a tensor or memref value; () for scalars.

    While a symbolic program is lowered, sizes are expressions (`SizeExpr`) where they are symbolic.
    """
    if not isinstance(value.type, ir.ShapedType):
        return ()
    return decoded(value.type.shape)


def _num_outputs(attribute: Any) -> int:
    return int(attribute[1])


def _iterators(attribute: Any) -> tuple[str, ...]:
    return tuple(_ITERATOR.findall(str(attribute)))


def _accesses(attribute: Any) -> tuple[Access, ...]:
    return tuple(map(_access, attribute))


def _access(attribute: Any) -> Access:
    """The access of an affine map."""
    text = str(attribute)
    access = _ACCESSES.get(text)
    if access is None:
        if len(_ACCESSES) >= _MOST_ACCESSES:
            _ACCESSES.clear()
        access = _ACCESSES[text] = read_access(attribute.value)
    return access


def read_access(affine_map: Any) -> Access:
    """The access of an affine map; LoweringError if it is not affine in the loops."""
    loops = affine_map.n_dims
    rows, constants = [], []
    for expr in affine_map.results:
        row = [0] * loops
        constants.append(_collect(expr, row, 1))
        rows.append(tuple(row))
    return Access(tuple(rows), tuple(constants))


def _collect(expr: Any, row: list[int], factor: int) -> int:
    """Add `factor * expr` to the coefficients in `row`; returns the constant part."""
    if isinstance(expr, ir.AffineDimExpr):
        row[expr.position] += factor
        return 0
    if isinstance(expr, ir.AffineConstantExpr):
        return factor * expr.value
    if isinstance(expr, ir.AffineAddExpr):
        return _collect(expr.lhs, row, factor) + _collect(expr.rhs, row, factor)
    if isinstance(expr, ir.AffineMulExpr):
        for constant, term in ((expr.lhs, expr.rhs), (expr.rhs, expr.lhs)):
            if isinstance(constant, ir.AffineConstantExpr):
                return _collect(term, row, factor * constant.value)
    raise LoweringError(f"an access that is not affine in the loops: {expr}")
