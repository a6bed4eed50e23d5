"""`docs/ops.md`: every row of the op table, and the promotion rules.

In: the op table and `nova/core/dtypes.py`. Out: Markdown, for `gen_docs`. What types an op takes
is not
written down anywhere but in the rows' rules, so the page asks them: each row is applied to
placeholders of every element type.
"""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from typing import Any

from nova.core import dtypes
from nova.core.dtypes import ALL, EVERY, FLOATS, INTEGERS, DType, TensorType
from nova.errors import DTypeError, NovaError
from nova.graph.build import apply
from nova.graph.functions import FUNCTIONS
from nova.graph.tensor import Tensor
from nova.ops import OPS, REQUIRED, Op
from nova.ops.attention.segments import SEGMENT_OPERANDS
from nova.ops.kernels.rows import TAG

_INTRODUCTION = """\
# Ops

Every op is a row of the table in `nova/ops/`: `nova.NAME(...)` in Python, and a method of `Tensor`
where the last column says so. Operands come first and broadcast as in numpy; the keywords after `*`
are attributes. A *primitive* has its own lowering to linalg, a *composite* is made of other rows
when it is lowered (`decompose-composites`), *sugar* is a function that becomes other rows.

**types** is what the operands may be and what comes out: `floats` are f64 f32 f16 bf16, `ints` are
i64 i32 i8 u8 (and mostly i16, u16, u32 and u64), and an arrow says where the result has another
type than the (promoted) operands.
**gradient**: `yes`; `stop` for results that are piecewise constant or not floats, through which no
gradient flows; `of its parts` for what is differentiated through the rows it is made of.

**Indices** (`take`, `gather`, `embedding`, `scatter`, `index_put`, `max_unpool2d`, `one_hot`, ...):
a negative index counts from the end of the axis, and one out of range is clamped to the nearest
element, in loads and in stores, on CPUs and GPUs. torch raises an error there, and jax clamps loads
and drops stores. With [`NOVA_CHECK=1`](debugging.md) an index out of range among the arguments of a
run is an `IndexRangeError`.
"""

_PROMOTION = """\
## Promotion

Operands of different types are cast to a common one first, as torch's `promote_types` has it: an
integer or bool with a float gives that float, whatever its width, so that f64 comes from f64 alone.
i8 with u8 gives i32, where torch gives i16; f16 with bf16 gives f32. A signed integer with an
unsigned one gives a signed one that holds both; i64 and u64 have none, which is an error.
[8-bit floats](low-precision.md) are the narrowest floats; the two of them give f32. A
[complex](complex.md) type stays as it is, except that complex64 with f64 gives complex128.

{matrix}

- A Python number takes the type of the other operand (NEP 50): `x + 1` and `x * 0.5` keep the
  type of a float `x`; an int with bool gives i64; a float with an integer or bool gives f32.
- Functions that only exist on floats (`exp`, `softmax`, ...), `/`, `mean` and `var` compute
  integers and bool in f32, as torch and jax do; numpy takes f16 or f64. Cast to f64 first where
  integers beyond 2**24 must stay exact.
- Sums and products of integers and bool are i64.
- f16 and bf16 are stored narrow and computed wide: elementwise ops round once at the end, sums and
  matrix products accumulate in f32.
- `cast` of a float to an integer truncates; NaN and overflow are in [fast-math.md](fast-math.md).
"""

# Values for attributes without a default, by their name, that fit operands of shape (2, 2).
_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    *(((2, 2), (2, 2)), ((2, 2), (2,)), ((2,), (2,)), ((2, 2), ())),
    ((2, 2, 2), (2, 2)),
)
"""Of operands and of indices, in the order in which they are tried."""
_ATTRIBUTES: dict[str, Any] = {
    "slice_sizes": (1, 1),
    "shape": (2, 2),
    "axes": (0, 1),
    "starts": (0, 0),
    "stops": (2, 2),
    "steps": (1, 1),
    "low": (0, 0),
    "axis": 0,
    "num_classes": 2,
    "start": 2,
    "value": 1,
    "region": 1,
    "sign": -1,
    "n": 2,
    "kernel": (1,),
    "size": (3,),
    "axis_size": 3,
    "dtype": dtypes.f32,
    "min": 0,
    "format": "q8_0",
    "k": 1,
}
# Operands that hold integers whatever the type of the others is.
_INDEX_OPERANDS = ("index", "indices", "seed", "target", *SEGMENT_OPERANDS)
# A number for each row of the others.
_ROW_OPERANDS = {"logsumexp", "delta", *SEGMENT_OPERANDS}
# Packed blocks are bytes: rows of one block, and rows of as many numbers.
_PACKED = TensorType((2, 34), dtypes.u8)
_UNPACKED_SHAPE = (2, 32)


