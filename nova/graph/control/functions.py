"""`nova.cond`, `switch`, `while_loop`, `fori_loop` and `scan`, with the signatures of `jax.lax`.

Each traces its functions once into regions (`regions.py`) and creates one op with regions
(`nova/ops/loops/control.py`). Values are pytrees of tensors, arrays and numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from nova.core.dtypes import TensorType, bool_, i64, u64
from nova.core.location import user_location
from nova.core.pytree import TreeDef, flatten, unflatten
from nova.core.sizes import Size, SizeExpr, at_most, known_equal
from nova.core.user_facing import user_facing
from nova.errors import BranchError, ControlFlowError, NovaError
from nova.graph.build import cast
from nova.graph.control.carries import Carries, is_weak
from nova.graph.control.regions import (
    Region,
    Traced,
    as_tensor,
    close,
    control_node,
    hoist,
    trace,
)
from nova.graph.tensor import Tensor
from nova.ops import F
from nova.ops.loops.control import COND, SCAN, WHILE, slice_type

_MISSING: Any = object()


@user_facing
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _MISSING,
) -> Any:
    """`true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`; one of them runs."""
    if operand is not _MISSING:
        operands = (operand,)
    _require_callable("cond", true_fun, false_fun)
    index = _scalar("cond", "the condition", pred)
    if index.dtype is not bool_:
        index = F.ne(index, 0)
    return _branches("cond", index, (false_fun, true_fun), operands)


@user_facing
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index out of range selects the first or the last one."""
    functions = tuple(branches)
    if not functions:
        raise _fail("switch: needs at least one branch")
    _require_callable("switch", *functions)
    number = _scalar("switch", "the index", index)
    if not (number.dtype.is_integer or number.dtype is bool_):
        raise _fail(f"switch: the index is {number.type}", "pass an integer, or cast it to i64")
    if number.dtype is u64:  # indices of 2**63 and more are negative as i64
        number = F.minimum(number, len(functions) - 1)
    return _branches("switch", cast(number, i64), functions, operands)


@user_facing
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """`while cond_fun(value): value = body_fun(value)`, from `init_val`; returns the last value.

    It has no gradient: the number of iterations is not known. `scan` and `fori_loop` have one.
    """
    _require_callable("while_loop", cond_fun, body_fun)
    if not flatten(init_val)[0]:
        raise _fail("while_loop: the initial value has no tensors", "carry at least one tensor")
    return _while("while_loop", cond_fun, body_fun, Carries("while_loop", init_val))


def _while(
    title: str, cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], initial: Carries
) -> Any:
    structure = initial.structure

    def call(function: Any, params: list[Tensor]) -> Any:
        return function(unflatten(structure, list(params)))

    def run_body(types: list[TensorType], weak: list[bool]) -> Traced:
        return trace(body_fun, types, call, weak=weak)

    carries, body = initial.settle(run_body)
    again = trace(cond_fun, [c.type for c in carries], call)
    if len(again.region.results) != 1 or again.region.results[0].type != TensorType((), bool_):
        types = ", ".join(str(r.type) for r in again.region.results) or "nothing"
        raise _fail(
            f"{title}: the condition returns {types}, must be bool[]",
            "compare numbers, or take .any() or .all() of a comparison",
        )
    captures, params, regions = close([again, body])
    regions = [
        Region((*inner, *region.params), region.results)
        for inner, region in zip(params, regions, strict=True)
    ]
    results = control_node(WHILE, [*captures, *carries], regions, {"consts": len(captures)})
    return unflatten(structure, list(results))


@user_facing
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`for i in range(lower, upper): value = body_fun(i, value)`; returns the last value.

    With Python ints or symbolic sizes as bounds it has a gradient; else it is a `while_loop`.
    """
    _require_callable("fori_loop", body_fun)
    count = _iterations(lower, upper)
    if count is not None:
        start = _as_size(lower)

        def step(carry: tuple[Any, Tensor], _: Any) -> tuple[Any, None]:
            i, value = carry
            if not known_equal(start, 0):
                i = F.add(i, start)
                i.weak = True
            return (i, body_fun(i, value)), None

        return _scan("fori_loop", step, init_val, None, count, False, unroll)
    first, last = (_scalar("fori_loop", "a bound", bound) for bound in (lower, upper))
    for bound in (first, last):
        if not bound.dtype.is_integer:
            raise _fail(f"fori_loop: a bound is {bound.type}", "bounds are integers")
    last = cast(last, i64)

    def advance(carry: Any) -> Any:
        i, value = carry
        return F.add(i, 1), body_fun(i, value)

    # A Python number as the lower bound makes the index weak, as it is with both bounds known.
    index = lower if is_weak(lower) else cast(first, i64)
    initial = Carries("fori_loop", (index, init_val), prefix=1)
    return _while("fori_loop", lambda carry: F.lt(carry[0], last), advance, initial)[1]


@user_facing
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: Size | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each slice `x` of `xs` along the first axis.

    Returns the last carry and the stacked `y`. `length` is needed if `xs` has no leaves. `reverse`
    runs from the last slice to the first. `unroll=True` writes the iterations out instead of a
    loop.
    """
    _require_callable("scan", f)

    def step(carry: tuple[Tensor, Any], x: Any) -> tuple[Any, Any]:
        returned = f(carry[1], x)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise _fail(
                f"scan: the function returns {type(returned).__name__}, not (carry, y)",
                "return a pair; y may be None",
            )
        return (carry[0], returned[0]), returned[1]

    return _scan("scan", step, init, xs, length, reverse, unroll, pair=True)


