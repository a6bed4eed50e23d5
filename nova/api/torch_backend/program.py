"""One FX graph as a compiled program that is called with tensors of torch.

In: a graph whose ops all have rows. Out: a `GraphProgram`, called with the list of the graph's
arguments. Arguments are read in place, results are written into new tensors of torch, arguments
that the graph updates are written in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from nova import knobs
from nova.api.compile import compile_plan
from nova.api.compiled import Compiled
from nova.api.torch_backend.options import Options
from nova.core.dlpack import as_numpy
from nova.frontends.torch.importer import graph_results, import_graph, returns_tuple, view_root
from nova.frontends.torch.layout import Layout, layout_of
from nova.ops import F
from nova.plan import build_plan

_empty = torch._C._dynamo.guards._empty_strided_cpu


@dataclass(frozen=True)
class _Output:
    """A tensor that the program writes; one with gaps between its elements is copied from it."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout

    @property
    def has_gaps(self) -> bool:
        return not _fits(self.size, self.strides, self.layout)


def _fits(size: Any, strides: Any, layout: Layout) -> bool:
    """Whether a tensor can be used in place for a layout."""
    pairs = zip(size, strides, layout.strides, strict=True)
    return 0 in size or all(n == 1 or s == t for n, s, t in pairs)


class GraphProgram:
    """A compiled graph; call it with a list of the graph's arguments, which it clears."""

    def __init__(self, module: torch.fx.GraphModule, options: Options, name: str):
        self._boxed_call = True  # of the instance: torch's wrappers copy it from there
        self.options = options
        self.name = name
        self._graph = import_graph(module)
        results = graph_results(module.graph)
        self.is_tuple = returns_tuple(module.graph)
        self._recipes = [self._recipe(module.graph, r) for r in results]
        self._outputs = [_output(node) for node in self._graph.output_nodes]
        arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._layouts = {
            p: layout
            for p, layout in zip(self._graph.positions, self._graph.layouts, strict=True)
            if p >= 0
        }
        self._copied = [
            p
            for p, layout in self._layouts.items()
            if not _fits(*_size_and_strides(arguments[p].meta["val"]), layout)
        ]
        self._in_place = [p for p in self._graph.updates if p not in self._copied]
        self._copied_back = [p for p in self._graph.updates if p in self._copied]
        self.program = self._compile()
        self.call = self._make_call()

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        return self.call(args)

    # --- compiling ------------------------------------------------------------------------------

    def _compile(self) -> Compiled:
        graph = self._graph
        by_position = dict(zip(graph.positions, graph.inputs, strict=True))
        inputs = [by_position[p] for p in graph.positions if p not in self._in_place]
        if graph.seeds is not None:
            inputs.append(graph.seeds)
        params = [by_position[p] for p in self._in_place]
        updates = {
            by_position[p]: self._layouts[p].write(F, graph.updates[p]) for p in self._in_place
        }
        outputs = [*graph.outputs, *(graph.updates[p] for p in self._copied_back)]
        plan = build_plan(outputs, inputs, params, updates)
        options = self.options
        return compile_plan(
            plan,
            target=options.target,
            fast_math=options.fast_math,
            tune=options.tune,
            name=self.name,
        )

    def _recipe(self, graph: torch.fx.Graph, result: Any) -> Callable[[list[Any], list[Any]], Any]:
        """How a result comes about, from arguments and stored outputs."""
        if not isinstance(result, torch.fx.Node):
            return lambda args, outputs: result
        nodes = self._graph.output_nodes
        if result in nodes:
            index = nodes.index(result)
            return lambda args, outputs: outputs[index]
        root = view_root(result)
        arguments = [n for n in graph.nodes if n.op == "placeholder"]
        if root in nodes:
            index = nodes.index(root)
            return _view(result, root, lambda args, outputs: outputs[index])
        if root.op == "placeholder":
            position = arguments.index(root)
            return _view(result, root, lambda args, outputs: args[position])
        constant = root.meta["val"] if root.op != "get_attr" else None
        if root.op == "get_attr":
            constant = getattr(graph.owning_module, root.target)
        return _view(result, root, lambda args, outputs: constant)

    # --- calling --------------------------------------------------------------------------------

    @cached_property
    def _order(self) -> list[int]:
        """Positions of the arguments in the order of the program; constants are negative."""
        inputs = [p for p in self._graph.positions if p not in self._in_place]
        return [*inputs, *self._in_place]

    def _make_call(self) -> Callable[[list[Any]], tuple[Any, ...]]:
        """The function of a call; `_order`, outputs and results are fixed."""
        graph, run = self._graph, self._runner()
        order, copied, recipes = self._order, self._copied, self._recipes
        outputs, copied_back = self._outputs, self._copied_back
        constants = graph.constants
        seed_position = len(order) - len(self._in_place)
        allocations = [(o.size, o.strides, o.dtype) if not o.has_gaps else None for o in outputs]
        packed = [(o.size, o.layout.strides, o.dtype) for o in outputs]

        def call(args: list[Any]) -> tuple[Any, ...]:
            tensors = [args[p] if p >= 0 else constants[-1 - p] for p in order]
            for p in copied:
                tensors[order.index(p)] = args[p].contiguous()
            if graph.seed_count:
                tensors.insert(seed_position, _draw_seeds(graph.seed_count))
            stored = [_empty(*(m or p)) for m, p in zip(allocations, packed, strict=True)]
            extra = [torch.empty_like(args[p]).contiguous() for p in copied_back]
            run(tensors, stored + extra)
            for i, m in enumerate(allocations):
                if m is None:
                    o = outputs[i]
                    stored[i] = _empty(o.size, o.strides, o.dtype).copy_(stored[i])
            for p, new in zip(copied_back, extra, strict=True):
                args[p].copy_(new)
            results = tuple([recipe(args, stored) for recipe in recipes])
            args.clear()
            return results

        return call

    def _runner(self) -> Callable[[list[Any], list[Any]], None]:
        """Runs the native program on lists of tensors."""
        run = self._native_runner()
        threads = self.options.threads
        if threads is None:
            return run

        def with_threads(tensors: list[Any], outputs: list[Any]) -> None:
            with knobs.override(threads=threads):
                run(tensors, outputs)

        return with_threads

    def _native_runner(self) -> Callable[[list[Any], list[Any]], None]:
        native = self.program._program
        fast: Callable[[list[Any], list[Any]], None] | None = getattr(native, "run_foreign", None)
        if fast is not None:
            return fast
        # Checked and logged runs take arrays of numpy.
        count = len(self._in_place)

        def run(tensors: list[Any], outputs: list[Any]) -> None:
            arrays = [_array(t) for t in tensors]
            split = len(arrays) - count
            out = [_array(t) for t in outputs] + arrays[split:]
            native.run(arrays[:split], arrays[split:], out)

        return run


