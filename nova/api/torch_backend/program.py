"""One FX graph as a compiled program that is called with tensors of torch.

In: a graph whose ops all have rows. Out: a `GraphProgram`; `call` takes the list of the graph's
arguments. Arguments are read in place, results are written into new tensors of torch, arguments
that the graph updates are written in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nova import knobs
from nova.api.compile import compile_plan
from nova.api.compiled import Compiled
from nova.api.torch_backend.call_source import Allocation, CallPlan, View
from nova.api.torch_backend.options import Options
from nova.core.dlpack import as_numpy
from nova.frontends.torch.importer import graph_results, import_graph, returns_tuple, view_root
from nova.frontends.torch.layout import Layout, layout_of
from nova.ops import F
from nova.plan import build_plan

Run = Callable[[list[Any], list[Any]], None]


class GraphProgram:
    """A compiled graph; call it with a list of the graph's arguments, which it clears."""

    def __init__(self, module: torch.fx.GraphModule, options: Options, name: str):
        self._boxed_call = True  # of the instance: torch's wrappers copy it from there
        self.options = options
        self.name = name
        self.is_tuple = returns_tuple(module.graph)
        self._graph = import_graph(module)
        self._arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
        graph = self._graph
        self._layouts = {
            p: layout for p, layout in zip(graph.positions, graph.layouts, strict=True) if p >= 0
        }
        self._copied = [p for p, layout in self._layouts.items() if self._has_gaps(p, layout)]
        self._in_place = [p for p in graph.updates if p not in self._copied]
        self._copied_back = [p for p in graph.updates if p in self._copied]
        self.program = self._compile()
        self.plan = self._plan(module)
        self.call = self.plan.function(boxed=True)

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        return self.call(args)

    def _has_gaps(self, position: int, layout: Layout) -> bool:
        value = self._arguments[position].meta["val"]
        return _allocation(value, layout).has_gaps

    # --- compiling ------------------------------------------------------------------------------

    def _compile(self) -> Compiled:
        graph, options = self._graph, self.options
        by_position = dict(zip(graph.positions, graph.inputs, strict=True))
        inputs = [by_position[p] for p in graph.positions if p not in self._in_place]
        if graph.seeds is not None:
            inputs.append(graph.seeds)
        params = [by_position[p] for p in self._in_place]
        updates = {
            by_position[p]: self._layouts[p].write(F, graph.updates[p]) for p in self._in_place
        }
        outputs = [*graph.outputs, *(graph.updates[p] for p in self._copied_back)]
        return compile_plan(
            build_plan(outputs, inputs, params, updates),
            target=options.target,
            fast_math=options.fast_math,
            tune=options.tune,
            name=self.name,
        )

    # --- calling --------------------------------------------------------------------------------

    def _plan(self, module: torch.fx.GraphModule) -> CallPlan:
        graph = self._graph
        order: list[Any] = [
            p if p >= 0 else graph.constants[-1 - p]
            for p in graph.positions
            if p not in self._in_place
        ]
        if graph.seeds is not None:
            order.append("seeds")
        return CallPlan(
            argument_count=len(self._arguments),
            order=[*order, *self._in_place],
            copied=self._copied,
            copied_back=[(p, self._contiguous(p)) for p in self._copied_back],
            allocations=[_output(node) for node in graph.output_nodes],
            results=[self._result(module, r) for r in graph_results(module.graph)],
            seed_count=graph.seed_count,
            run=self._runner(),
        )

    def _contiguous(self, position: int) -> Allocation:
        value = self._arguments[position].meta["val"]
        layout = self._layouts[position]
        return Allocation(layout.shape, layout.strides, layout.strides, value.dtype)

    def _result(self, module: torch.fx.GraphModule, result: Any) -> Any:
        """How a result comes about: an output, an argument, a view of one, or a value."""
        if not isinstance(result, torch.fx.Node):
            return result
        stored = self._graph.output_nodes
        if result in stored:
            return ("output", stored.index(result))
        root = view_root(result)
        base: Any = root.meta.get("val")
        if root in stored:
            base = ("output", stored.index(root))
        elif root.op == "placeholder":
            base = ("argument", self._arguments.index(root))
        elif root.op == "get_attr":
            base = getattr(module, str(root.target))
        if result is root:
            return base
        value, origin = result.meta["val"], root.meta["val"]
        offset = int(value.storage_offset()) - int(origin.storage_offset())
        return View(base, _ints(value.shape), _ints(value.stride()), offset)

    def _runner(self) -> Run:
        """Runs the native program on lists of tensors, with the threads of the options."""
        run = self._native_runner()
        threads = self.options.threads
        if threads is None:
            return run

        def with_threads(tensors: list[Any], outputs: list[Any]) -> None:
            with knobs.override(threads=threads):
                run(tensors, outputs)

        return with_threads

    def _native_runner(self) -> Run:
        native = self.program._program
        fast: Run | None = getattr(native, "run_foreign", None)
        if fast is not None:
            return fast
        # Checked and logged runs take arrays of numpy.
        specs = self.program.artifact.manifest
        count = len(self._in_place)

        def run(tensors: list[Any], outputs: list[Any]) -> None:
            shapes = [spec.shape for spec in specs.args]
            arrays = [_array(t, s) for t, s in zip(tensors, shapes, strict=True)]
            split = len(arrays) - count
            results = iter(outputs)
            out = [
                _array(next(results), spec.shape) if spec.alias < 0 else arrays[spec.alias]
                for spec in specs.outputs
            ]
            native.run(arrays[:split], arrays[split:], out)

        return run


def _array(tensor: torch.Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """The contiguous array that a tensor of a layout is stored in."""
    flat = torch.as_strided(tensor.detach(), (int(np.prod(shape)),), (1,))
    return as_numpy(flat, "a tensor").reshape(shape)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _allocation(value: torch.Tensor, layout: Layout) -> Allocation:
    return Allocation(_ints(value.shape), _ints(value.stride()), layout.strides, value.dtype)


def _output(node: torch.fx.Node) -> Allocation:
    value = node.meta["val"]
    return _allocation(value, layout_of(value.shape, value.stride()))
