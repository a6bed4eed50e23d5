"""One FX graph as a compiled program that is called with tensors of torch.

In: a graph whose ops all have rows. Out: a `GraphProgram`; `call` takes the list of the graph's
arguments. Arguments are read in place, results are written into new tensors of torch, arguments
that the graph updates are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from nova import knobs
from nova.api.compile import compile_plan
from nova.api.compiled import Compiled
from nova.api.torch_backend.call_source import Allocation, CallPlan, View
from nova.api.torch_backend.options import Options
from nova.core.dlpack import as_numpy
from nova.frontends.torch.importer import (
    argument_layout,
    graph_results,
    has_lazy_values,
    import_graph,
    returns_tuple,
    view_root,
)
from nova.frontends.torch.layout import Layout, layout_of
from nova.frontends.torch.placement import graph_device
from nova.frontends.torch.sizes import TorchSizes, number_of, strided
from nova.ops import F
from nova.plan import build_plan

Run = Callable[[list[Any], list[Any]], None]
ValueOf = Callable[[torch.fx.Node], Any]


class GraphProgram:
    """A compiled graph; call it with a list of the graph's arguments, which it clears."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        options: Options,
        name: str,
        sizes: TorchSizes | None = None,
    ):
        self._boxed_call = True  # of the instance: torch's wrappers copy it from there
        self.options = options
        self.name = name
        self.is_tuple = returns_tuple(module.graph)
        self._module = module
        self._sizes = sizes
        self.device = graph_device(module.graph)
        self._graph = import_graph(module, sizes)
        self._arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
        graph = self._graph
        self._layouts = {
            p: layout for p, layout in zip(graph.positions, graph.layouts, strict=True) if p >= 0
        }
        self._copied = [p for p, layout in self._layouts.items() if self._has_gaps(p, layout)]
        self._resolved = [p for p in self._layouts if self._may_be_lazy(p)]
        self._in_place = [p for p in graph.updates if p not in self._copied]
        self._copied_back = [p for p in graph.updates if p in self._copied]
        self.program = self._compile()
        if sizes is None:
            self.plan = self._plan(_fake_value, self.program._program)
            self.call = self.plan.function(boxed=True)

    def call_for(self, symbols: Mapping[Any, int]) -> Callable[[list[Any]], tuple[Any, ...]]:
        """The function of calls with these values of the symbols of a graph."""
        program = self.program._program
        named = {str(symbol): value for symbol, value in symbols.items()}
        native = program.program_for(tuple(named[d.name] for d in program.dims))

        def value_of(node: torch.fx.Node) -> Any:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                return strided(value, symbols)
            return number_of(value, symbols) if isinstance(value, torch.SymInt) else value

        return self._plan(value_of, native).function(boxed=True)

    @property
    def layouts(self) -> dict[int, Layout]:
        """The layouts of tensors among the arguments, by position."""
        return self._layouts

    @property
    def copied(self) -> list[int]:
        """The positions of arguments with gaps."""
        return self._copied

    @property
    def outputs(self) -> list[tuple[torch.fx.Node, Layout]]:
        """The nodes whose values the program writes, with their layouts."""
        return list(zip(self._graph.output_nodes, self._graph.output_layouts, strict=True))

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        return self.call(args)

    def _has_gaps(self, position: int, layout: Layout) -> bool:
        value = self._arguments[position].meta["val"]
        if has_lazy_values(value):
            return True
        return has_gaps(value if self._sizes is None else strided(value, self._sizes.hints), layout)

    def _may_be_lazy(self, position: int) -> bool:
        """Whether torch may pass a conjugate or negative view: dynamo guards all but tangents."""
        node = self._arguments[position]
        value = node.meta["val"]
        is_tangent = node.name.startswith("tangents")
        return value.dtype.is_complex or has_lazy_values(value) or is_tangent

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
        device = options.device
        if self.device.type == "cuda":
            device = f"cuda:{self.device.index or 0}"
        return compile_plan(
            build_plan(outputs, inputs, params, updates),
            target=options.target if device is None else None,
            device=device,
            fast_math=options.fast_math,
            tune=options.tune,
            name=self.name,
        )

    # --- calling --------------------------------------------------------------------------------

    def _plan(self, value_of: ValueOf, native: Any) -> CallPlan:
        """The steps of a call of a native program; `value_of` has sizes and strides of nodes."""
        graph = self._graph
        order: list[Any] = [
            p if p >= 0 else graph.constants[-1 - p]
            for p in graph.positions
            if p not in self._in_place
        ]
        if graph.seeds is not None:
            order.append("seeds")
        order += self._in_place
        run = self._native_runner(native, order, value_of)
        return CallPlan(
            argument_count=len(self._arguments),
            order=order,
            copied=self._copied,
            resolved=self._resolved,
            copied_back=[(p, self._contiguous(p, value_of)) for p in self._copied_back],
            allocations=[_output(value_of(node)) for node in graph.output_nodes],
            results=[self._result(r, value_of) for r in graph_results(self._module.graph)],
            seed_count=graph.seed_count,
            run=self._with_threads(run),
            device=self.device,
        )

    def _contiguous(self, position: int, value_of: ValueOf) -> Allocation:
        value = value_of(self._arguments[position])
        layout = argument_layout(value)
        return Allocation(_ints(layout.shape), layout.strides, layout.strides, value.dtype)

    def _result(self, result: Any, value_of: ValueOf) -> Any:
        """How a result comes about: an output, an argument, a view of one, or a value."""
        if not isinstance(result, torch.fx.Node):
            return result
        stored = self._graph.output_nodes
        if result in stored:
            return ("output", stored.index(result))
        root = view_root(result)
        base: Any = value_of(root)
        if root in stored:
            base = ("output", stored.index(root))
        elif root.op == "placeholder":
            base = ("argument", self._arguments.index(root))
        elif root.op == "get_attr":
            base = getattr(self._module, str(root.target))
        if result is root:
            return base
        value, origin = value_of(result), value_of(root)
        offset = int(value.storage_offset()) - int(origin.storage_offset())
        return View(base, _ints(value.shape), _ints(value.stride()), offset)

    def _with_threads(self, run: Run) -> Run:
        """The same, with the threads of the options."""
        threads = self.options.threads
        if threads is None:
            return run

        def with_threads(tensors: list[Any], outputs: list[Any]) -> None:
            with knobs.override(threads=threads):
                run(tensors, outputs)

        return with_threads

    def _native_runner(self, native: Any, order: list[Any], value_of: ValueOf) -> Run:
        """Runs a native program on lists of tensors."""
        fast: Callable[..., None] | None = getattr(native, "run_foreign", None)
        if fast is not None and not self.program.is_on_device:
            return fast
        if fast is not None and self._are_on_device(order):
            return _on_current_stream(fast, self.device)
        # Checked and logged runs take arrays of numpy, runs on a device also tensors on it.
        specs = self.program.artifact.manifest
        count = len(self._in_place)
        stored = [*self._graph.output_nodes, *(self._arguments[p] for p in self._copied_back)]
        shapes = [self._array_shape(entry, value_of) for entry in order]
        output_shapes = [_shape_in_memory(value_of(node)) for node in stored]

        def run(tensors: list[Any], outputs: list[Any]) -> None:
            arrays = [_array(t, s) for t, s in zip(tensors, shapes, strict=True)]
            split = len(arrays) - count
            results = iter([_array(t, s) for t, s in zip(outputs, output_shapes, strict=True)])
            out = [
                next(results) if spec.alias < 0 else arrays[spec.alias] for spec in specs.outputs
            ]
            native.run(arrays[:split], arrays[split:], out)

        return run

    def _are_on_device(self, order: list[Any]) -> bool:
        """Whether all arguments and results are on the GPU."""
        if self.device.type != "cuda" or any(isinstance(entry, str) for entry in order):
            return False  # tensors, or the seeds of a call, are on the host
        nodes = [self._arguments[entry] for entry in order if isinstance(entry, int)]
        nodes += self._graph.output_nodes
        constants = [entry for entry in order if not isinstance(entry, int)]
        tensors = [*(node.meta["val"] for node in nodes), *constants]
        return all(tensor.device == self.device for tensor in tensors)

    def _array_shape(self, entry: Any, value_of: ValueOf) -> tuple[int, ...]:
        """The shape of an argument of the program: of the graph, a constant, or the seeds."""
        if isinstance(entry, int):
            return _shape_in_memory(value_of(self._arguments[entry]))
        return (self._graph.seed_count,) if isinstance(entry, str) else tuple(entry.shape)


