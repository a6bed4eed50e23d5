"""The device of a graph of torch: that of its tensors.

A graph with tensors on a GPU is computed there. Its arguments on the CPU are copied to the GPU by
each call, as torch does with numbers in tensors; ops with results elsewhere stay in torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch

from nova.errors import UnsupportedOpError

CPU = torch.device("cpu")
_devices: WeakKeyDictionary[torch.fx.Graph, torch.device] = WeakKeyDictionary()


def graph_device(graph: torch.fx.Graph) -> torch.device:
    """The first GPU of a graph, else the CPU."""
    if graph not in _devices:
        values = (value for node in graph.nodes for value in _tensors(node.meta.get("val")))
        on_gpu = (value.device for value in values if value.device.type == "cuda")
        _devices[graph] = next(on_gpu, CPU)
    return _devices[graph]


def check_placement(node: torch.fx.Node) -> None:
    """UnsupportedOpError for a node whose results or operands are on a wrong device."""
    device = graph_device(node.graph)
    for value in _tensors(node.meta.get("val")):
        if value.device != device:
            raise UnsupportedOpError(f"a result on {value.device} in a graph on {device}")
    for operand in node.all_input_nodes:
        for value in _tensors(operand.meta.get("val")):
            if value.device not in (device, CPU):
                raise UnsupportedOpError(f"a tensor on {value.device} in a graph on {device}")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
