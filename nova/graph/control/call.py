"""Calls of `.nova` files as nodes of a graph.

A call has the bytes of the file as its first operand, a literal, and the results of the program in
it (`nova/ops/loops/control.py`). This folder does not open files: `set_callees` gives it the two
functions that do, one that runs a file and one that builds the graph that it was compiled from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nova.core.dtypes import TensorType, u8
from nova.graph.control.regions import result, substitute
from nova.graph.tensor import Tensor
from nova.ops.loops.control import CALL

Run = Callable[[np.ndarray, Sequence[np.ndarray]], list[np.ndarray]]
"""The results of a file, from its bytes and its arguments."""
Build = Callable[[np.ndarray, Sequence[Tensor], str], list[Tensor]]
"""The graph of a file over arguments; GradientError at a location if the file has none."""

_callees: list[tuple[Run, Build]] = []


def set_callees(run: Run, build: Build) -> None:
    """Set how files are run and how their graphs are built."""
    _callees[:] = [(run, build)]


def call_node(
    file: np.ndarray, arguments: Sequence[Tensor], types: Sequence[TensorType], memory: int
) -> list[Tensor]:
    """The results of a new call; `memory` is the workspace of a run."""
    literal = Tensor(TensorType(file.shape, u8), data=file, fixed=True)
    node = Tensor(types[0], op=CALL, inputs=(literal, *arguments), attrs={"memory": memory})
    node.result_types = tuple(types)
    node.requires_grad = not node.stopped and any(a.requires_grad for a in arguments)
    return [result(node, index) for index in range(len(types))]


def run_callee(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a call, for the values of its operands."""
    return _callees[0][0](arrays[0], arrays[1:])


def call_vjp(
    node: Tensor,
    inputs: Sequence[Tensor],
    grads: Mapping[int, Tensor],
    vjp_graph: Callable[..., list[Tensor | None]],
) -> list[Tensor | None]:
    """The gradients of the operands of a call: the graph of the file is differentiated."""
    file = inputs[0].data
    assert file is not None
    # Placeholders of their own: an operand that is passed twice has two gradients.
    params = [Tensor(i.type) for i in inputs[1:]]
    outputs = _callees[0][1](file, params, str(node.location))
    floats = [p for p in params if p.dtype.is_differentiable]
    pieces = vjp_graph([outputs[i] for i in grads], list(grads.values()), floats)
    by_id = {id(p): piece for p, piece in zip(floats, pieces, strict=True)}
    mapping = dict(zip(map(id, params), inputs[1:], strict=True))
    present = {key: piece for key, piece in by_id.items() if piece is not None}
    moved = dict(zip(present, substitute(list(present.values()), mapping), strict=True))
    return [None, *(moved.get(id(p)) for p in params)]
