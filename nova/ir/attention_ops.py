"""Attention as one op below the nova dialect: the ops that carry it, and their readers.

`form-attention` creates `nova.attend` and `nova.attend_gradient` from the rows of the table: ops on
tensors with an indexing map for every operand and result, as in linalg, over the loops

    batch ..., i (rows of q), j (rows of k and v), e (features of q and k), f (features of v).

`wrap-attention` makes each a `linalg.generic` over these loops. Its accesses are exact, so
tiling, bufferization and ordering of kernels need no special case. A scalar body cannot express the
computation: a `nova.attend_point` (`nova.attend_gradient_point`) in the body stands for it, which
only the FlashAttention schedules can lower (nova/codegen/cpu/attention/flash_forward.py). Any other
lowering fails on it.

Gradients that the program joins are packed: the op has the attribute `packed`, its first result is
the tensor with all three, and the map of each gradient says where in it. The generic then has one
result, and its point the maps; `unpack-attention` gives it a destination for each gradient, in one
buffer.

Packed sequences: the option `segments` adds operands of i32. A row sees the keys of the same
segment: those with `k_segment` equal to its `q_segment`. All of them are in the range from
`key_begin` to `key_end` of the row, both of which never decrease from row to row, so that a tile of
rows skips keys before the begin of its first row and after the end of its last one. A negative
begin says that a range may contain other segments, too, and an end may be after the last key.
`row_begin` and `row_end` are the same for a key, in the gradients of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, product
from math import prod
from typing import Any

from nova.core.records import record
from nova.errors import NovaError
from nova.ir.bindings import ir

OPERANDS = {
    "attend": ("q", "k", "v"),
    "attend_gradient": ("g", "q", "k", "v", "logsumexp", "delta"),
}
RESULTS = {"attend": ("out", "logsumexp"), "attend_gradient": ("q", "k", "v")}
SEGMENTS = ("q_segment", "k_segment", "key_begin", "key_end")
"""The operands of packed sequences: ids of rows and keys, and the keys that each row may see."""
ROW_RANGES = ("row_begin", "row_end")
"""The rows that may see each key: of a gradient, after `SEGMENTS`."""
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "segments": {"attend": SEGMENTS, "attend_gradient": (*SEGMENTS, *ROW_RANGES)},
    "dropout": {"attend": ("seed",), "attend_gradient": ("seed",)},
}
"""Option -> the operands that it adds to each base; options compose, in this order."""


def _variants() -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    for base in OPERANDS:
        for chosen in product((False, True), repeat=len(_OPTIONS)):
            options = list(compress(_OPTIONS, chosen))
            extras = [name for option in options for name in _OPTIONS[option][base]]
            yield "_".join((base, *options)), (base, tuple(extras))


VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = dict(_variants())
"""Op -> its base, whose operands come first, and further operands; a mask may follow."""
OPS = tuple(f"nova.{name}" for name in VARIANTS)
POINTS = {f"nova.{name}_point": name for name in VARIANTS}
ROLES = ("i", "j", "e", "f")
"""The last loops; the batch loops come before them."""
AXES = {
    "g": "if",
    "q": "ie",
    "k": "je",
    "v": "jf",
    "mask": "ij",
    "out": "if",
    "logsumexp": "i",
    "delta": "i",
    "seed": "",
    "q_segment": "i",
    "key_begin": "i",
    "key_end": "i",
    "k_segment": "j",
    "row_begin": "j",
    "row_end": "j",
}
"""The loops of the last axes of each operand and result; the batch axes come before them."""
PACKED = "packed"
"""The attribute of an op whose gradients are in one tensor, and of its point."""
DROPOUT = "dropout"
"""The attribute of an op with a seed, and of its point: the probability that a weight is dropped.
"""
_FEW, _LONG = 8, 256


@record
class AttentionKind:
    """The meaning of a point: which results of which op, and its attributes."""

    op: str
    results: tuple[str, ...]
    causal: bool
    scale: float
    extras: tuple[str, ...] = ()
    """Operands after `OPERANDS`."""
    dropout: float = 0.0
    """The probability that a weight is dropped; with an operand `seed`."""

    @property
    def operands(self) -> tuple[str, ...]:
        return (*OPERANDS[self.op], *self.extras)

    @property
    def masked(self) -> bool:
        return "mask" in self.extras

    @property
    def has_segments(self) -> bool:
        return "q_segment" in self.extras

    @property
    def has_dropout(self) -> bool:
        return "seed" in self.extras


def base_of(op: Any) -> str:
    """`attend` or `attend_gradient`."""
    return VARIANTS[op.name.removeprefix("nova.")][0]


def variant_of(base: str, extras: Sequence[str]) -> str:
    """The op with these operands after those of its base."""
    required = tuple(name for name in extras if name != "mask")
    return next(name for name, variant in VARIANTS.items() if variant == (base, required))


def extras_of(op: Any, name: str) -> tuple[str, ...]:
    """The names of the operands of a variant after those of its base."""
    base, required = VARIANTS[name]
    count = len(OPERANDS[base]) + len(required)
    return (*required, "mask") if len(op.operands) > count else required


def dropout_of(op: Any) -> float:
    return float(op.attributes[DROPOUT].value) if DROPOUT in op.attributes else 0.0


def _dropout_attribute(extras: Sequence[str], dropout: float) -> dict[str, Any]:
    if "seed" not in extras:
        return {}
    return {DROPOUT: ir.FloatAttr.get(ir.F64Type.get(), dropout)}


def emit_attention(
    name: str,
    operands: Sequence[tuple[Any, Any]],
    results: Sequence[tuple[Any, Any]],
    *,
    causal: bool,
    scale: float,
    packed: bool = False,
    extras: Sequence[str] = (),
    dropout: float = 0.0,
) -> list[Any]:
    """An op of base `name`: operands and result types, each with its map.

    `extras` are the names of the operands after those of the base.
    """
    maps = [ir.AffineMapAttr.get(m) for _, m in (*operands, *results)]
    op = ir.Operation.create(
        f"nova.{variant_of(name, extras)}",
        results=[type_ for type_, _ in results],
        operands=[value for value, _ in operands],
        attributes={
            "maps": ir.ArrayAttr.get(maps),
            "causal": ir.BoolAttr.get(causal),
            "scale": ir.FloatAttr.get(ir.F64Type.get(), scale),
            **({PACKED: ir.UnitAttr.get()} if packed else {}),
            **_dropout_attribute(extras, dropout),
        },
    )
    return list(op.results)


def splits_gradient(sizes: Sequence[int]) -> bool:
    """Whether a gradient over loops of these sizes is two ops, by rows of k and v and of q.

    With few batches of many rows, the batches alone would not be enough work for all cores.
    """
    *batch, rows, keys, _, _ = sizes
    return prod(batch) < _FEW and max(rows, keys) > _LONG


def emit_point(
    attention: AttentionKind, elements: Sequence[Any], type_: Any, packed: Sequence[Any] = ()
) -> Any:
    """The body of an attention op; `packed` are the maps of results that share a tensor."""
    return ir.Operation.create(
        f"nova.{variant_of(attention.op, attention.extras)}_point",
        results=[type_],
        operands=list(elements),
        attributes={
            "results": ir.ArrayAttr.get([ir.StringAttr.get(r) for r in attention.results]),
            "causal": ir.BoolAttr.get(attention.causal),
            "scale": ir.FloatAttr.get(ir.F64Type.get(), attention.scale),
            **({PACKED: ir.ArrayAttr.get(list(packed))} if packed else {}),
            **_dropout_attribute(attention.extras, attention.dropout),
        },
    ).result


def find_point(op: Any) -> Any | None:
    """The attention point in the body of a linalg.generic, or None."""
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name in POINTS:
            return inner.operation
    return None


def kind_of_point(point: Any) -> AttentionKind:
    """The arguments of `emit_point`, read back."""
    name = POINTS[point.name]
    return AttentionKind(
        op=VARIANTS[name][0],
        results=tuple(r.value for r in point.attributes["results"]),
        causal=bool(point.attributes["causal"].value),
        scale=point.attributes["scale"].value,
        extras=extras_of(point, name),
        dropout=dropout_of(point),
    )


def verify_attention(name: str) -> Any:
    """The verifier of `nova.attend` and `nova.attend_gradient`."""

    def verify(op: Any) -> bool:
        try:
            _check(name, op)
        except NovaError as error:
            op.location.emit_error(f"'nova.{name}' op {error.what}")
            return False
        return True

    return verify


def _check(name: str, op: Any) -> None:
    values = [*op.operands, *op.results]
    maps = list(op.attributes["maps"]) if "maps" in op.attributes else []
    if len(maps) != len(values):
        raise NovaError(f"has {len(maps)} maps for {len(values)} operands and results")
    for attr in ("causal", "scale"):
        if attr not in op.attributes:
            raise NovaError(f"needs the attribute `{attr}`")
    _check_dropout(name, op)
    sizes: dict[int, int] = {}
    for value, attribute in zip(values, maps, strict=True):
        map_ = attribute.value
        if not isinstance(value.type, ir.RankedTensorType) or len(map_.results) != value.type.rank:
            raise NovaError(f"the map {map_} does not fit {value.type}")
        for expr, size in zip(map_.results, value.type.shape, strict=True):
            if isinstance(expr, ir.AffineDimExpr) and sizes.setdefault(expr.position, size) != size:
                raise NovaError(
                    f"loop {expr.position} has {sizes[expr.position]} and {size} iterations"
                )
    loops = maps[0].value.n_dims
    if missing := set(range(loops)) - set(sizes):
        raise NovaError(f"no operand gives the size of loop {min(missing)}")


def _check_dropout(name: str, op: Any) -> None:
    if ("seed" in VARIANTS[name][1]) != (DROPOUT in op.attributes):
        raise NovaError("needs the attribute `dropout` with a seed, and only then")
    if not 0 <= dropout_of(op) < 1:
        raise NovaError(f"`dropout` is {dropout_of(op)}, must be at least 0 and below 1")


def loop_sizes(op: Any) -> list[int]:
    """The loop sizes of a verified `nova.attend` or `nova.attend_gradient`."""
    sizes: dict[int, int] = {}
    for value, attribute in zip([*op.operands, *op.results], op.attributes["maps"], strict=True):
        for expr, size in zip(attribute.value.results, value.type.shape, strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                sizes[expr.position] = size
    return [sizes[i] for i in range(len(sizes))]
