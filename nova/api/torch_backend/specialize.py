"""Graphs with symbolic sizes: one program per shape, compiled when a shape is first seen.

dynamo makes a size symbolic when it changes. Nova's programs have static shapes, so the graph is
traced again for the sizes of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta


def has_symbols(graph: torch.fx.Graph) -> bool:
    """Whether a graph has symbolic sizes."""
    return any(_is_symbolic(node.meta.get("val")) for node in graph.nodes)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, list | tuple) and any(map(_is_symbolic, value))


class PerShape:
    """A graph that is compiled for the shapes of each call."""

    def __init__(self, module: torch.fx.GraphModule, compile_static: Callable[..., Any]):
        self._boxed_call = True
        self._module = module
        self._compile = compile_static
        self._programs: dict[Any, Any] = {}

    def __call__(self, args: list[Any]) -> Any:
        key = tuple(map(shape_key, args))
        program = self._programs.get(key)
        if program is None:
            examples = [_fresh(a) for a in args]
            program = self._programs[key] = self._compile(specialized(self._module, examples))
        return program(args)


def specialized(module: torch.fx.GraphModule, examples: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph traced again, for the sizes of these arguments."""

    def run(*args: Any) -> Any:
        return torch.fx.Interpreter(module).run(*args)

    with preserve_node_meta():
        return make_fx(run, tracing_mode="fake")(*examples)


def _fresh(arg: Any) -> Any:
    """An example of the shape of an argument, which tracing may write."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device)


def shape_key(arg: Any) -> Any:
    """Sizes and strides of a tensor; another argument itself."""
    if not isinstance(arg, torch.Tensor):
        return arg
    return (*arg.shape, *arg.stride())
