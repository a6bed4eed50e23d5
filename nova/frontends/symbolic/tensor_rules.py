"""Shape rules of linalg on tensors with `?` sizes: `linalg.generic`, `tensor`, `arith` and `scf`.

Named ops are generalized first. Indices are scalars whose elements are sizes: `tensor.dim`, and the
arithmetic of `arith` on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nova.core.sizes import Shape, Size, ceildiv, is_static, size_max, size_min
from nova.errors import SymbolicImportError
from nova.frontends.symbolic import predicates
from nova.frontends.symbolic.infer import Inference, Rule, Shapes
from nova.frontends.symbolic.predicates import is_size
from nova.frontends.symbolic.stablehlo_elements import objects
from nova.ir.bindings import ir

# --- scalars --------------------------------------------------------------------------------------


def record_scalars(inference: Inference, op: Any) -> None:
    """Keep the value of a scalar that is computed from sizes."""
    if len(op.results) != 1 or isinstance(op.results[0].type, ir.RankedTensorType):
        return
    if op.name == "arith.constant":
        value = op.attributes["value"]
        if isinstance(value, ir.IntegerAttr):
            is_bool = str(value.type) == "i1"
            number = bool(value.value) if is_bool else int(value.value)
            inference.elements[op.results[0]] = objects([number], ())
        return
    row = _SCALARS.get(op.name)
    values = [scalar_of(inference, value) for value in op.operands]
    if op.name == "arith.cmpi":
        code = int(op.attributes["predicate"].value)
        result = predicates.compare(_PREDICATES[code], *values) if code in _PREDICATES else None
    elif op.name == "arith.select":
        result = predicates.select(*values)
    elif row is not None and all(map(is_size, values)):
        result = row(*values)
    else:
        return
    if result is not None:
        inference.elements[op.results[0]] = objects([result], ())


def scalar_of(inference: Inference, value: Any) -> Any:
    """The size that a scalar is; None for data."""
    elements = inference.find(value)
    return elements.item() if elements is not None and elements.ndim == 0 else None


def _ceil_quotient(first: Any, second: Any) -> Any:
    return ceildiv(first, second) if predicates.divide(first, second) is not None else None


_PREDICATES = {0: "EQ", 1: "NE", 2: "LT", 3: "LE", 4: "GT", 5: "GE"}
_SCALARS: dict[str, Callable[..., Any]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": predicates.divide,
    "arith.divui": predicates.divide,
    "arith.floordivsi": predicates.divide,
    "arith.ceildivsi": _ceil_quotient,
    "arith.ceildivui": _ceil_quotient,
    "arith.remsi": predicates.remainder,
    "arith.remui": predicates.remainder,
    "arith.maxsi": size_max,
    "arith.minsi": size_min,
    "arith.index_cast": lambda a: a,
    "arith.index_castui": lambda a: a,
    "arith.extsi": lambda a: a,
    "arith.trunci": lambda a: a,
}


# --- tensors --------------------------------------------------------------------------------------


def _dim(i: Inference, op: Any) -> Shapes | None:
    axis = scalar_of(i, op.operands[1])
    shape = i.shape(op.operands[0])
    if type(axis) is int and 0 <= axis < len(shape):
        i.elements[op.results[0]] = objects([shape[axis]], ())
    return None


def partly_static_sizes(i: Inference, op: Any, name: str, operands: Sequence[Any]) -> list[Any]:
    """Numbers of an attribute, whose dynamic entries are operands; None for data."""
    values = iter(operands)
    unknown = {ir.ShapedType.get_dynamic_size(), ir.ShapedType.get_dynamic_stride_or_offset()}
    numbers = [int(n) for n in op.attributes[name]]
    return [scalar_of(i, next(values)) if n in unknown else n for n in numbers]


def _required(sizes: Sequence[Any], op: Any) -> list[Size]:
    if not all(map(is_size, sizes)):
        raise SymbolicImportError(f"a size of {op.name} is computed from data, not from sizes")
    return list(sizes)


def _declared(i: Inference, op: Any, operands: Sequence[Any]) -> list[Size]:
    """The sizes of a result type, whose `?` are operands."""
    values = iter(operands)
    unknown = ir.ShapedType.get_dynamic_size()
    shape = op.results[0].type.shape
    return _required([scalar_of(i, next(values)) if n == unknown else n for n in shape], op)


def _empty(i: Inference, op: Any) -> Shapes:
    return [_declared(i, op, op.operands)]


def _elementwise(i: Inference, op: Any) -> Shapes | None:
    tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
    if not tensors or not isinstance(op.results[0].type, ir.RankedTensorType):
        return None
    return [i.same(op, tensors)]


def _generic(i: Inference, op: Any) -> Shapes:
    """Operands that are indexed by one loop have one size."""
    loops: dict[int, Size] = {}
    for value, attribute in zip(op.operands, op.attributes["indexing_maps"], strict=True):
        for expr, size in zip(attribute.value.results, i.shape(value), strict=False):
            if isinstance(expr, ir.AffineDimExpr):
                i.equate(loops.setdefault(expr.position, size), size, op)
    outputs = int(op.attributes["operandSegmentSizes"][1])
    return [i.shape(value) for value in list(op.operands)[-outputs:]]


def segments(op: Any, first: int) -> list[list[Any]]:
    """Operands by `operandSegmentSizes`, from the segment `first` on."""
    counts = [int(n) for n in op.attributes["operandSegmentSizes"]]
    ends = [sum(counts[: k + 1]) for k in range(len(counts))]
    operands = list(op.operands)
    return [operands[end - n : end] for end, n in zip(ends, counts, strict=True)][first:]


def _extract_slice(i: Inference, op: Any) -> Shapes:
    offsets, sizes, _ = slice_numbers(i, op, 1)
    counts = _required(sizes, op)
    i.computed += [n for n in (*offsets, *counts) if n is not None]
    rank = len(op.results[0].type.shape)
    return [_reduced(counts, rank)]


def slice_numbers(i: Inference, op: Any, first: int) -> list[list[Any]]:
    """Offsets, sizes and strides of a slice; None for data."""
    names = ("static_offsets", "static_sizes", "static_strides")
    parts = zip(names, segments(op, first), strict=True)
    return [partly_static_sizes(i, op, name, operands) for name, operands in parts]


def _reduced(sizes: list[Size], rank: int) -> list[Size]:
    """The sizes without as many units as the rank says."""
    result = list(sizes)
    for axis in range(len(sizes) - 1, -1, -1):
        if len(result) > rank and is_static(sizes[axis]) and sizes[axis] == 1:
            del result[axis]
    return result


def _insert_slice(i: Inference, op: Any) -> Shapes:
    offsets, sizes, _ = slice_numbers(i, op, 2)
    counts = _required(sizes, op)
    i.computed += [n for n in (*offsets, *counts) if n is not None]
    source = i.shape(op.operands[0])
    for a, b in zip(_reduced(counts, len(source)), source, strict=True):
        i.equate(a, b, op)
    return [i.shape(op.operands[1])]


def _collapse(i: Inference, op: Any) -> Shapes:
    shape = i.shape(op.operands[0])
    groups = [[int(a.value) for a in group] for group in op.attributes["reassociation"]]
    return [[prod(shape[a] for a in group) for group in groups]]


def _expand(i: Inference, op: Any) -> Shapes:
    sizes = _required(partly_static_sizes(i, op, "static_output_shape", list(op.operands)[1:]), op)
    groups = [[int(a.value) for a in group] for group in op.attributes["reassociation"]]
    for size, group in zip(i.shape(op.operands[0]), groups, strict=True):
        i.equate(prod(sizes[a] for a in group), size, op)
    return [sizes]


def _pad(i: Inference, op: Any) -> Shapes:
    low, high = pad_numbers(i, op)
    i.computed += [*low, *high]
    sizes = zip(low, i.shape(op.operands[0]), high, strict=True)
    return [[a + size + b for a, size, b in sizes]]


def pad_numbers(i: Inference, op: Any) -> list[list[Size]]:
    """The low and the high padding."""
    parts = zip(("static_low", "static_high"), segments(op, 1), strict=True)
    return [_required(partly_static_sizes(i, op, name, operands), op) for name, operands in parts]


def _concat(i: Inference, op: Any) -> Shapes:
    axis = int(op.attributes["dim"].value)
    first, *others = [list(i.shape(value)) for value in op.operands]
    for shape in others:
        for k, size in enumerate(shape):
            if k == axis:
                i.computed.append(first[k])  # where the operand begins
                first[k] = first[k] + size
            else:
                i.equate(first[k], size, op)
    return [first]


def _insert(i: Inference, op: Any) -> Shapes:
    return [i.shape(op.operands[1])]


# --- control flow ---------------------------------------------------------------------------------


def _for(i: Inference, op: Any) -> Shapes:
    """Carried values keep their shapes."""
    initial = list(op.operands)[3:]
    for bound in list(op.operands)[:3]:
        size = scalar_of(i, bound)
        i.computed += [size] if is_size(size) else []
    block = op.regions[0].blocks[0]
    i.bind(list(block.arguments)[1:], initial)
    for value, start in zip(i.block(block), initial, strict=True):
        _keep_shape(i, op, i.shape(value), i.shape(start))
    return [i.shape(value) for value in initial]


def _keep_shape(i: Inference, op: Any, shape: Shape, other: Shape) -> None:
    for a, b in zip(shape, other, strict=True):
        i.equate(a, b, op)


def _if(i: Inference, op: Any) -> Shapes:
    results = [i.block(region.blocks[0]) for region in op.regions if len(region.blocks)]
    return [i.same(op, values) for values in zip(*results, strict=True)]


def _no_results(i: Inference, op: Any) -> None:
    return None


SHAPES: dict[str, Rule] = {
    **dict.fromkeys(("func.return", "scf.yield", "linalg.yield", "tensor.yield"), _no_results),
    "linalg.generic": _generic,
    "scf.for": _for,
    "scf.if": _if,
    "tensor.cast": lambda i, op: [i.shape(op.operands[0])],
    "tensor.collapse_shape": _collapse,
    "tensor.concat": _concat,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "tensor.expand_shape": _expand,
    "tensor.extract": _no_results,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert": _insert,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
    "tensor.splat": _empty,
}


def find_rule(name: str) -> Rule | None:
    """The rule of an op; all ops of `arith` and `math` are elementwise."""
    if name in SHAPES:
        return SHAPES[name]
    return _elementwise if name.startswith(("arith.", "math.")) else None
