"""The numpy interpreter over the op table: the reference of every test and of checked runs.

It runs the `numpy` column of each row, or the expansion of a composite that has none. It shares
only the table with the compiled path. `evaluate` runs graphs; `nova/debug/oracle.py` runs the steps
of a plan by `op_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType
from nova.core.sizes import SizeExpr
from nova.core.sizes.binding import bind_sizes
from nova.errors import GraphError, LoweringError
from nova.graph.autodiff import expand_composite
from nova.graph.control.call import run_callee
from nova.graph.control.regions import Region
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ops import Op
from nova.ops.loops.control import CALL, RESULT

# Changes the value of an op, of a dtype, before other ops read it: how errors of rounding grow.
Perturb = Callable[[np.ndarray, DType], np.ndarray]


def evaluate(
    outputs: Sequence[Tensor],
    feed: Mapping[Tensor, np.ndarray] | None = None,
    perturb: Perturb | None = None,
    outer: Mapping[str, int] | None = None,
) -> list[np.ndarray]:
    """The values of `outputs`; `feed` supplies (or overrides) the data of leaves.

    `outer` has the values of symbols of the program, if the outputs are those of a region.
    """
    values: dict[int, Any] = {id(t): np.asarray(a) for t, a in (feed or {}).items()}
    sizes = outer or bind_sizes(
        [
            (t.name or f"input {i}", t.shape, np.shape(a))
            for i, (t, a) in enumerate((feed or {}).items())
            if not t.type.is_static
        ]
    )
    for node in topological(outputs, stop=feed or ()):
        if id(node) not in values:
            values[id(node)] = _node_value(node, values, perturb, sizes)
    return [values[id(t)] for t in outputs]


def _node_value(
    node: Tensor,
    values: dict[int, Any],
    perturb: Perturb | None,
    sizes: Mapping[str, int],
) -> Any:
    """The value of a node; of an op with regions, the values of its results."""
    if node.result_types:
        return _control_values(node, [values[id(i)] for i in node.inputs], perturb, sizes)
    if node.op is RESULT:
        return values[id(node.inputs[0])][node.attrs["index"]]
    if node.op is None:
        if node.data is None:
            raise GraphError(f"{node!r} has no data", where=str(node.location))
        return node.data
    types, arrays = [i.type for i in node.inputs], [values[id(i)] for i in node.inputs]
    where = str(node.location)
    value = op_value(node.op, types, arrays, node.attrs, node.type, perturb, where, sizes)
    return value if perturb is None else perturb(value, node.dtype)


def _control_values(
    node: Tensor, arrays: list[np.ndarray], perturb: Perturb | None, sizes: Mapping[str, int]
) -> Any:
    def call(region: Region, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        feed = dict(zip(region.params, values, strict=True))
        return evaluate(region.results, feed, perturb, sizes)

    calls = [partial(call, region) for region in node.regions]
    assert node.op is not None
    return control_values(node.op.name, calls, arrays, node.attrs, node.result_types, sizes)


def control_values(
    name: str,
    regions: Sequence[Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]],
    arrays: Sequence[np.ndarray],
    attrs: Mapping[str, Any],
    types: Sequence[TensorType],
    sizes: Mapping[str, int] | None = None,
) -> list[np.ndarray]:
    """The results of an op with regions; each region is a function of arrays."""
    if name == CALL.name:
        return run_callee(arrays)
    if sizes:
        types = [t.with_sizes(sizes) for t in types]
        attrs = {name: static_value(value, sizes) for name, value in attrs.items()}
    if name == "cond":
        index, *operands = arrays
        return list(regions[min(max(int(index), 0), len(regions) - 1)](operands))
    consts, carries = list(arrays[: attrs["consts"]]), list(arrays[attrs["consts"] :])
    if name == "while":
        cond, body = regions
        while cond([*consts, *carries])[0]:
            carries = list(body([*consts, *carries]))
        return carries
    [body] = regions
    carries, xs = carries[: attrs["carries"]], carries[attrs["carries"] :]
    ys = [np.empty(t.shape, t.dtype.numpy) for t in types[len(carries) :]]
    order = range(attrs["length"])
    for i in reversed(order) if attrs["reverse"] else order:
        index = np.asarray(i, np.int64)
        returned = body([index, *consts, *carries, *(x[i] for x in xs)])
        carries = list(returned[: len(carries)])
        for stacked, row in zip(ys, returned[len(carries) :], strict=True):
            stacked[i] = row
    return [*carries, *ys]


def op_value(
    op: Op,
    types: Sequence[TensorType],
    arrays: Sequence[np.ndarray],
    attrs: dict[str, Any],
    out: TensorType,
    perturb: Perturb | None = None,
    where: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> np.ndarray:
    """The result of an op; `where` is the line that an error names.

    `sizes` has the values of the symbols: types and attributes are static from here on.

    With `perturb` a composite runs as its expansion, whose values are perturbed. The caller
    perturbs the result.
    """
    if sizes:
        types, out = [t.with_sizes(sizes) for t in types], out.with_sizes(sizes)
        attrs = {name: static_value(value, sizes) for name, value in attrs.items()}
    if op.compose is not None and (perturb is not None or op.numpy is None):
        leaves = [Tensor(t) for t in types]
        node = Tensor(out, op=op, inputs=tuple(leaves), attrs=attrs)
        feed = dict(zip(leaves, arrays, strict=True))
        [result] = evaluate([expand_composite(node, leaves)], feed, perturb)
    elif op.numpy is not None:
        with np.errstate(all="ignore"):
            result = np.asarray(op.numpy(*arrays, **attrs))
    else:
        raise LoweringError(f"op {op.name!r} has no numpy column", where=where)
    if result.shape != out.shape or result.dtype != out.dtype.numpy:
        raise LoweringError(
            f"the numpy column of {op.name} gave {result.dtype}{result.shape}, "
            f"its type rule says {out}",
            where=where,
        )
    return result


def static_value(value: Any, sizes: Mapping[str, int]) -> Any:
    """The value of an attribute with numbers in place of symbolic sizes."""
    if isinstance(value, SizeExpr):
        return value.evaluate(sizes)
    return tuple(static_value(v, sizes) for v in value) if isinstance(value, tuple) else value
