"""An FX graph of ATen ops as a graph of Nova's ops.

In: a `torch.fx.Graph` after functionalization, whose nodes have fake tensors in `meta["val"]`. Out:
an `ImportedGraph`: placeholders, results and in-place updates of Nova, and how each result of the
FX graph comes about. The backend and `nova.from_torch` compile it.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from nova.core.dlpack import as_numpy
from nova.core.location import at
from nova.core.sizes import same_shape
from nova.errors import ImportedProgramError, NovaError, UnsupportedOpError
from nova.frontends.torch.dtypes import nova_dtype
from nova.frontends.torch.layout import Layout, contiguous_strides, layout_of
from nova.frontends.torch.placement import check_placement
from nova.frontends.torch.rows import ROWS
from nova.frontends.torch.rows.randomness import RANDOM
from nova.frontends.torch.rows.strided import STRIDED
from nova.frontends.torch.rows.table import BY_DEVICE, cast
from nova.frontends.torch.sizes import TorchSizes, is_size
from nova.frontends.torch.source import location_of, op_name
from nova.graph.tensor import Tensor, placeholder
from nova.graph.tensor import tensor as constant_tensor
from nova.ops import F

COPY_INTO = torch.ops.aten.copy_.default
CHECKS: frozenset[Any] = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_tensor_metadata.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten.sym_constrain_range.default,
    }
)
"""Ops that check sizes, and compute nothing."""


@dataclass
class ImportedGraph:
    """The graph of Nova, and its relation to the FX graph.

    inputs     a placeholder for each tensor argument: the contiguous array of its `layout`.
    layouts    the layout of each of them.
    positions  the position of each among the arguments of the FX graph.
    constants  tensors of the FX module, which are further inputs.
    outputs    arrays to compute, with their layouts.
    updates    positions of arguments that change in place, and their new arrays.
    seeds      a placeholder for the seeds of random ops, or None, and their number.
    """

    inputs: list[Tensor] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    constants: list[torch.Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    output_nodes: list[torch.fx.Node] = field(default_factory=list)
    output_layouts: list[Layout] = field(default_factory=list)
    updates: dict[int, Tensor] = field(default_factory=dict)
    seeds: Tensor | None = None
    seed_count: int = 0


class Values:
    """The values of FX nodes while a graph is imported; `run` applies the row of a node."""

    def __init__(self, seed_count: int = 0, sizes: TorchSizes | None = None):
        self.sizes = sizes
        self.values: dict[torch.fx.Node, Any] = {}
        self.seeds = placeholder((seed_count,), "i64", "seeds") if seed_count else None
        self._next_seed = 0

    def run(self, node: torch.fx.Node) -> Any:
        """The result of a node, checked against the fake tensor of torch."""
        if node.target is operator.getitem:
            source, index = node.args
            return self.values[source][index]
        if node.target in CHECKS:
            return None
        if self.sizes is not None and is_size(node.meta.get("val")):
            return self._size(node.meta.get("val"))
        name = op_name(node.target)
        build = ROWS.get(name)
        if build is None:
            raise UnsupportedOpError(f"Nova does not implement {name}")
        args = torch.fx.map_arg(node.args, self._value)
        kwargs = dict(torch.fx.map_arg(node.kwargs, self._value))
        args, kwargs = _converted(args), {k: _converted(v) for k, v in kwargs.items()}
        if name in RANDOM:
            kwargs["seed"] = self._seed()
        if name in STRIDED:
            if self.sizes is not None:
                raise UnsupportedOpError(f"{name} with symbolic sizes")
            kwargs["memory"] = _memory(node.args[0].meta["val"])
        if name in BY_DEVICE:
            kwargs["device"] = node.args[0].meta["val"].device.type
        result = build(F, *args, **kwargs)
        return _conformed(name, result, node.meta["val"], self.sizes)

    def _size(self, value: Any) -> Any:
        """A size of Nova; None for a check of sizes, which torch has made."""
        return self.sizes.size(value) if self.sizes and isinstance(value, torch.SymInt) else None

    def _value(self, node: torch.fx.Node) -> Any:
        return self.values[node]

    def _seed(self) -> Tensor:
        if self.seeds is None:
            return placeholder((), "i64", "seed")
        self._next_seed += 1
        return F.select(self.seeds, 0, self._next_seed - 1)


def _memory(value: torch.Tensor) -> Layout | None:
    """The layout of a tensor that owns all of its memory; None of one with gaps."""
    layout = layout_of(value.shape, value.stride())
    pairs = zip(value.shape, value.stride(), layout.strides, strict=True)
    is_dense = all(n == 1 or s == t for n, s, t in pairs)
    return layout if is_dense and not value.storage_offset() else None


def _converted(value: Any) -> Any:
    """An argument of an FX node: dtypes of torch become Nova's."""
    if isinstance(value, torch.dtype):
        return nova_dtype(value)
    if isinstance(value, list | tuple):
        return [_converted(v) for v in value]
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise UnsupportedOpError(f"a symbolic size {value}")
    return value


