"""`nova.vmap`: a function of one example as a function of a batch, graph to graph.

The function is traced on placeholders of one example. Its graph is then rebuilt with a leading
batch axis on every tensor that depends on the batch; the others are shared. Each primitive has a
rule below; a composite is expanded unless it has one. An op without a rule is applied to one
example at a time, which is right and slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Any

from nova.core.dtypes import TensorType
from nova.core.location import at, user_location
from nova.core.pytree import flatten, unflatten
from nova.core.user_facing import user_facing
from nova.errors import ArgumentCountError, AxisError, KernelError, ShapeError
from nova.graph.autodiff import expand_composite
from nova.graph.build import apply
from nova.graph.control.batching import batch_control
from nova.graph.custom_gradient import CUSTOM_GRADIENT, batch_custom_gradient
from nova.graph.order import topological
from nova.graph.tensor import Tensor, on_device
from nova.graph.transforms import as_tensor, rejit
from nova.ops import F
from nova.ops.complex.rows import PAIR
from nova.ops.kernels.batch import batched_text
from nova.ops.kernels.rows import result_types, type_attrs
from nova.ops.loops.control import RESULT

Operands = tuple[Tensor, ...]
Flags = tuple[bool, ...]
Rule = Callable[[Tensor, Operands, Flags, int], Tensor]
"""(node of one example, new operands, which of them have a batch axis, size of the batch)."""


@user_facing
def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that applies `function` to every example along an axis of its arguments.

    `in_axes` is the axis of the examples: one for all arguments, or a tuple with an axis or None
    (shared by all examples) for each. `out_axes` is the axis of the examples in the results. Static
    arguments of a jitted function have no axis: their items of the tuple are None.
    """
    if (jitted := rejit(function, lambda f: vmap(f, in_axes, out_axes))) is not None:
        return jitted
    if (transformed := getattr(function, "_transformed", None)) is not None:
        result: Callable[..., Any] = transformed(
            lambda f, static: vmap(f, _without_static(in_axes, static), out_axes)
        )
        return result

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs), sort_keys=True)
        values = [as_tensor(leaf) for leaf in leaves]
        axes = [
            None if a is None else _axis(v, a, f"argument {name!r}")
            for v, a, name in zip(
                values, _axes_of(args, kwargs, in_axes), structure.names(), strict=True
            )
        ]
        size = _batch_size(values, axes, structure.names())
        fronts = [
            v if a is None else F.moveaxis(v, a, 0) for v, a in zip(values, axes, strict=True)
        ]
        examples = [
            v if a is None else Tensor(TensorType(v.shape[1:], v.dtype), name=v.name)
            for v, a in zip(fronts, axes, strict=True)
        ]
        placed = unflatten(structure, examples)
        results, shape = flatten(function(*placed[0], **placed[1]))
        outputs = [as_tensor(result) for result in results]
        batch = {
            id(example): value
            for example, value, axis in zip(examples, fronts, axes, strict=True)
            if axis is not None
        }
        batched = [
            _at_axis(value, axis)
            for value, axis in zip(
                batched_graph(outputs, batch, size), _out_axes(out_axes, len(outputs)), strict=True
            )
        ]
        return unflatten(shape, batched)

    return wrapped


def batched_graph(outputs: Sequence[Tensor], batch: dict[int, Tensor], size: int) -> list[Tensor]:
    """`outputs` with a leading batch axis, where `batch` replaces tensors of one example."""
    replaced = dict(batch)
    controls: dict[int, list[Tensor]] = {}
    stops = [node for node in topological(outputs) if id(node) in batch]
    for node in topological(outputs, stop=stops):
        if id(node) in replaced or node.op is None:
            continue
        if node.op is RESULT and id(node.inputs[0]) in controls:
            replaced[id(node)] = controls[id(node.inputs[0])][node.attrs["index"]]
            continue
        flags = tuple(id(operand) in replaced for operand in node.inputs)
        if not any(flags):
            continue
        operands = tuple(replaced.get(id(operand), operand) for operand in node.inputs)
        with at(node.location), on_device(node.device):
            if node.result_types:
                controls[id(node)] = batch_control(node, operands, flags, size, batched_graph)
            else:
                replaced[id(node)] = _apply_rule(node, operands, flags, size)
    return [
        replaced[id(o)] if id(o) in replaced else F.expand(F.unsqueeze(o, 0), (size, *o.shape))
        for o in outputs
    ]


