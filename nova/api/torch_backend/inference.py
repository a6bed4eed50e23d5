"""Graphs without gradients, mutations and aliases: traced without AOTAutograd.

AOTAutograd wraps each call in Python code that restores aliases and mutations. A graph that has
none of them needs no wrapper, which is most of the cost of a small call.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from nova.frontends.torch.decompositions import decompositions
from nova.frontends.torch.importer import graph_results

# Functions of a dynamo graph that change a mode of torch.
_MODES = ("autocast", "grad_enabled", "inference_mode", "requires_grad", "functorch", "vmap")


def trace_inference(
    module: torch.fx.GraphModule, examples: Sequence[Any]
) -> torch.fx.GraphModule | None:
    """The graph in ATen ops; None if it needs AOTAutograd."""
    if not _is_plain(module, examples):
        return None

    def run(*args: Any) -> Any:
        return torch.fx.Interpreter(module).run(*args)

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(_unfaked(e), static_shapes=True) for e in examples]
    with mode, torch.no_grad(), preserve_node_meta():
        try:
            traced = make_fx(functionalize(run), decomposition_table=decompositions())(*fakes)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return None  # AOTAutograd's modes may know the value
    return traced if _is_pure(traced.graph) else None


def _unfaked(example: torch.Tensor) -> torch.Tensor:
    """A real tensor like a fake one of another mode; a real one itself."""
    if not isinstance(example, FakeTensor):
        return example.detach()
    with unset_fake_temporarily():
        return torch.empty_strided(
            example.shape, example.stride(), dtype=example.dtype, device=example.device
        )


def _is_plain(module: torch.fx.GraphModule, examples: Sequence[Any]) -> bool:
    """Whether arguments are plain tensors without gradients, and ops change no mode."""
    is_recording = torch.is_grad_enabled()
    for example in examples:
        if not isinstance(example, torch.Tensor) or example.device.type not in ("cpu", "cuda"):
            return False
        if is_recording and example.requires_grad:
            return False
        if any(not isinstance(n, int) for n in (*example.shape, *example.stride())):
            return False
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        return False
    if any(True for _ in module.parameters()):
        return False
    return not any(
        isinstance(node.target, torch._ops.HigherOrderOperator)
        or any(mode in str(node.target) for mode in _MODES)
        for node in module.graph.nodes
    )


def _is_pure(graph: torch.fx.Graph) -> bool:
    """Whether no op writes an argument, and each result has memory of its own."""
    for node in graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            return False
    roots: set[torch.fx.Node] = set()
    for result in graph_results(graph):
        if not isinstance(result, torch.fx.Node):
            return False
        root = _owner(result)
        if root.op != "call_function" or root in roots:
            return False
        roots.add(root)
    return True


def _owner(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a node may share."""
    while node.op == "call_function":
        is_view = isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
        if not is_view and node.target is not operator.getitem:
            break
        if node.target is operator.getitem and not _returns_views(node.args[0]):
            break
        node = node.args[0]
    return node


def _returns_views(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