def _conformed(name: str, result: Any, expected: Any, sizes: TorchSizes | None) -> Any:
    """The result in torch's dtype; ImportedProgramError if a shape is another."""
    if isinstance(expected, list | tuple):
        pairs = zip(result, expected, strict=True)
        return tuple(_conformed(name, r, e, sizes) for r, e in pairs)
    if expected is None or result is None:
        return result
    if not isinstance(expected, torch.Tensor):
        raise UnsupportedOpError(f"{name} returns a {type(expected).__name__}")
    shape = tuple(expected.shape) if sizes is None else sizes.shape(expected.shape)
    if not same_shape(result.shape, shape):
        raise ImportedProgramError(f"{name} converts to shape {result.shape}, torch infers {shape}")
    return cast(F, result, nova_dtype(expected.dtype))


def fake_value(node: torch.fx.Node) -> Any:
    """Placeholders of Nova for the result of a node, by its fake tensors."""
    return _as_placeholder(node.meta.get("val"))


def _as_placeholder(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_as_placeholder(v) for v in value)
    if isinstance(value, torch.Tensor):
        check_tensor(value)
        return placeholder(tuple(value.shape), nova_dtype(value.dtype))
    return value


def has_lazy_values(value: Any) -> bool:
    """Whether torch has yet to conjugate or negate the elements in memory."""
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _layout(value: torch.Tensor, sizes: TorchSizes | None) -> Layout:
    return layout_of(value.shape, value.stride()) if sizes is None else sizes.layout(value)


def argument_layout(value: torch.Tensor) -> Layout:
    """The layout of an argument; of a conjugate view, that of its contiguous copy."""
    strides = contiguous_strides(value.shape) if has_lazy_values(value) else value.stride()
    return layout_of(value.shape, strides)


def check_tensor(value: torch.Tensor, symbolic: bool = False) -> None:
    """UnsupportedOpError unless programs of Nova take such tensors."""
    if value.device.type not in ("cpu", "cuda"):
        raise UnsupportedOpError(f"a tensor on {value.device}")
    if value.layout is not torch.strided:
        raise UnsupportedOpError(f"a tensor of layout {value.layout}")
    if not symbolic and any(not isinstance(n, int) for n in value.shape):
        raise UnsupportedOpError(f"symbolic sizes {tuple(value.shape)}")


REFUSALS = (NovaError, TypeError, ValueError, NotImplementedError)
"""What `run_alone` raises for a node that Nova does not compute."""


def run_alone(node: torch.fx.Node) -> Any:
    """The result of a node for placeholders of the types of its operands; one of `REFUSALS`."""
    check_placement(node)
    values = Values()
    for operand in node.all_input_nodes:
        values.values[operand] = fake_value(operand)
    return None if node.target is COPY_INTO else values.run(node)


def explain_unsupported(node: torch.fx.Node) -> str | None:
    """Why Nova does not compute a node; None if it does."""
    try:
        run_alone(node)
    except REFUSALS as error:
        return str(error).splitlines()[0]
    return None


def evaluate_graph(
    module: torch.fx.GraphModule, arguments: Sequence[Any], sizes: TorchSizes | None = None
) -> tuple[Any, ...]:
    """The results of a graph for tensors of Nova; an error names the first op without a row.

    `sizes` has the dims of a graph with symbolic sizes.
    """
    values = Values(sizes=sizes)
    feed = iter(arguments)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values.values[node] = next(feed)
        elif node.op == "get_attr":
            tensor = _attribute(module, node.target)
            if isinstance(tensor, torch.Tensor):
                tensor = constant_tensor(as_numpy(tensor.detach().cpu().contiguous(), node.name))
            values.values[node] = tensor
        elif node.op == "call_function":
            with at(location_of(node)):
                try:
                    values.values[node] = values.run(node)
                except NovaError as error:
                    raise error.located(str(location_of(node))) from None
    return tuple(
        values.values[r] if isinstance(r, torch.fx.Node) else r for r in graph_results(module.graph)
    )


def import_graph(module: torch.fx.GraphModule, sizes: TorchSizes | None = None) -> ImportedGraph:
    """The graph of Nova for a graph whose nodes are all supported.

    `sizes` has the dims of a graph with symbolic sizes.
    """
    graph = module.graph
    imported = ImportedGraph()
    seed_count = sum(op_name(n.target) in RANDOM for n in graph.nodes if n.op == "call_function")
    values = Values(seed_count, sizes)
    position = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            _import_argument(imported, values, node, position)
            position += 1
        elif node.op == "get_attr":
            _import_constant(imported, values, node, _attribute(module, node.target))
        elif node.op == "call_function":
            with at(location_of(node)):
                if node.target is COPY_INTO:
                    values.values[node] = _import_update(imported, values, node)
                else:
                    values.values[node] = values.run(node)
    if seed_count:
        imported.seeds, imported.seed_count = values.seeds, seed_count
    for node in stored_outputs(graph):
        layout = _layout(node.meta["val"], sizes)
        imported.outputs.append(layout.write(F, values.values[node]))
        imported.output_nodes.append(node)
        imported.output_layouts.append(layout)
    return imported


