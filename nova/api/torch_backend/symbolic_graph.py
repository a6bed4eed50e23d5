"""A graph with symbolic sizes as one program, called with tensors of any sizes.

In: a graph of which dynamo has made sizes symbolic. The program is compiled once; for the sizes of
a call, the sizes and strides of results are computed from the graph, and the native program from
the tables of the compiled one, both without a compiler. A call whose tensors have other layouts
than those the graph was traced with is left to `PerShape`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nova.api.torch_backend.options import Options
from nova.api.torch_backend.program import GraphProgram, has_gaps
from nova.api.torch_backend.specialize import PerShape, shape_key
from nova.frontends.torch.layout import Layout, layout_of
from nova.frontends.torch.sizes import TorchSizes, graph_symbols, ranges_of, strided

Call = Callable[[list[Any]], Any]


class SymbolicGraph:
    """A compiled graph; call it with a list of the graph's arguments, which it clears."""

    def __init__(
        self, module: torch.fx.GraphModule, options: Options, name: str, per_shape: PerShape
    ):
        self._boxed_call = True
        self._module = module
        self._per_shape = per_shape
        symbols = graph_symbols(module.graph)
        sizes = TorchSizes(ranges_of(module.graph), hints=symbols)
        self.graph = GraphProgram(module, options, name, sizes)
        self._calls: dict[Any, Call] = {}

    def __call__(self, args: list[Any]) -> Any:
        key = tuple(map(shape_key, args))
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = self._call_for(args)
        return call(args)

    def _call_for(self, args: list[Any]) -> Call:
        """The function of calls with these sizes and strides."""
        symbols = graph_symbols(self._module.graph, args)
        if not self._fits(args, symbols):
            return self._per_shape
        return self.graph.call_for(symbols)

    def _fits(self, args: list[Any], symbols: dict[Any, int]) -> bool:
        """Whether the sizes are in their bounds, and arrays have the layouts of the program."""
        program = self.graph.program._program
        named = {str(symbol): value for symbol, value in symbols.items()}
        if any(not d.min <= named[d.name] <= d.max for d in program.dims):
            return False
        for position, layout in self.graph.layouts.items():
            tensor = args[position]
            actual = layout_of(tensor.shape, tensor.stride())
            is_copied = has_gaps(strided(tensor, {}), actual)
            if not _is_alike(actual, layout) or is_copied != (position in self.graph.copied):
                return False
        for node, layout in self.graph.outputs:
            value = strided(node.meta["val"], symbols)
            if not _is_alike(layout_of(value.shape, value.strides), layout):
                return False
        return True


def _is_alike(actual: Layout, traced: Layout) -> bool:
    """Whether two layouts have the same order of axes, and expand the same."""
    if actual.axes != traced.axes or (actual.size is None) != (traced.size is None):
        return False
    zeros = [[s == 0 for s in layout.strides] for layout in (actual, traced)]
    return actual.size is None or zeros[0] == zeros[1]
