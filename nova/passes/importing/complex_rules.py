"""What each StableHLO op on complex tensors computes on their parts.

A rule takes the op and its operands, a pair (real part, imaginary part) for each complex one, and
returns its results in the same form. Movement of data is done for each part; multiplications and
comparisons are written out here, because regions of reductions contain them; elementary functions
and Fourier transforms are those of Nova's own ops. Called by `split-complex`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova import fft
from nova.errors import UnsupportedOpError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ops import F
from nova.ops.complex.parts import is_complex as is_complex_tensor
from nova.passes.importing.expand_factorizations import factorization_of
from nova.passes.importing.inline_graph import inline_graph

Pair = tuple[Any, Any]
Rule = Callable[[Any, Sequence[Any]], list[Any]]


def is_complex(type_: Any) -> bool:
    """Whether a type is a tensor of complex numbers."""
    return isinstance(type_, ir.RankedTensorType) and isinstance(type_.element_type, ir.ComplexType)


def part_type(type_: Any) -> Any:
    """The type of the parts of a complex tensor."""
    return ir.RankedTensorType.get(list(type_.shape), type_.element_type.element_type)


def _create(name: str, type_: Any, *operands: Any, **attributes: Any) -> Any:
    return ir.Operation.create(f"stablehlo.{name}", [type_], list(operands), attributes).results[0]


def _attributes(op: Any) -> dict[str, Any]:
    return {name: op.attributes[name] for name in op.attributes}


# --- both parts alike -----------------------------------------------------------------------------


def _by_parts(op: Any, operands: Sequence[Any]) -> list[Any]:
    [result] = op.results
    type_ = part_type(result.type)
    return [
        tuple(
            ir.Operation.create(
                op.name,
                [type_],
                [x[part] if isinstance(x, tuple) else x for x in operands],
                _attributes(op),
            ).results[0]
            for part in (0, 1)
        )
    ]


_ALIKE = (
    *("add", "subtract", "negate", "select", "reshape", "transpose", "broadcast_in_dim", "slice"),
    *("dynamic_slice", "dynamic_update_slice", "concatenate", "reverse", "pad", "gather"),
    "broadcast",
)


def _pass_on(op: Any, operands: Sequence[Any]) -> list[Any]:
    return list(operands)


_IN_PARTS = {"stablehlo.add", "stablehlo.subtract", "stablehlo.return"}


def combines_parts_alone(op: Any) -> bool:
    """Whether the region of an op combines real parts with real parts, as a sum does."""
    blocks = [block for region in op.regions for block in region.blocks]
    return all(inner.operation.name in _IN_PARTS for block in blocks for inner in block.operations)


def region_by_parts(op: Any, operands: Sequence[Any]) -> list[Any]:
    """A reduction or a scatter with such a region, done for each part."""
    halves = [_one_part(op, operands, part) for part in (0, 1)]
    return list(zip(*halves, strict=True))


def _one_part(op: Any, operands: Sequence[Any], part: int) -> list[Any]:
    types = [part_type(r.type) for r in op.results]
    values = [x[part] if isinstance(x, tuple) else x for x in operands]
    new = ir.Operation.create(op.name, types, values, _attributes(op), regions=1)
    [old] = op.regions[0].blocks
    block_types = [part_type(a.type) for a in old.arguments]
    block = new.regions[0].blocks.append(*block_types, arg_locs=[op.location] * len(block_types))
    mapping = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in (o.operation for o in old.operations):
            inputs = [mapping[v] for v in inner.operands]
            outputs = [part_type(r.type) for r in inner.results]
            copy = ir.Operation.create(inner.name, outputs, inputs, _attributes(inner))
            mapping.update(zip(inner.results, copy.results, strict=True))
    return list(new.results)


# --- arithmetic -----------------------------------------------------------------------------------


def _times(op: Any, operands: Sequence[Any]) -> list[Any]:
    """A product, a contraction or a convolution of two complex tensors."""
    (a, b), (c, d) = operands
    type_ = part_type(op.results[0].type)
    name = op.name.removeprefix("stablehlo.")

    def product(x: Any, y: Any) -> Any:
        return _create(name, type_, x, y, **_attributes(op))

    re = _create("subtract", type_, product(a, c), product(b, d))
    return [(re, _create("add", type_, product(a, d), product(b, c)))]


def _compare(op: Any, operands: Sequence[Any]) -> list[Any]:
    direction = str(op.attributes["comparison_direction"])
    is_equal, is_unequal = "EQ" in direction, "NE" in direction
    if not (is_equal or is_unequal):
        raise UnsupportedOpError(
            "stablehlo.compare orders complex numbers", where=place_of(op.location)
        )
    x, y = operands
    type_ = op.results[0].type
    attributes = {"comparison_direction": op.attributes["comparison_direction"]}
    parts = [_create("compare", type_, x[i], y[i], **attributes) for i in (0, 1)]
    return [_create("and" if is_equal else "or", type_, *parts)]


def _zeros(like: Any) -> Any:
    values = ir.DenseElementsAttr.get_splat(like, ir.FloatAttr.get(like.element_type, 0.0))
    return _create("constant", like, value=values)


def _convert(op: Any, operands: Sequence[Any]) -> list[Any]:
    [x], [result] = operands, op.results
    if not is_complex(result.type):
        part = x[0] if isinstance(x, tuple) else x
        return [_create("convert", result.type, part)]
    type_ = part_type(result.type)
    if isinstance(x, tuple):
        return [tuple(_create("convert", type_, part) for part in x)]
    return [(_create("convert", type_, x), _zeros(type_))]


def _bitcast(op: Any, operands: Sequence[Any]) -> list[Any]:
    if op.operands[0].type != op.results[0].type:
        raise UnsupportedOpError(
            "stablehlo.bitcast_convert between complex and other types",
            where=place_of(op.location),
            hint="read the parts with stablehlo.real and stablehlo.imag",
        )
    return list(operands)


def _iota(op: Any, operands: Sequence[Any]) -> list[Any]:
    type_ = part_type(op.results[0].type)
    return [(_create("iota", type_, **_attributes(op)), _zeros(type_))]


_NUMBERS = re.compile(r"\(([^,()]+),\s*([^,()]+)\)")


def _constant(op: Any, operands: Sequence[Any]) -> list[Any]:
    """MLIR's bindings cannot read complex attributes: the values are in the text of the op."""
    type_ = part_type(op.results[0].type)
    name = "f8" if isinstance(type_.element_type, ir.F64Type) else "f4"
    text = op.get_asm(enable_debug_info=False)
    if "dense_resource<" in text:
        raise UnsupportedOpError(
            "a complex constant in a resource of the text", where=place_of(op.location)
        )
    values = text[text.index("dense<") + 6 : text.rindex("> : tensor<")]
    if values.startswith('"0x'):
        parts = np.frombuffer(bytes.fromhex(values.strip('"')[2:]), name).reshape(-1, 2)
    else:
        parts = np.array(
            [[_number(word, name) for word in pair] for pair in _NUMBERS.findall(values)]
        )
        parts = parts.reshape(-1, 2).astype(name)
    shape = list(type_.shape)
    count = int(np.prod(shape))
    columns = [np.ascontiguousarray(np.broadcast_to(parts[:, i], (count,))) for i in (0, 1)]
    return [
        tuple(
            _create(
                "constant",
                type_,
                value=ir.DenseElementsAttr.get(c, type=type_.element_type, shape=shape),
            )
            for c in columns
        )
    ]