def render_ops() -> str:
    """The page, without its header."""
    parts = [_INTRODUCTION]
    families = groupby(OPS.values(), key=_family)
    for family, rows in families:
        parts.append(f"## {_title(family)}\n")
        parts.append("| op | what it is | kind | types | gradient | method |")
        parts.append("|---|---|---|---|---|---|")
        parts += [_row(row) for row in rows]
        parts.append("")
    parts.append(_PROMOTION.format(matrix=_matrix()))
    return "\n".join(parts)


def _family(row: Op) -> str:
    """The module that the row stands in."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("nova.ops.") and any(
            isinstance(value, tuple | list) and any(item is row for item in value)
            for value in vars(module).values()
        ):
            return name.removeprefix("nova.ops.")
    raise LookupError(f"the row of {row.name} is in no tuple of rows of nova/ops")


def _title(family: str) -> str:
    folder, _, name = family.rpartition(".")
    if folder:
        return f"{folder.capitalize().replace('_', ' ')}: {name}"
    return {"nn": "Layers", "randomness": "Random numbers"}.get(family, family.capitalize())


def _row(row: Op) -> str:
    methods = ", ".join(f"`.{m}`" for m in row.methods)
    cells = (f"`{_signature(row)}`", row.doc, row.kind, _types(row), _gradient(row), methods)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _signature(row: Op) -> str:
    """As Python shows it; sugar is documented by its function."""
    if row.build is None:
        return f"{row.name}{inspect.signature(FUNCTIONS[row.name])}"
    parameters = list(inspect.signature(row.build).parameters.values())[1:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{row.name}{inspect.Signature(bare)}"


def _gradient(row: Op) -> str:
    if TAG in row.tags:
        return "`defvjp`"
    if "nograd" in row.tags or row.name == "detach":
        return "stop"
    return "yes" if row.vjp is not None else "of its parts"


# --- types ----------------------------------------------------------------------------------------


def _types(row: Op) -> str:
    if row.build is not None:
        return "those of its parts"
    if TAG in row.tags:
        return "by the type rule of the user"
    result_types = {d: _result(row, d) for d in ALL}
    accepted = [d for d in ALL if result_types[d] is not None]
    if not accepted:
        return "complex → its parts"
    results = set(result_types.values())
    if "dtype" in row.attrs and len(results) == 1:
        return "by `dtype`"
    if len(results) == 1:
        only_indices = all(name in _INDEX_OPERANDS for name in row.operands)
        accepts = "u8" if row.operands == ("blocks",) else "ints" if only_indices else "any"
        return f"{accepts} → {result_types[accepted[0]]}"
    groups: dict[str, list[DType]] = {}
    for d in accepted:
        out = result_types[d]
        assert out is not None
        groups.setdefault("" if out is d else f" → {out}", []).append(d)
    if len(accepted) == len(ALL) and list(groups) == [""]:
        return "any"
    return ", ".join(f"{_names(members)}{to}" for to, members in groups.items())


def _names(members: list[DType]) -> str:
    names = []
    for group, name in ((FLOATS, "floats"), (INTEGERS, "ints")):
        if all(d in members for d in group):
            names.append(name)
            members = [d for d in members if d not in group]
    return " ".join([*names, *(d.name for d in members)])


def _result(row: Op, operand: DType) -> DType | None:
    """The type of the row's result on operands of type `operand`; None where it refuses them."""
    attrs = {n: _ATTRIBUTES[n] for n, v in row.attrs.items() if v is REQUIRED}
    if row.name == "clamp":
        attrs["min"] = _ATTRIBUTES["min"]
    refused: NovaError | None = None
    if "blocks" in row.operands:
        unpacked = TensorType(_UNPACKED_SHAPE, operand)
        types = [_PACKED if name == "blocks" else unpacked for name in row.operands]
        return apply(row, [Tensor(t) for t in types], attrs).dtype
    for shape, index_shape in _SHAPES:
        operands = [
            Tensor(TensorType(shape[:-1] if name in _ROW_OPERANDS else index_shape, dtypes.i64))
            if name in _INDEX_OPERANDS and callable(row.cast)
            else Tensor(TensorType(shape[:-1] if name in _ROW_OPERANDS else shape, operand))
            for name in row.operands[: row.min_operands]
        ]
        try:
            return apply(row, operands, attrs).dtype
        except DTypeError:
            return None
        except NovaError as error:
            refused = error
    raise LookupError(f"gen_docs cannot apply {row.name}: {refused}")


def _promoted(a: DType, b: DType) -> str:
    try:
        return dtypes.promote(a, b).name
    except DTypeError:
        return "error"


def _matrix() -> str:
    shown = sorted(EVERY, key=lambda d: ("fiubc".index(d.kind), -d.bits))
    lines = ["| | " + " | ".join(d.name for d in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for a in shown:
        cells = [_promoted(a, b) for b in shown]
        lines.append(f"| **{a.name}** | " + " | ".join(cells) + " |")
    for title, number in (
        ("a Python int", 1),
        ("a Python float", 1.0),
        ("a Python complex", 1j),
    ):
        cells = [dtypes.weak(number, b).name for b in shown]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
