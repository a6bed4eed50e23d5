"""Splits a graph into parts that Nova computes and ops that stay in torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from nova.frontends.torch.importer import COPY_INTO, VIEWS, explain_unsupported
from nova.frontends.torch.source import location_of, op_name


@dataclass(frozen=True)
class Unsupported:
    """An op that stays in torch: its name, the user's line, and why."""

    op: str
    where: str
    reason: str


def unsupported_nodes(graph: torch.fx.Graph) -> dict[torch.fx.Node, Unsupported]:
    """The nodes that Nova does not compute."""
    result = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        reason = explain_unsupported(node)
        if reason is not None:
            where = str(location_of(node))
            result[node] = Unsupported(op_name(node.target), where, reason)
    return result


class _Support(OperatorSupportBase):
    def __init__(self, unsupported: Mapping[torch.fx.Node, Unsupported]):
        self._unsupported = unsupported

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node not in self._unsupported


@dataclass(frozen=True)
class Partitioned:
    """A graph whose parts for Nova are submodules.

    module   calls the parts, by name, and the other ops.
    parts    names of the submodules.
    updates  positions of arguments that change in place; their new values are the last results.
    """

    module: torch.fx.GraphModule
    parts: tuple[str, ...]
    updates: tuple[int, ...]


def partition(
    module: torch.fx.GraphModule, unsupported: Mapping[torch.fx.Node, Unsupported]
) -> Partitioned:
    """The graph with its supported ops in submodules."""
    updates = _take_out_updates(module)
    partitioner = CapabilityBasedPartitioner(
        module, _Support(unsupported), allows_single_node_partition=True
    )
    partitions = [
        p for p in partitioner.propose_partitions() if any(n.target not in VIEWS for n in p.nodes)
    ]
    before = {name for name, _ in module.named_children()}
    fused = partitioner.fuse_partitions(partitions)
    parts = tuple(name for name, _ in fused.named_children() if name not in before)
    return Partitioned(fused, parts, updates)


def _take_out_updates(module: torch.fx.GraphModule) -> tuple[int, ...]:
    """Replace `copy_` into arguments by further results: parts may run in any order."""
    graph = module.graph
    arguments = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    positions, values = [], []
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is COPY_INTO:
            positions.append(arguments.index(node.args[0]))
            values.append(node.args[1])
            node.replace_all_uses_with(node.args[1])
            graph.erase_node(node)
    if positions:
        results = output.args[0]
        single = results if isinstance(results, list | tuple) else (results,)
        output.args = ((*single, *values),)
        module.recompile()
    return tuple(positions)
