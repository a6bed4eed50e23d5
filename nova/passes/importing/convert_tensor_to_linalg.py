"""`convert-tensor-to-linalg`: slices, paddings and concatenations of tensors become linalg ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.bindings import arith, ir, tensor
from nova.ir.diagnostics import place_of
from nova.ir.index import add, index
from nova.ir.linalg.ops import fill, generic_op, loop_index, yield_op
from nova.ir.walk import functions
from nova.passes.base import Pass

Body = Callable[[list[Any]], Any]


@record
class ConvertTensorToLinalg(Pass):
    """Rewrite `tensor.extract_slice`, `insert_slice`, `pad`, `concat` and `splat` as linalg ops.

    Slices at constant positions become affine accesses, which fusion folds into their reader; the
    others read at computed, clamped positions. Sizes and steps must be constants.

    With `shifts`, only paddings that cut as much as they add: upstream folds an op `pad` whose
    operand and result have one type, so they are rewritten before the first canonicalization.
    """

    name: ClassVar[str] = "convert-tensor-to-linalg"
    shifts: bool = False

    def run(self, module: ir.Module) -> None:
        for function in functions(module):
            if not function.is_external:
                for block in function.body.blocks:
                    _rewrite_block(block, self.shifts)


def _rewrite_block(block: Any, shifts: bool) -> None:
    for op in list(block.operations):
        op = op.operation
        rewrite = _REWRITES.get(op.name)
        if rewrite is not None and not (shifts and not _is_shift(op)):
            with ir.InsertionPoint(op), op.location:
                value = rewrite(op)
            op.results[0].replace_all_uses_with(value)
            op.erase()
        elif not op.name.startswith("linalg."):
            for region in op.regions:
                for nested in region.blocks:
                    _rewrite_block(nested, shifts)


def _is_shift(op: Any) -> bool:
    """Whether a padding moves elements along axes that keep their size."""
    return (
        op.name == "tensor.pad"
        and op.operands[0].type == op.results[0].type
        and op.results[0].type.has_static_shape
        and any(list(op.attributes["static_low"]))
    )


# --- the ops --------------------------------------------------------------------------------------


@record
class _Box:
    """A slice: offset (a number or a value), size and step per axis of the whole."""

    offsets: tuple[Any, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    kept: tuple[int, ...]
    """The axes that the part has too; the others have size 1 there and are dropped."""


def _read_box(op: Any, part: Any, first_dynamic: int) -> _Box:
    offsets = list(op.attributes["static_offsets"])
    sizes = list(op.attributes["static_sizes"])
    steps = list(op.attributes["static_strides"])
    dynamic = list(op.operands)[first_dynamic:]
    unknown = ir.ShapedType.get_dynamic_size()
    if unknown in sizes or unknown in steps:
        raise LoweringError(
            f"{op.name} with sizes or steps that are not constants", where=place_of(op.location)
        )
    placed = tuple(_number_or_value(dynamic.pop(0)) if o == unknown else o for o in offsets)
    return _Box(placed, tuple(sizes), tuple(steps), _kept_axes(sizes, list(part.type.shape)))


def _kept_axes(sizes: list[int], shape: list[int]) -> tuple[int, ...]:
    """The axes of `sizes` that form `shape`; those of size 1 may be dropped."""
    kept: list[int] = []
    for axis, size in enumerate(sizes):
        if len(kept) < len(shape) and shape[len(kept)] == size:
            kept.append(axis)
    return tuple(kept)


def _extract_slice(op: Any) -> Any:
    source, result = op.operands[0], op.results[0]
    return _read_slice(source, result.type, _read_box(op, result, 1))


def slice_front(source: Any, sizes: Sequence[int]) -> Any:
    """The first `sizes` elements along each axis of a tensor, as a linalg op."""
    axes = tuple(range(len(sizes)))
    box = _Box((0,) * len(sizes), tuple(sizes), (1,) * len(sizes), axes)
    type_ = ir.RankedTensorType.get(list(sizes), source.type.element_type)
    return _read_slice(source, type_, box)


def _read_slice(source: Any, type_: Any, box: _Box) -> Any:
    if _is_affine(source.type.shape, box):
        rank = len(box.kept)
        position = {axis: ir.AffineDimExpr.get(i) for i, axis in enumerate(box.kept)}
        at = [
            position[axis] * step + offset
            if axis in position
            else ir.AffineConstantExpr.get(offset)
            for axis, (offset, step) in enumerate(zip(box.offsets, box.steps, strict=True))
        ]
        access = ir.AffineMap.get(rank, 0, at)
        return generic(type_, [(source, access)], lambda values: values[0])

    def body(_: list[Any]) -> Any:
        at = []
        for axis, (offset, step) in enumerate(zip(box.offsets, box.steps, strict=True)):
            own = _loop(box.kept.index(axis)) if axis in box.kept else index(0)
            at.append(add(_scale(own, step), offset))
        return tensor.extract(source, at)

    return generic(type_, [], body)


def _is_affine(shape: Sequence[int], box: _Box) -> bool:
    """Whether linalg accepts the slice as an access: identity axes define the loop bounds.

    So a truncated axis must not be read by identity, that is from 0 in steps of 1.
    """
    bounds = zip(shape, box.offsets, box.sizes, box.steps, strict=True)
    return all(
        isinstance(offset, int) and not (offset == 0 and step == 1 and n != size)
        for n, offset, size, step in bounds
    )


def _insert_slice(op: Any) -> Any:
    part, whole = op.operands[0], op.operands[1]
    box = _read_box(op, part, 2)
    if 0 in part.type.shape:
        return whole
    rank = len(whole.type.shape)

    def body(values: list[Any]) -> Any:
        places = [_subtract(_loop(axis), box.offsets[axis]) for axis in range(rank)]
        covered = [
            box.offsets[axis] == 0 and (size, step) == (whole.type.shape[axis], 1)
            for axis, (size, step) in enumerate(zip(box.sizes, box.steps, strict=True))
        ]
        inside, at = _inside(places, box.sizes, box.steps, covered)
        element = tensor.extract(part, [at[axis] for axis in box.kept])
        return arith.select(inside, element, values[0])

    return generic(whole.type, [(whole, ir.AffineMap.get_identity(rank))], body)


def _pad(op: Any) -> Any:
    source, result = op.operands[0], op.results[0]
    sizes = list(source.type.shape)
    unknown = ir.ShapedType.get_dynamic_size()
    widths = list(op.operands)[1:]
    low = [_number(widths.pop(0)) if n == unknown else n for n in op.attributes["static_low"]]
    if None in low or not result.type.has_static_shape:
        raise LoweringError(
            "tensor.pad by widths that are not constants", where=place_of(op.location)
        )
    padding = _padding(op)
    if 0 in source.type.shape:
        return fill(padding, _empty(result.type))

    def body(_: list[Any]) -> Any:
        places = [_subtract(_loop(axis), at) for axis, at in enumerate(low)]
        shapes = zip(low, result.type.shape, sizes, strict=True)
        covered = [at == 0 and n == size for at, n, size in shapes]
        inside, at = _inside(places, sizes, [1] * len(sizes), covered)
        return arith.select(inside, tensor.extract(source, at), padding)

    return generic(result.type, [], body)


def _padding(op: Any) -> Any:
    """The padding value, which must not depend on the position."""
    block = op.regions[0].blocks[0]
    inner = [o.operation for o in block.operations]
    value = inner[-1].operands[0]
    if isinstance(value, ir.OpResult) and value.owner.operation not in inner:
        return value
    if not isinstance(value, ir.OpResult) and value not in list(block.arguments):
        return value
    if isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant":
        return value.owner.operation.clone().results[0]
    raise LoweringError(
        "tensor.pad with a value that depends on the position", where=place_of(op.location)
    )


def _concat(op: Any) -> Any:
    axis = int(op.attributes["dim"].value)
    parts = [v for v in op.operands if 0 not in v.type.shape]
    result = op.results[0]
    if not parts:
        return _empty(result.type)
    rank = len(result.type.shape)

    def body(_: list[Any]) -> Any:
        chosen, offset = None, 0
        for part in parts:
            size = part.type.shape[axis]
            at = [_loop(i) for i in range(rank)]
            place = _subtract(at[axis], offset)
            at[axis] = arith.maxsi(arith.minsi(place, index(size - 1)), index(0))
            element = tensor.extract(part, at)
            if chosen is None:
                chosen = element
            else:
                trailing = arith.cmpi(arith.CmpIPredicate.sge, place, index(0))
                chosen = arith.select(trailing, element, chosen)
            offset += size
        return chosen

    return generic(result.type, [], body)


def _splat(op: Any) -> Any:
    return fill(op.operands[0], _empty(op.results[0].type))


_REWRITES: dict[str, Callable[[Any], Any]] = {
    "tensor.concat": _concat,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
    "tensor.splat": _splat,
}


# --- building -------------------------------------------------------------------------------------


def generic(type_: Any, inputs: Sequence[tuple[Any, Any]], body: Body) -> Any:
    """A parallel linalg.generic over the elements of a tensor of `type_`."""
    rank = len(type_.shape)
    maps = [*(access for _, access in inputs), ir.AffineMap.get_identity(rank)]
    values = [value for value, _ in inputs]
    op = generic_op([type_], values, [_empty(type_)], maps, ["parallel"] * rank)
    elements = [value.type.element_type for value, _ in inputs]
    block = op.regions[0].blocks.append(*elements, type_.element_type)
    with ir.InsertionPoint(block):
        yield_op([body(list(block.arguments)[:-1])])
    return op.results[0]


def _inside(
    places: Sequence[Any], sizes: Sequence[int], steps: Sequence[int], covered: Sequence[bool]
) -> tuple[Any, list[Any]]:
    """Whether a position is in a box, and its index there; clamped to the box where it is not.

    Along axes that the box `covered` every position is inside: loops over those can be vectorized.
    """
    inside: Any = None
    at = []
    for place, size, step, is_covered in zip(places, sizes, steps, covered, strict=True):
        if is_covered:
            at.append(place)
            continue
        number = place
        tests = [arith.cmpi(arith.CmpIPredicate.sge, place, index(0))]
        if step != 1:
            number = arith.divsi(place, index(step))
            rest = arith.remsi(place, index(step))
            tests.append(arith.cmpi(arith.CmpIPredicate.eq, rest, index(0)))
        tests.append(arith.cmpi(arith.CmpIPredicate.slt, number, index(size)))
        at.append(arith.maxsi(arith.minsi(number, index(size - 1)), index(0)))
        for test in tests:
            inside = test if inside is None else arith.andi(inside, test)
    if inside is None:
        i1 = ir.IntegerType.get_signless(1)
        inside = arith.ConstantOp(i1, ir.IntegerAttr.get(i1, 1)).result
    return inside, at


def _empty(type_: Any) -> Any:
    return tensor.empty(list(type_.shape), type_.element_type)


def _number(value: Any) -> int | None:
    """The number of a constant index, or None."""
    if isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant":
        return int(value.owner.operation.attributes["value"].value)
    return None


def _number_or_value(value: Any) -> Any:
    number = _number(value)
    return value if number is None else number


def _subtract(value: Any, offset: Any) -> Any:
    if isinstance(offset, int):
        return value if offset == 0 else arith.subi(value, index(offset))
    return arith.subi(value, offset)


def _scale(value: Any, factor: int) -> Any:
    return value if factor == 1 else arith.muli(value, index(factor))


def _loop(dim: int) -> Any:
    return loop_index(dim)