def _apply_rule(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    op = node.op
    assert op is not None
    if op is CUSTOM_GRADIENT:
        return batch_custom_gradient(node, operands, flags, size, batched_graph)
    if "elementwise" in op.tags or PAIR in op.tags:
        return _elementwise(node, operands, flags, size)
    rule = _RULES.get(op.name)
    result = rule(node, operands, flags, size) if rule is not None else None
    if result is None and op.compose is not None:
        expanded = expand_composite(node, node.inputs)
        batch = {id(o): v for o, v, f in zip(node.inputs, operands, flags, strict=True) if f}
        (result,) = batched_graph([expanded], batch, size)
    if result is None:
        result = _one_by_one(node, operands, flags, size)
    if result.type != TensorType((size, *node.shape), node.dtype):
        raise ShapeError(
            f"vmap of {op.name} gave {result.type} for examples of {node.type}",
            where=str(node.location),
        )
    return result


# --- rules ----------------------------------------------------------------------------------------


def _again(node: Tensor, operands: Sequence[Tensor], **attrs: Any) -> Tensor:
    """The op of a node on other operands, some of its attributes replaced."""
    assert node.op is not None
    return apply(node.op, operands, {**node.attrs, **attrs})


def _one_by_one(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    """The op on each example, stacked."""
    if not size:
        return F.full(shape=(0, *node.shape), value=0, dtype=node.dtype)
    rows = [
        _again(node, [o[i] if f else o for o, f in zip(operands, flags, strict=True)])
        for i in range(size)
    ]
    return F.stack(rows, axis=0)


def _all_batched(operands: Operands, flags: Flags, size: int) -> list[Tensor]:
    """Operands with a batch axis each; a shared one is repeated."""
    return [
        o if f else F.expand(F.unsqueeze(o, 0), (size, *o.shape))
        for o, f in zip(operands, flags, strict=True)
    ]


def _elementwise(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    """An operand of smaller rank gets ones after its batch axis, so that it broadcasts."""
    rank = len(node.shape)
    aligned = [
        F.reshape(o, (size, *(1,) * (rank + 1 - len(o.shape)), *o.shape[1:]))
        if f and len(o.shape) < rank + 1
        else o
        for o, f in zip(operands, flags, strict=True)
    ]
    return _again(node, aligned)


def _same(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor | None:
    """Ops of the last axes: leading axes are a batch already."""
    return _again(node, operands) if flags[0] and not any(flags[1:]) else None


def _last_two_axes(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    return _again(node, operands)


def _one_axis(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    """Ops of operands of one rank along an axis; a 0-d operand is one of size 1."""
    if not node.inputs[0].shape:
        (x,) = _all_batched(operands, flags, size)
        return F.squeeze(_again(node, [F.unsqueeze(x, 1)], axis=1), 1)
    return _again(node, _all_batched(operands, flags, size), axis=node.attrs["axis"] + 1)


def _reduction(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    axes = tuple(a + 1 for a in node.attrs["axis"])
    if axes:
        return _again(node, operands, axis=axes)
    # Without axes the op is applied to single elements: `any` of a number is a bool.
    (x,) = operands
    return _again(node, [F.unsqueeze(x, -1)], axis=(len(x.shape),), keepdims=False)


def _arg_reduction(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    (x,) = operands
    axis = node.attrs["axis"]
    if axis is not None:
        return _again(node, operands, axis=axis + 1)
    flat = _again(node, [F.reshape(x, (size, -1))], axis=1, keepdims=False)
    return F.reshape(flat, (size, *node.shape))


def _matmul(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    """Vectors become a row on the left and a column on the right; batch axes broadcast."""
    x, y = operands
    ranks = [len(o.shape) - f for o, f in zip(operands, flags, strict=True)]
    x = F.unsqueeze(x, -2) if ranks[0] == 1 else x
    y = F.unsqueeze(y, -1) if ranks[1] == 1 else y
    rank = max(2, *ranks) + 1
    x, y = (
        F.reshape(o, (size, *(1,) * (rank - len(o.shape)), *o.shape[1:]))
        if f and len(o.shape) < rank
        else o
        for o, f in zip((x, y), flags, strict=True)
    )
    return F.reshape(_again(node, [x, y]), (size, *node.shape))


def _reshape(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    return F.reshape(operands[0], (size, *node.shape))


def _permute(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    return F.permute(operands[0], (0, *(a + 1 for a in node.attrs["axes"])))


def _expand(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    (x,) = operands
    missing = len(node.shape) + 1 - len(x.shape)
    x = F.reshape(x, (size, *(1,) * missing, *x.shape[1:])) if missing else x
    return F.expand(x, (size, *node.shape))


def _flip(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    return F.flip(operands[0], tuple(a + 1 for a in node.attrs["axes"]))


def _slice(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    attrs = node.attrs
    return F.slice(
        operands[0], (0, *attrs["starts"]), (size, *attrs["stops"]), (1, *attrs["steps"])
    )


def _unslice(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    attrs = node.attrs
    return _again(
        node,
        operands,
        shape=(size, *attrs["shape"]),
        starts=(0, *attrs["starts"]),
        steps=(1, *attrs["steps"]),
    )


def _pad(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    attrs = node.attrs
    return _again(node, operands, low=(0, *attrs["low"]), high=(0, *attrs["high"]))


def _take(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    (x, index), axis = operands, node.attrs["axis"]
    if not flags[1]:
        return F.take(x, index, axis=axis + 1)
    if not flags[0]:
        # The batch axis of the index arrives in the middle.
        return F.moveaxis(F.take(x, index, axis=axis), axis, 0)
    # Row `index` of example b is row b * n + index of all examples.
    x = F.moveaxis(x, axis + 1, 1)
    count = x.shape[1]
    # An index out of range is clamped to its example.
    index = F.clamp(F.where(index < 0, index + count, index), 0, max(0, count - 1))
    start = F.reshape(F.arange(size, dtype=index.dtype), (size, *(1,) * (len(index.shape) - 1)))
    rows = F.reshape(x, (size * count, *x.shape[2:]))
    taken = F.take(rows, index + start * count, axis=0)
    rank = len(index.shape) - 1
    source = tuple(range(1, rank + 1))
    return F.moveaxis(taken, source, tuple(axis + s for s in source))


def _one_hot(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    return _again(node, operands)


def _attention(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor | None:
    if len(operands) == 4 and flags[3]:
        return None  # a mask for each example broadcasts over heads: expanded
    if any(len(o.shape) - f != len(node.shape) for o, f in zip(operands[:3], flags, strict=False)):
        return None
    return _again(node, [*_all_batched(operands[:3], flags[:3], size), *operands[3:]])


def _dequantize(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    (blocks,) = operands
    rows = F.reshape(blocks, (size * blocks.shape[1], blocks.shape[2]))
    return F.reshape(F.dequantize(rows, **node.attrs), (size, *node.shape))


def _quantized_matmul(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    x, blocks = operands
    if not flags[1]:
        return _again(node, operands)
    # Each example has its own weights.
    rows = F.reshape(blocks, (size * blocks.shape[1], blocks.shape[2]))
    weight = F.reshape(F.dequantize(rows, **node.attrs), (size, blocks.shape[1], x.shape[-1]))
    lead = x.shape[1:-1] if flags[0] else x.shape[:-1]
    shape = (size if flags[0] else 1, prod(lead), x.shape[-1])
    product = F.matmul(F.reshape(x, shape), F.swapaxes(weight, 1, 2))
    return F.reshape(product, (size, *node.shape))


def _loop_kernel(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    """The loops of the kernel inside of a loop over the examples."""
    attrs = node.attrs
    types = result_types(attrs["ranks"], attrs["sizes"], attrs["dtypes"])
    batched = tuple(TensorType((size, *t.shape), t.dtype) for t in types)
    source = batched_text(attrs["source"], len(types), flags)
    return _again(node, operands, source=source, **type_attrs(batched))


def _mlir_kernel(node: Tensor, operands: Operands, flags: Flags, size: int) -> Tensor:
    raise KernelError(
        "vmap of a custom op in MLIR: its text has the shapes of one example",
        where=str(node.location),
        hint="write the body in Nova ops or in loops, or call the op on a batch",
    )


_RULES: dict[str, Callable[[Tensor, Operands, Flags, int], Tensor | None]] = {
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all", "mean", "var", "std"), _reduction),
    "logsumexp": _reduction,
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction),
    **dict.fromkeys(
        (
            *("softmax", "log_softmax", "gather", "scatter", "scatter_add", "scatter_max"),
            *("scatter_min", "join", "cumsum", "logcumsumexp", "linear_recurrence", "argcummax"),
            *("argcummin", "argsort", "argtopk"),
        ),
        _one_axis,
    ),
    **dict.fromkeys(
        (
            "windows",
            "overlap_add",
            "layer_norm",
            "rms_norm",
            "linear",
            "bitcast",
            "dft",
            "rdft",
            "irdft",
        ),
        _same,
    ),
    **dict.fromkeys(("tril", "triu"), _last_two_axes),
    "matmul": _matmul,
    "wide_matmul": _matmul,
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "flip": _flip,
    "slice": _slice,
    "unslice": _unslice,
    "pad": _pad,
    "take": _take,
    "one_hot": _one_hot,
    "dequantize": _dequantize,
    "quantized_matmul": _quantized_matmul,
    "scaled_dot_product_attention": _attention,
    "loop_kernel": _loop_kernel,
    "mlir_kernel": _mlir_kernel,
}


# --- axes -----------------------------------------------------------------------------------------


def _axes_of(args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any) -> list[int | None]:
    """The axis of every leaf of the arguments; keyword arguments have axis 0."""
    if isinstance(in_axes, list | tuple):
        if len(in_axes) != len(args):
            raise ArgumentCountError(
                f"in_axes has {len(in_axes)} items for {len(args)} arguments",
                where=str(user_location()),
                hint="one axis or None for each positional argument",
            )
        each = list(in_axes)
    else:
        each = [in_axes] * len(args)
    axes: list[int | None] = []
    for value, axis in zip(args, each, strict=True):
        axes += [axis] * len(flatten(value)[0])
    return axes + [0] * len(flatten(kwargs)[0])


def _without_static(in_axes: Any, positions: tuple[int, ...]) -> Any:
    """`in_axes` of the arguments that are not static; `positions` are those of the others."""
    if not isinstance(in_axes, list | tuple):
        return in_axes
    for position in positions:
        if position < len(in_axes) and in_axes[position] is not None:
            raise AxisError(
                f"vmap: argument {position} is static and has no axis {in_axes[position]!r}",
                where=str(user_location()),
                hint="its item of in_axes is None",
            )
    return tuple(axis for i, axis in enumerate(in_axes) if i not in positions)


def _axis(value: Tensor, axis: Any, title: str) -> int:
    rank = len(value.shape)
    if type(axis) is not int or not -rank <= axis < rank:
        raise AxisError(
            f"vmap: {title} of shape {value.shape} has no axis {axis!r}",
            where=str(user_location()),
            hint="in_axes=None shares an argument between all examples",
        )
    return axis % rank


def _batch_size(values: Sequence[Tensor], axes: Sequence[int | None], names: Sequence[str]) -> int:
    sizes = {
        name: v.shape[a] for v, a, name in zip(values, axes, names, strict=True) if a is not None
    }
    if not sizes:
        raise AxisError("vmap: in_axes gives no argument a batch axis", where=str(user_location()))
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise ShapeError(
                f"vmap: {first!r} has {sizes[first]} examples and {name!r} has {size}",
                where=str(user_location()),
            )
    return sizes[first]


def _out_axes(out_axes: Any, count: int) -> list[int]:
    axes = list(out_axes) if isinstance(out_axes, list | tuple) else [out_axes] * count
    if len(axes) != count or not all(type(a) is int for a in axes):
        raise AxisError(
            f"vmap: out_axes {out_axes!r} for {count} results",
            where=str(user_location()),
            hint="an axis for all results, or one for each",
        )
    return axes


def _at_axis(value: Tensor, axis: int) -> Tensor:
    return value if axis == 0 else F.moveaxis(value, 0, axis)