def _draw_seeds(count: int) -> torch.Tensor:
    """Seeds of one call, from torch's generator."""
    return torch.empty(count, dtype=torch.int64).random_()


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The contiguous array that a tensor of a layout is stored in."""
    storage = torch.as_strided(tensor.detach(), (_extent(tensor),), (1,))
    return as_numpy(storage, "a tensor")


def _extent(tensor: torch.Tensor) -> int:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 0 if 0 in tensor.shape else 1 + sum((n - 1) * s for n, s in pairs)


def _size_and_strides(value: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(int(n) for n in value.shape), tuple(int(s) for s in value.stride())


def _output(node: torch.fx.Node) -> _Output:
    value = node.meta["val"]
    size, strides = _size_and_strides(value)
    return _Output(size, strides, value.dtype, layout_of(size, strides))


def _view(
    node: torch.fx.Node, root: torch.fx.Node, source: Callable[[list[Any], list[Any]], Any]
) -> Callable[[list[Any], list[Any]], Any]:
    """A view of an argument or a result, by the strides that torch gave its fake tensor."""
    if node is root:
        return source
    value, base = node.meta["val"], root.meta["val"]
    size, strides = _size_and_strides(value)
    offset = int(value.storage_offset()) - int(base.storage_offset())

    def view(args: list[Any], outputs: list[Any]) -> Any:
        tensor = source(args, outputs)
        return torch.as_strided(tensor, size, strides, tensor.storage_offset() + offset)

    return view