# --- scan -----------------------------------------------------------------------------------------


def _scan(
    title: str,
    step: Callable[..., Any],
    init: Any,
    xs: Any,
    length: Size | None,
    reverse: bool,
    unroll: int | bool | None,
    *,
    pair: bool = False,
) -> Any:
    """Scan with a `step` of ((i, carry), x); returns the carry, or with `pair` carry and ys."""
    x_leaves, x_structure = flatten(xs, sort_keys=True)
    stacked = [as_tensor(leaf) for leaf in x_leaves]
    count = _length(title, stacked, x_structure.leaf_names("xs"), length)
    initial = Carries(title, init)
    structure, number = initial.structure, len(initial.leaves)
    if unroll is True and not isinstance(count, int):
        raise _fail(
            f"{title}: unroll=True and {count} iterations", "a symbolic number is not written out"
        )
    x_types = [slice_type(t.type, count) for t in stacked]
    tree: list[TreeDef] = []

    def call(function: Any, params: list[Tensor]) -> Any:
        carry = unflatten(structure, params[1 : 1 + number])
        x = unflatten(x_structure, params[1 + number :])
        (_, carried), y = function((params[0], carry), x)
        ys, y_structure = flatten(y)
        tree[:] = [y_structure]
        return carried, list(ys)

    def run(types: list[TensorType], weak: list[bool]) -> Traced:
        all_types = [TensorType((), i64), *types, *x_types]
        return trace(step, all_types, call, weak=[True, *weak])

    if isinstance(count, int) and (count == 1 or (count and unroll and _is_short(count, unroll))):
        return _unrolled(step, initial, run, stacked, x_structure, count, reverse, pair)
    carries, body = initial.settle(run, nested=True)
    captures, [inner], [region] = close([body])
    region, inner, captures = hoist(region, inner, captures)
    index, *others = region.params
    regions = [Region((index, *inner, *others), region.results)]
    attrs = {
        "consts": len(captures),
        "carries": len(carries),
        "length": count,
        "reverse": bool(reverse),
    }
    if not regions[0].results:
        return (unflatten(structure, []), unflatten(tree[0], [])) if pair else init
    if known_equal(count, 0):
        types = [r.type for r in region.results[len(carries) :]]
        results = [*carries, *(F.zeros((0, *t.shape), dtype=t.dtype) for t in types)]
    else:
        results = control_node(SCAN, [*captures, *carries, *stacked], regions, attrs)
    last = unflatten(structure, list(results[: len(carries)]))
    return (last, unflatten(tree[0], list(results[len(carries) :]))) if pair else last


def _unrolled(
    step: Callable[..., Any],
    initial: Carries,
    run: Callable[[list[TensorType], list[bool]], Traced],
    stacked: list[Tensor],
    x_structure: TreeDef,
    count: int,
    reverse: bool,
    pair: bool,
) -> Any:
    carries, row_types = initial.tensors(), None
    if any(initial.weak):  # only a trace tells the dtypes that Python numbers take
        carries, body = initial.settle(run, nested=True)
        row_types = [r.type for r in body.region.results[len(carries) :]]
    carry, rows = unflatten(initial.structure, carries), []
    for i in reversed(range(count)) if reverse else range(count):
        x = unflatten(x_structure, [t[i] for t in stacked])
        index = as_tensor(i)
        index.weak = True
        (_, carry), y = step((index, carry), x)
        returned, structure = flatten(carry, sort_keys=True)
        initial.compare_structure(structure)
        returned = [as_tensor(leaf) for leaf in returned]
        initial.compare_types([c.type for c in carries], returned)
        carry = unflatten(structure, returned)
        rows.append(flatten(y))
    if not pair:
        return carry
    rows = rows[::-1] if reverse else rows
    stacks = zip(*(leaves for leaves, _ in rows), strict=True)
    ys = [F.stack([as_tensor(leaf) for leaf in row]) for row in stacks]
    if row_types is not None:
        ys = [cast(y, row.dtype) for y, row in zip(ys, row_types, strict=True)]
    return carry, unflatten(rows[0][1], ys) if rows else None


