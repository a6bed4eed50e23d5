"""Graph to plan: topological order, argument binding, checks for foreign tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova.core.signature import Argument, Signature
from nova.core.sizes import Dim, same_shape, symbols_of
from nova.core.sizes.binding import undetermined
from nova.errors import DTypeError, GraphError, ShapeError
from nova.graph.autodiff import Application
from nova.graph.custom_gradient import CUSTOM_GRADIENT
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ops.loops.control import RESULT
from nova.plan.plan import Arg, Derivation, Input, Literal, Param, Plan, Slot, Step


def build_plan(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
) -> Plan:
    """The plan that computes `outputs` and the new values of updated params.

    Leaves with data that are neither inputs nor params become literals.
    """
    _check_dims(inputs, params)
    return _linearize(outputs, inputs, params, updates)


def _linearize(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    params: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
) -> Plan:
    """The plan of a program, or of a region, whose sizes the program determines."""
    updates = updates or {}
    bound = _bind(inputs, params)
    param_index = {id(p): i for i, p in enumerate(params)}
    _check_updates(updates, param_index)
    steps: list[Step] = []
    args: dict[int, Arg] = dict(bound)
    order = _order([*outputs, *updates.values()], stop=[*inputs, *params])
    positions = _used_results(order)
    for node in order:
        if id(node) in args:
            continue
        if node.op is None:
            args[id(node)] = _literal(node)
            continue
        if node.op is CUSTOM_GRADIENT:
            args[id(node)] = args[id(node.inputs[0])]
            continue
        slot = len(steps)
        operands = tuple(args[id(i)] for i in node.inputs)
        if node.result_types:
            steps.append(_region_step(node, operands, slot, positions[id(node)]))
        else:
            attrs = dict(node.attrs)
            if node.op is RESULT:
                attrs["index"] = positions[id(node.inputs[0])][attrs["index"]]
            steps.append(
                Step(node.op.name, operands, attrs, node.type, slot, node.location, node.device)
            )
        args[id(node)] = Slot(slot)
    return Plan(
        Signature(_arguments(inputs, "x", "input"), _arguments(params, "p", "param")),
        tuple(steps),
        tuple(args[id(t)] for t in outputs),
        tuple((param_index[id(p)], args[id(v)]) for p, v in updates.items()),
        tuple(_derivation(a, args) for node in order for a in node.origin),
    )


def _used_results(order: Sequence[Tensor]) -> dict[int, dict[int, int]]:
    """For each op with regions, the new index of every result that is computed.

    Stacked results of a scan that nothing reads are dropped: gradients save values in them.
    """
    used: dict[int, set[int]] = {}
    for node in order:
        if node.op is RESULT:
            used.setdefault(id(node.inputs[0]), set()).add(node.attrs["index"])
    positions: dict[int, dict[int, int]] = {}
    for node in order:
        if node.result_types:
            every = range(len(node.result_types))
            carries = node.attrs.get("carries", len(every))
            computed = [i for i in every if i < carries or i in used.get(id(node), ())]
            positions[id(node)] = {old: new for new, old in enumerate(computed)}
    return positions


def _region_step(
    node: Tensor, operands: tuple[Arg, ...], slot: int, computed: Mapping[int, int]
) -> Step:
    assert node.op is not None
    if len(computed) == len(node.result_types):
        plans = [_linearize(r.results, r.params) for r in node.regions]
    else:
        [body] = node.regions
        plans = [_linearize([body.results[i] for i in computed], body.params)]
    types = tuple(node.result_types[i] for i in computed)
    return Step(
        node.op.name,
        operands,
        dict(node.attrs),
        node.type,
        slot,
        node.location,
        node.device,
        tuple(plans),
        types,
    )


def _derivation(application: Application, args: Mapping[int, Arg]) -> Derivation:
    node = application.node
    assert node.op is not None
    out = args.get(id(node))
    return Derivation(
        node.op.name,
        dict(node.attrs),
        tuple(args.get(id(i)) for i in node.inputs),
        tuple(i.type for i in node.inputs),
        application.operand,
        out.index if isinstance(out, Slot) else None,
        node.location,
    )


def _order(outputs: Sequence[Tensor], stop: Sequence[Tensor]) -> list[Tensor]:
    """The nodes that `outputs` needs, in an order that computes early values first.

    A gradient is computed as soon as the backward pass reaches its layer, and its operands die
    early: in the order of the params, all of them would stay live to the end.
    """
    depth: dict[int, int] = {}
    stopped = {id(t) for t in stop}
    for node in topological(outputs, stop):
        sources = () if id(node) in stopped else node.inputs
        depth[id(node)] = 1 + max((depth[id(i)] for i in sources), default=0)
    return topological(sorted(outputs, key=lambda t: depth[id(t)]), stop)


def _bind(inputs: Sequence[Tensor], params: Sequence[Tensor]) -> dict[int, Arg]:
    bound: dict[int, Arg] = {}
    for cls, tensors in ((Input, inputs), (Param, params)):
        for i, t in enumerate(tensors):
            if not isinstance(t, Tensor):
                raise GraphError(f"{cls.__name__.lower()} {i} is a {type(t).__name__}, no Tensor")
            if t.op is not None:
                raise GraphError(
                    f"{cls.__name__.lower()} {i} is the result of {t.op.name}, not a leaf",
                    where=str(t.location),
                    hint="inputs and params are made with nova.tensor(...)",
                )
            if id(t) in bound:
                raise GraphError(
                    f"{t!r} is given twice among inputs and params", where=str(t.location)
                )
            bound[id(t)] = cls(i)
    return bound


def _check_dims(inputs: Sequence[Tensor], params: Sequence[Tensor]) -> None:
    """Symbols of one name have the same bounds, and the shapes of the arguments determine them."""
    dims: dict[str, Dim] = {}
    for t in (*inputs, *params):
        for dim in symbols_of(t.shape):
            declared = dims.setdefault(dim.name, dim)
            if declared.bounds() != dim.bounds():
                raise ShapeError(
                    f"two dims are named {dim.name!r}: one of {declared.min}..{declared.max}, one "
                    f"of {dim.min}..{dim.max}",
                    where=str(t.location),
                    hint="make it once with nova.dim, or give them different names",
                )
    missing = undetermined(n for t in (*inputs, *params) for n in t.shape)
    if missing:
        raise ShapeError(
            f"no argument has an axis of size {' or '.join(missing)}, so a call would not tell it",
            hint=f"make {missing[0]} itself the size of an axis, next to expressions of it",
        )


def _check_updates(updates: Mapping[Tensor, Tensor], param_index: Mapping[int, int]) -> None:
    for param, value in updates.items():
        if not isinstance(value, Tensor):
            raise GraphError(f"the update of {param!r} is a {type(value).__name__}, not a Tensor")
        where = str(value.location)
        if id(param) not in param_index:
            raise GraphError(f"{param!r} is updated but not among the params", where=where)
        if not same_shape(param.shape, value.shape):
            raise ShapeError(f"update of {param.type} with {value.type}", where=where)
        if param.dtype is not value.dtype:
            raise DTypeError(
                f"update of {param.type} with {value.type}", where=where, hint="cast the new value"
            )


def _literal(node: Tensor) -> Literal:
    if node.data is None:
        raise GraphError(
            f"{node!r} belongs to another program: it has no data and is not among the inputs",
            where=str(node.location),
            hint="pass it as an input, or do not keep tensors of one trace for another",
        )
    return Literal(node.data, node.type)


def _arguments(tensors: Sequence[Tensor], prefix: str, role: str) -> tuple[Argument, ...]:
    names: list[str] = []
    for i, t in enumerate(tensors):
        name = t.name or f"{prefix}{i}"
        while name in names:
            name += "_"
        names.append(name)
    return tuple(Argument(n, t.type, role) for n, t in zip(names, tensors, strict=True))
