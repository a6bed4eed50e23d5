"""Symbolic sizes of torch as sizes of Nova.

In: the symbols of an exported or traced graph with their ranges. Out: a dim for each, and the size
of a `torch.SymInt`, whose expression is one of sympy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

from nova.core.sizes import MAX_SIZE, Shape, Size, dim, size_max, size_min
from nova.errors import UnsupportedOpError
from nova.frontends.torch.layout import Layout, layout_of


class TorchSizes:
    """The dims of the symbols of a graph, each `least` or more.

    torch traces a graph as for sizes of 2 or more, and ops may depend on it.
    """

    def __init__(
        self,
        ranges: Mapping[Any, Any],
        names: Mapping[str, str] | None = None,
        least: int = 2,
        hints: Mapping[Any, int] | None = None,
    ):
        self.hints = hints or {}
        self._dims: dict[str, Size] = {}
        for symbol, span in ranges.items():
            low, high = _bound(span.lower, 0), _bound(span.upper, MAX_SIZE)
            name = (names or {}).get(str(symbol), str(symbol))
            self._dims[str(symbol)] = dim(name, min=max(low, least), max=max(high, least))

    def size(self, value: Any) -> Size:
        """The size of an int or a `torch.SymInt`."""
        if not isinstance(value, torch.SymInt):
            return int(value)
        return self._convert(value.node.expr)

    def shape(self, sizes: Iterable[Any]) -> Shape:
        return tuple(map(self.size, sizes))

    def layout(self, value: torch.Tensor) -> Layout:
        """The layout of a tensor, by the order of its strides for the sizes it was traced with."""
        traced = strided(value, self.hints)
        layout = layout_of(traced.shape, traced.strides)
        full = self.shape(value.shape)
        array: list[Size] = [0] * len(full)
        for axis, (n, step) in enumerate(zip(full, traced.strides, strict=True)):
            place = axis if layout.axes is None else layout.axes[axis]
            array[place] = 1 if layout.size is not None and step == 0 else n
        size = None if layout.size is None else full
        return Layout(tuple(array), layout.axes, size, layout.strides)

    def _convert(self, expression: Any) -> Size:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            if str(expression) not in self._dims:
                raise UnsupportedOpError(f"the size {expression}, which a run computes")
            return self._dims[str(expression)]
        parts = [self._convert(part) for part in expression.args]
        match expression:
            case sympy.Add():
                return sum(parts[1:], start=parts[0])
            case sympy.Mul():
                return prod(parts)
            case sympy.Pow() if isinstance(parts[1], int) and parts[1] > 0:
                return prod([parts[0]] * parts[1])
            case FloorDiv() | CleanDiv():
                return parts[0] // parts[1]
            case Mod() | PythonMod():
                return parts[0] % parts[1]
            case Max() | sympy.Max():
                return reduce(size_max, parts)
            case Min() | sympy.Min():
                return reduce(size_min, parts)
        raise UnsupportedOpError(f"the symbolic size {expression}")


def _bound(number: Any, otherwise: int) -> int:
    """A bound of a range; `otherwise` for an infinite or large one."""
    if not getattr(number, "is_Integer", isinstance(number, int)):
        return otherwise
    value = int(number)
    return value if 0 <= value <= MAX_SIZE else otherwise


def is_size(value: Any) -> bool:
    """Whether the value of a node is a size, or a fact about sizes that torch has checked."""
    return isinstance(value, torch.SymInt | torch.SymBool)


def dim_names(exported: Any, dynamic: Any) -> dict[str, str]:
    """The names that `torch.export.Dim`s give symbols, for arguments that are tensors."""
    signature = exported.graph_signature
    arguments = [s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT"]
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    if isinstance(dynamic, dict):
        axes = [(name, spec) for name, spec in dynamic.items() if name in arguments]
    else:
        axes = list(zip(arguments, dynamic or (), strict=False))
    names: dict[str, str] = {}
    for argument, spec in axes:
        shape = getattr(nodes[argument].meta["val"], "shape", ())
        if not isinstance(spec, dict | list | tuple):  # None, or the hint of a number
            continue
        pairs = spec.items() if isinstance(spec, dict) else enumerate(spec)
        for axis, declared in pairs:
            is_axis = isinstance(axis, int) and axis < len(shape)
            if isinstance(declared, torch.export.Dim) and is_axis:
                names[str(shape[axis])] = declared.__name__
    return names


# --- values of symbols ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Strided:
    """Sizes and strides of a fake tensor as numbers."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def storage_offset(self) -> int:
        return self.offset


def number_of(value: Any, symbols: Mapping[Any, int]) -> int:
    """An int or a `torch.SymInt` for values of the symbols; it adds no guard."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    result = value.node.expr.xreplace({s: sympy.Integer(n) for s, n in symbols.items()})
    if not result.is_Integer:
        raise UnsupportedOpError(f"the size {value}, which a run computes")
    return int(result)


def strided(value: torch.Tensor, symbols: Mapping[Any, int]) -> Strided:
    """The sizes and strides of a fake tensor for values of its symbols."""
    shape, strides = (
        tuple(number_of(n, symbols) for n in numbers) for numbers in (value.shape, value.stride())
    )
    return Strided(shape, strides, number_of(value.storage_offset(), symbols), value.dtype)


def graph_symbols(graph: torch.fx.Graph, arguments: Sequence[Any] | None = None) -> dict[Any, int]:
    """The symbols of the arguments of a graph, with their values in a call.

    Without arguments, the values are those that the graph was traced with.
    """
    nodes = [n for n in graph.nodes if n.op == "placeholder"]
    symbols: dict[Any, int] = {}
    for position, node in enumerate(nodes):
        value = node.meta.get("val")
        declared = value.shape if isinstance(value, torch.Tensor) else (value,)
        actual: Any = (None,) * len(declared)
        if arguments is not None:
            argument = arguments[position]
            actual = argument.shape if isinstance(argument, torch.Tensor) else (argument,)
        for size, number in zip(declared, actual, strict=True):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                symbols[size.node.expr] = int(size.node.hint if number is None else number)
    return symbols


def ranges_of(graph: torch.fx.Graph) -> dict[Any, Any]:
    """The ranges of the symbols of the arguments of a graph."""
    symbols = graph_symbols(graph)
    values = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    sizes = [s for v in values for s in (v.shape if isinstance(v, torch.Tensor) else (v,))]
    spans: dict[Any, Any] = {}
    for size in sizes:
        if isinstance(size, torch.SymInt):
            spans |= size.node.shape_env.var_to_range
    return {symbol: spans[symbol] for symbol in symbols}
