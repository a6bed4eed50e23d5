"""The numpy interpreter over the op table: the reference of every test.

It runs the `numpy` column of each row, or the expansion of a composite that has none. It shares
only the table with the compiled path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nova.errors import GraphError, LoweringError
from nova.graph.gradients import expand_composite
from nova.graph.order import topological
from nova.graph.tensor import Tensor


def evaluate(
    outputs: Sequence[Tensor], feed: Mapping[Tensor, np.ndarray] | None = None
) -> list[np.ndarray]:
    """The values of `outputs`; `feed` supplies (or overrides) the data of leaves."""
    values: dict[int, np.ndarray] = {id(t): np.asarray(a) for t, a in (feed or {}).items()}
    for node in topological(outputs):
        if id(node) not in values:
            values[id(node)] = _value(node, values)
    return [values[id(t)] for t in outputs]


def _value(node: Tensor, values: dict[int, np.ndarray]) -> np.ndarray:
    op = node.op
    if op is None:
        if node.data is None:
            raise GraphError(f"{node!r} has no data", where=str(node.location))
        return node.data
    arrays = [values[id(i)] for i in node.inputs]
    if op.numpy is not None:
        with np.errstate(all="ignore"):
            result = np.asarray(op.numpy(*arrays, **node.attrs))
    elif op.compose is not None:
        leaves = [Tensor(i.type) for i in node.inputs]
        expansion = expand_composite(node, leaves)
        result = evaluate([expansion], dict(zip(leaves, arrays, strict=True)))[0]
    else:
        raise LoweringError(f"op {op.name!r} has no numpy column", where=str(node.location))
    if result.shape != node.shape or result.dtype != node.dtype.numpy:
        raise LoweringError(
            f"the numpy column of {op.name} gave {result.dtype}{result.shape}, "
            f"its type rule says {node.type}",
            where=str(node.location),
        )
    return result