def _number(word: str, name: str) -> Any:
    if not word.startswith("0x"):
        return float(word)
    size = int(name[1])
    return np.frombuffer(int(word, 16).to_bytes(size, "little"), name)[0]


# --- Nova's own ops -------------------------------------------------------------------------------


def _graph(function: Callable[..., Any]) -> Rule:
    """The op as a function of complex tensors of Nova, of one result or a list of them."""

    def rule(op: Any, operands: Sequence[Any]) -> list[Any]:
        flat = [part for x in operands for part in (x if isinstance(x, tuple) else (x,))]

        def on_parts(*tensors: Any) -> list[Any]:
            values = iter(tensors)
            arguments = [
                F.complex(next(values), next(values)) if isinstance(x, tuple) else next(values)
                for x in operands
            ]
            results = function(*arguments)
            results = results if isinstance(results, list) else [results]
            is_pair[:] = map(is_complex_tensor, results)
            return [
                part
                for x, pair in zip(results, is_pair, strict=True)
                for part in ((F.real(x), F.imag(x)) if pair else (x,))
            ]

        is_pair: list[bool] = []
        parts = iter(inline_graph(on_parts, flat))
        return [(next(parts), next(parts)) if pair else next(parts) for pair in is_pair]

    return rule


def _factorization(op: Any, operands: Sequence[Any]) -> list[Any]:
    function = factorization_of(op)
    if function is None:
        raise UnsupportedOpError(
            f"{op.name} of complex numbers has no code in Nova", where=place_of(op.location)
        )
    return _graph(function)(op, operands)


_FUNCTIONS = {
    "abs": "abs",
    "cosine": "cos",
    "divide": "div",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "log": "log",
    "log_plus_one": "log1p",
    "logistic": "sigmoid",
    "power": "pow",
    "rsqrt": "rsqrt",
    "sign": "sign",
    "sine": "sin",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
_FOURIER = {"FFT": fft.fftn, "IFFT": fft.ifftn, "RFFT": fft.rfftn, "IRFFT": fft.irfftn}


def _fft(op: Any, operands: Sequence[Any]) -> list[Any]:
    sizes = list(op.attributes["fft_length"])
    name = str(op.attributes["fft_type"]).removesuffix(">").split()[-1]

    def transform(x: Any) -> Any:
        return _FOURIER[name](x, s=sizes, axes=range(-len(sizes), 0))

    return _graph(transform)(op, operands)


_CHLO = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "conj", "square")


RULES: dict[str, Rule] = {
    **{f"stablehlo.{name}": _by_parts for name in _ALIKE},
    **{f"stablehlo.{name}": _times for name in ("multiply", "dot_general", "convolution")},
    **{f"stablehlo.{name}": _graph(getattr(F, ours)) for name, ours in _FUNCTIONS.items()},
    **{f"chlo.{name}": _graph(getattr(F, name)) for name in _CHLO},
    "stablehlo.complex": lambda op, operands: [tuple(operands)],
    "stablehlo.real": lambda op, operands: [operands[0][0]],
    "stablehlo.imag": lambda op, operands: [operands[0][1]],
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.cholesky": _factorization,
    "stablehlo.compare": _compare,
    "stablehlo.custom_call": _factorization,
    "stablehlo.fft": _fft,
    "stablehlo.constant": _constant,
    "stablehlo.convert": _convert,
    "stablehlo.iota": _iota,
    "stablehlo.optimization_barrier": _pass_on,
    "stablehlo.triangular_solve": _factorization,
}
