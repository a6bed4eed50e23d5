"""The backend of `torch.compile`: AOTAutograd, then Nova for the forward and the backward graph.

In: a graph of dynamo and its example inputs. Out: a function of torch. AOTAutograd functionalizes
the graph, takes gradients and decomposes ops; each graph becomes one program of Nova, or several if
ops without a row stay in torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from nova.api.torch_backend.frame_recording import skip_frame_recording
from nova.api.torch_backend.inference import trace_inference
from nova.api.torch_backend.options import Options, read_options
from nova.api.torch_backend.program import GraphProgram
from nova.api.torch_backend.specialize import PerShape, has_symbols
from nova.api.torch_backend.symbolic_graph import SymbolicGraph
from nova.errors import (
    CodegenError,
    FallbackWarning,
    ImportedProgramError,
    LoweringError,
    MLIRSyntaxError,
    PassError,
    ShapeError,
    SymbolicSizeError,
    UnsupportedOpError,
    WorkspaceError,
)
from nova.frontends.torch.decompositions import decompositions
from nova.frontends.torch.partition import Unsupported, partition, unsupported_nodes

# Errors of a stage about one program.
_REFUSALS = (
    CodegenError,
    ImportedProgramError,
    LoweringError,
    MLIRSyntaxError,
    PassError,
    UnsupportedOpError,
    WorkspaceError,
)


def nova_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of dynamo; torch calls this for `torch.compile(..., backend="nova")`."""
    settings = read_options(options, mode)
    skip_frame_recording()
    plain = trace_inference(module, example_inputs)
    if plain is not None and not unsupported_nodes(plain.graph):
        program = _compile_part(plain, settings, "torch inference")
        return module if program is None else program.plan.function(boxed=False)

    def compiler(stage: str) -> Callable[..., Any]:
        def compile_stage(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            return compile_graph(graph, settings, stage)

        return compile_stage

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return backend(module, example_inputs)


def compile_graph(module: torch.fx.GraphModule, options: Options, stage: str) -> Any:
    """A function of a list of arguments, for a graph of ATen ops."""
    if has_symbols(module.graph):
        per_shape = PerShape(module, lambda static: compile_static(static, options, stage))
        try:
            return SymbolicGraph(module, options, f"torch {stage}", per_shape)
        except (*_REFUSALS, ShapeError, SymbolicSizeError) as error:
            if isinstance(error, MLIRSyntaxError):  # not a known limit of symbolic sizes
                message = f"Nova compiles torch {stage} per shape: {type(error).__name__}: {error}"
                warnings.warn(FallbackWarning(message), stacklevel=2)
            return per_shape  # an op needs static sizes, or has no row
    return compile_static(module, options, stage)


def compile_static(module: torch.fx.GraphModule, options: Options, stage: str) -> Any:
    """The same, for a graph with known sizes."""
    unsupported = unsupported_nodes(module.graph)
    if not unsupported:
        program = _compile_part(module, options, f"torch {stage}")
        return _Hybrid(module, ()) if program is None else program
    _report(list(unsupported.values()), options)
    partitioned = partition(module, unsupported)
    for name in partitioned.parts:
        part = getattr(partitioned.module, name)
        program = _compile_part(part, options, f"torch {stage} {name}")
        if program is not None:
            setattr(partitioned.module, name, _Part(program))
    return _Hybrid(partitioned.module, partitioned.updates)


def _compile_part(module: torch.fx.GraphModule, options: Options, name: str) -> GraphProgram | None:
    """The program of a graph whose ops have rows; None, with a warning, if a stage refuses it."""
    try:
        return GraphProgram(module, options, name)
    except _REFUSALS as error:
        if not options.fallback:
            raise
        ops = sum(n.op == "call_function" for n in module.graph.nodes)
        message = f"torch computes {ops} ops of {name}, not Nova: {type(error).__name__}: {error}"
        warnings.warn(FallbackWarning(message), stacklevel=2)
        return None


def _report(unsupported: Sequence[Unsupported], options: Options) -> None:
    """One warning for a graph, which names the first op and its line; or an error."""
    first, names = unsupported[0], sorted({u.op for u in unsupported})
    if not options.fallback:
        raise UnsupportedOpError(
            f"{first.op}: {first.reason}",
            where=first.where,
            hint="options={'fallback': True} lets torch compute such ops",
        )
    more = f"; also {', '.join(n for n in names if n != first.op)}" if len(names) > 1 else ""
    message = f"torch computes {first.op} at {first.where}, not Nova: {first.reason}{more}"
    warnings.warn(FallbackWarning(message), stacklevel=2)


class _Part(torch.nn.Module):
    """A part of a graph as a module, which the rest of the graph calls."""

    def __init__(self, program: GraphProgram):
        super().__init__()
        self.program = program

    def forward(self, *args: Any) -> Any:
        results = self.program(list(args))
        return results if self.program.is_tuple else results[0]


class _Hybrid:
    """A graph of which torch computes some ops."""

    def __init__(self, module: torch.fx.GraphModule, updates: Sequence[int]):
        self._boxed_call = True
        self.module = module
        self.updates = updates

    def __call__(self, args: list[Any]) -> Any:
        results = self.module(*args)
        if self.updates:
            count = len(results) - len(self.updates)
            for position, value in zip(self.updates, results[count:], strict=True):
                args[position].copy_(value)
            results = results[:count]
        args.clear()
        return results