def _on_current_stream(run: Callable[..., None], device: torch.device) -> Run:
    """Runs a native program in the order of torch's own kernels."""
    index = device.index or 0
    current_stream = torch._C._cuda_getCurrentRawStream

    def run_on_stream(tensors: list[Any], outputs: list[Any]) -> None:
        run(tensors, outputs, current_stream(index))

    return run_on_stream


def _shape_in_memory(value: Any) -> tuple[int, ...]:
    """The shape of the contiguous array that holds a tensor."""
    return _ints(layout_of(value.shape, value.stride()).shape)


def _array(tensor: torch.Tensor, shape: tuple[int, ...]) -> Any:
    """The contiguous array that a tensor of a layout is stored in; a tensor on a GPU is one."""
    tensor = tensor.detach()
    if tensor.is_cuda and tuple(tensor.shape) == shape and tensor.is_contiguous():
        return tensor
    flat = torch.as_strided(tensor, (int(np.prod(shape)),), (1,))
    return flat.view(shape) if tensor.is_cuda else as_numpy(flat, "a tensor").reshape(shape)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _allocation(value: Any, layout: Layout) -> Allocation:
    return Allocation(_ints(value.shape), _ints(value.stride()), layout.strides, value.dtype)


def _fake_value(node: torch.fx.Node) -> Any:
    return node.meta.get("val")


def has_gaps(value: Any, layout: Layout) -> bool:
    """Whether a tensor of these sizes and strides must be copied to have the layout."""
    return _allocation(value, layout).has_gaps


def _output(value: Any) -> Allocation:
    return _allocation(value, layout_of(value.shape, value.stride()))
