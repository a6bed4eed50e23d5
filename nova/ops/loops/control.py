"""Ops with regions: branches and loops, calls of files, and the op that selects a result.

They are not rows of the op table: their operands and results are any number of tensors of any
types, and regions (`nova/graph/control/regions.py`) say what they compute. Graph, plan, dialect and
interpreter share the conventions below; `i` is the iteration number, an i64[].

    cond   (index, *operands), regions (*operands) -> results, one per branch; the index is a bool[]
           or an i64[], clamped to the branches.
    while  (*consts, *carries), regions cond (*consts, *carries) -> bool[] and
           body (*consts, *carries) -> carries.
    scan   (*consts, *carries, *xs), region body (i, *consts, *carries, *x slices) ->
           (*carries, *y slices); results (*carries, *ys). Slices are along the first axis.
    call   (file, *arguments) -> outputs of the program in the `.nova` file whose bytes are the
           first operand, a literal u8[n]; no regions. `memory` is the size of its workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.core.dtypes import TensorType, bool_, i64, u8
from nova.core.sizes import Size, SizeExpr, known_equal, known_less
from nova.errors import NovaError, UnknownOpError
from nova.ops.table import OPS, REQUIRED, Op, op

COND = Op("cond", "One of several branches, by an index.", ("index", "*operands"))
WHILE = Op(
    "while",
    "A loop that ends when its condition is false.",
    ("*operands",),
    attrs={"consts": REQUIRED},
)
SCAN = Op(
    "scan",
    "A loop of `length` iterations over the first axis of its operands.",
    ("*operands",),
    attrs={"consts": REQUIRED, "carries": REQUIRED, "length": REQUIRED, "reverse": False},
)
CALL = Op(
    "call",
    "The program of a `.nova` file.",
    ("file", "*arguments"),
    attrs={"memory": REQUIRED},
)
RESULT = Op("result", "One result of an op with regions.", ("x",), attrs={"index": REQUIRED})

REGION_OPS = {op.name: op for op in (COND, WHILE, SCAN, CALL)}
CONTROL_OPS = {**REGION_OPS, RESULT.name: RESULT}

Types = tuple[TensorType, ...]
RegionType = tuple[Types, Types]
"""The types of the parameters and of the results of a region."""


def find_op(name: str) -> Op:
    """The row or the op with regions called `name`."""
    return CONTROL_OPS[name] if name in CONTROL_OPS else op(name)


def is_op(name: str) -> bool:
    """Whether a row or an op with regions has this name."""
    return name in OPS or name in CONTROL_OPS


def slice_type(stacked: TensorType, length: Size) -> TensorType:
    """The type of one slice of a value that a scan reads; NovaError if it has no such slices."""
    if stacked.rank == 0 or not known_equal(stacked.shape[0], length):
        raise NovaError(f"scans {length} slices of {stacked} along its first axis")
    return TensorType(stacked.shape[1:], stacked.dtype)


def control_types(
    name: str, operands: Types, attrs: Mapping[str, Any], regions: Sequence[RegionType]
) -> Types:
    """The result types of an op with regions; NovaError if its regions do not fit its operands."""
    if name not in REGION_OPS or name == CALL.name:
        raise UnknownOpError(f"{name!r} is not an op with regions")
    check = {"cond": _cond_types, "while": _while_types, "scan": _scan_types}[name]
    return check(operands, attrs, regions)


def check_call(operands: Types, attrs: Mapping[str, Any], regions: Sequence[RegionType]) -> None:
    """NovaError unless a call has the bytes of a file as its first operand, and no regions.

    The types of its results are those of the file, which the runtime compares.
    """
    if not operands or operands[0].dtype is not u8 or operands[0].rank != 1:
        file = operands[0] if operands else "missing"
        raise NovaError(f"its file is {file}, must be u8[n]")
    if regions:
        raise NovaError(f"has {len(regions)} regions, must have none")
    _count(attrs, "memory", 1 << 62)


def _cond_types(operands: Types, attrs: Mapping[str, Any], regions: Sequence[RegionType]) -> Types:
    if not operands or operands[0] not in (TensorType((), bool_), TensorType((), i64)):
        index = operands[0] if operands else "missing"
        raise NovaError(f"its index is {index}, must be bool[] or i64[]")
    if not regions:
        raise NovaError("has no branches")
    for number, (params, results) in enumerate(regions):
        _require(params, operands[1:], f"branch {number} takes")
        _require(results, regions[0][1], f"branch {number} returns")
    return regions[0][1]


def _while_types(operands: Types, attrs: Mapping[str, Any], regions: Sequence[RegionType]) -> Types:
    if len(regions) != 2:
        raise NovaError(f"has {len(regions)} regions, must have a condition and a body")
    (cond_params, cond_results), (body_params, body_results) = regions
    carries = operands[_count(attrs, "consts", len(operands)) :]
    _require(cond_params, operands, "the condition takes")
    _require(cond_results, (TensorType((), bool_),), "the condition returns")
    _require(body_params, operands, "the body takes")
    _require(body_results, carries, "the body returns")
    return carries


def _scan_types(operands: Types, attrs: Mapping[str, Any], regions: Sequence[RegionType]) -> Types:
    if len(regions) != 1:
        raise NovaError(f"has {len(regions)} regions, must have a body")
    length = _length(attrs)
    consts = _count(attrs, "consts", len(operands))
    first_x = consts + _count(attrs, "carries", len(operands) - consts)
    carries = operands[consts:first_x]
    slices = tuple(slice_type(t, length) for t in operands[first_x:])
    params, results = regions[0]
    _require(params, (TensorType((), i64), *operands[:first_x], *slices), "the body takes")
    _require(results[: len(carries)], carries, "the body returns")
    ys = results[len(carries) :]
    return (*carries, *(TensorType((length, *t.shape), t.dtype) for t in ys))


def _length(attrs: Mapping[str, Any]) -> Size:
    """The number of iterations; a symbolic size is never negative."""
    length = attrs.get("length")
    if not isinstance(length, SizeExpr):
        return _count(attrs, "length", 1 << 62)
    if known_less(length, 0):
        raise NovaError(f"its length is {length}, which is negative")
    return length


def _count(attrs: Mapping[str, Any], name: str, most: int) -> int:
    value = attrs.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise NovaError(f"its {name} is {value}, must be an int of 0 to {most}")
    return value


def _require(types: Types, expected: Types, title: str) -> None:
    if types != expected:
        actual, right = (f"({', '.join(map(str, t))})" for t in (types, expected))
        raise NovaError(f"{title} {actual}, must be {right}")