def _is_short(count: int, unroll: int | bool) -> bool:
    """Whether a loop of `count` iterations is written out."""
    return unroll is True or unroll >= count


def _iterations(lower: Any, upper: Any) -> Size | None:
    """The iterations from `lower` to `upper`; None unless both and their order are known."""
    if not (_is_int(lower) and _is_int(upper)):
        return None
    first, last = _as_size(lower), _as_size(upper)
    if isinstance(first, int) and isinstance(last, int):
        return max(0, last - first)
    return last - first if at_most(first, last) else None


def _length(title: str, stacked: list[Tensor], names: list[str], length: Size | None) -> Size:
    if length is not None and not (_is_int(length) and at_most(0, _as_size(length))):
        raise _fail(f"{title}: length is {length!r}", "pass an int that is not negative")
    for name, t in zip(names, stacked, strict=True):
        if t.ndim == 0:
            raise _fail(f"{title}: {name} is a 0-d tensor", "xs has slices along its first axis")
    sizes = [t.shape[0] for t in stacked]
    for name, size in zip(names, sizes, strict=True):
        if not known_equal(size, sizes[0]):
            raise _fail(
                f"{title}: {names[0]} has {sizes[0]} slices, and {name} has {size}",
                "slices are along the first axis, which has one size in all of xs",
            )
    if length is not None:
        sizes.append(_as_size(length))
        if not known_equal(sizes[0], sizes[-1]):
            raise _fail(
                f"{title}: {names[0]} has {sizes[0]} slices, and length is {length}",
                "slices are along the first axis; leave out length, or pass their number",
            )
    if not sizes:
        raise _fail(f"{title}: needs xs or a length", "pass length=n for n iterations")
    return sizes[0]


# --- branches -------------------------------------------------------------------------------------


def _branches(
    title: str, index: Tensor, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    leaves, structure = flatten(tuple(operands), sort_keys=True)
    tensors = [as_tensor(leaf) for leaf in leaves]

    def call(function: Any, params: list[Tensor]) -> Any:
        return function(*unflatten(structure, list(params)))

    types = [t.type for t in tensors]
    traced = [trace(function, types, call, "branch") for function in functions]
    for number, branch in enumerate(traced[1:], 1):
        _compare_branches(title, traced[0], branch, number)
    if index.op is None and index.fixed and index.data is not None:
        # The condition is a constant: the branch is part of the graph.
        chosen = min(max(int(index.data), 0), len(functions) - 1)
        return functions[chosen](*unflatten(structure, list(tensors)))
    captures, params, regions = close(traced)
    regions = [
        Region((*inner, *region.params), region.results)
        for inner, region in zip(params, regions, strict=True)
    ]
    if not regions[0].results:
        return unflatten(traced[0].structure, [])
    results = control_node(COND, [index, *captures, *tensors], regions, {})
    return unflatten(traced[0].structure, list(results))


def _compare_branches(title: str, first: Traced, other: Traced, number: int) -> None:
    names = ("false_fun", "true_fun") if title == "cond" else ("branch 0", f"branch {number}")
    if first.structure != other.structure:
        raise BranchError(
            f"{title}: {names[0]} returns {first.structure}, {names[1]} {other.structure}",
            where=str(user_location()),
            hint="all branches return the same structure of tensors",
        )
    for a, b in zip(first.region.results, other.region.results, strict=True):
        if a.type != b.type:
            raise BranchError(
                f"{title}: {names[0]} returns {a.type} where {names[1]} returns {b.type}",
                where=str(user_location()),
                hint=f"made at {a.location} and {b.location}; cast or reshape one of them",
            )


# --- arguments ------------------------------------------------------------------------------------


def _scalar(title: str, role: str, value: Any) -> Tensor:
    try:
        scalar = as_tensor(value)
    except NovaError as error:
        raise _fail(f"{title}: {role} is not a number: {error.what}") from None
    if scalar.shape:
        raise _fail(
            f"{title}: {role} is {scalar.type}, must be a scalar",
            "reduce it with .all() or .any(), or select elements with nova.where",
        )
    return scalar


def _require_callable(title: str, *functions: Any) -> None:
    for function in functions:
        if not callable(function):
            raise _fail(
                f"{title}: {type(function).__name__} is not a function",
                "pass functions: the chosen one is called",
            )


def _as_size(value: Any) -> Size:
    """A bound or length that `_is_int` as a size."""
    return value if isinstance(value, SizeExpr) else operator.index(value)


def _is_int(value: Any) -> bool:
    return not isinstance(value, Tensor | bool) and hasattr(value, "__index__")


def _fail(what: str, hint: str | None = None) -> ControlFlowError:
    return ControlFlowError(what, where=str(user_location()), hint=hint)