def _import_argument(
    imported: ImportedGraph, values: Values, node: torch.fx.Node, position: int
) -> None:
    value, sizes = node.meta.get("val"), values.sizes
    if not isinstance(value, torch.Tensor):
        values.values[node] = value if sizes is None or value is None else sizes.size(value)
        return
    check_tensor(value, symbolic=sizes is not None)
    if sizes is None:
        layout = argument_layout(value)
    elif has_lazy_values(value):
        raise UnsupportedOpError("a conjugate view with symbolic sizes")
    else:
        layout = sizes.layout(value)
    array = placeholder(layout.shape, nova_dtype(value.dtype), node.name)
    values.values[node] = layout.read(F, array)
    imported.inputs.append(array)
    imported.layouts.append(layout)
    imported.positions.append(position)


def _import_constant(
    imported: ImportedGraph, values: Values, node: torch.fx.Node, tensor: Any
) -> None:
    if not isinstance(tensor, torch.Tensor):
        values.values[node] = tensor
        return
    dtype = nova_dtype(tensor.dtype)
    with unset_fake_temporarily():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if not tensor.shape:
            values.values[node] = F.full(shape=(), value=tensor.item(), dtype=dtype)
            return
    array = placeholder(tuple(tensor.shape), dtype, node.name)
    values.values[node] = array
    imported.inputs.append(array)
    imported.layouts.append(layout_of(tensor.shape, tensor.stride()))
    imported.positions.append(-1 - len(imported.constants))
    imported.constants.append(tensor)


def _import_update(imported: ImportedGraph, values: Values, node: torch.fx.Node) -> Any:
    """`copy_` at the end of a functionalized graph writes the new value of an argument."""
    target, source = node.args[:2]
    if target.op != "placeholder":
        raise UnsupportedOpError("a copy into a tensor that is not an argument")
    new = values.values[source]
    old = values.values[target]
    new = F.expand(cast(F, new, old.dtype), shape=old.shape)
    arguments = [n for n in target.graph.nodes if n.op == "placeholder"]
    imported.updates[arguments.index(target)] = new
    return new


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


# --- results --------------------------------------------------------------------------------------

VIEWS: frozenset[Any] = frozenset(
    getattr(getattr(torch.ops.aten, packet), overload)
    for packet, overload in (
        *(("view", "default"), ("permute", "default"), ("transpose", "int"), ("t", "default")),
        *(("expand", "default"), ("squeeze", "default"), ("squeeze", "dim"), ("squeeze", "dims")),
        *(("unsqueeze", "default"), ("slice", "Tensor"), ("select", "int"), ("alias", "default")),
        *(("detach", "default"), ("diagonal", "default"), ("_reshape_alias", "default")),
    )
)


def graph_results(graph: torch.fx.Graph) -> tuple[Any, ...]:
    """The results of an FX graph: nodes, None and numbers."""
    (results,) = next(n for n in reversed(graph.nodes) if n.op == "output").args
    return tuple(results) if isinstance(results, list | tuple) else (results,)


def returns_tuple(graph: torch.fx.Graph) -> bool:
    """Whether a graph returns several results."""
    (results,) = next(n for n in reversed(graph.nodes) if n.op == "output").args
    return isinstance(results, list | tuple)


def view_root(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a view reads; the node itself if it is not a view."""
    while node.op == "call_function" and node.target in VIEWS:
        node = node.args[0]
    return node


def stored_outputs(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes whose values a program writes: results that are not views of stored memory.

    Views of arguments and of other results are made by torch, without a copy.
    """
    tensors = [
        n
        for n in graph_results(graph)
        if isinstance(n, torch.fx.Node) and isinstance(n.meta.get("val"), torch.Tensor)
    ]
    updated = {n.args[0] for n in graph.nodes if n.target is COPY_INTO}
    roots = {n for n in tensors if n.op == "call_function" and view_root(n) is n}
    stored = [
        n
        for n in tensors
        if n in roots or view_root(n) in updated or not is_readable(view_root(n), roots)
    ]
    return list(dict.fromkeys(stored))


def is_readable(root: torch.fx.Node, stored: Container[torch.fx.Node]) -> bool:
    """Whether the memory of a node outlives the run: that of arguments, constants and results."""
    return root.op in ("placeholder", "get_attr") or root in stored
