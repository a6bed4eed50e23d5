"""Symbolic tables: the tables of a program for all sizes of its dims, as one block of a file.

The compiler describes the sizes of a program as `SymbolicSizes`, and writes its tables with a
placeholder wherever a number depends on sizes. `pack_symbolic` encodes the block (the structs of
native/include/nova/symbolic.h): dims, expressions in postfix order, patches (where a number of the
tables is the value of an expression), and the tables for representative sizes. `unpack_symbolic`
decodes dims and shapes for the runtime. docs/nova-format.md documents the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from nova.artifact.check import Buffer, fail, storable
from nova.artifact.manifest import TensorSpec
from nova.core.records import record
from nova.core.sizes import Dim, Size, SizeExpr, evaluate, parse_size
from nova.core.sizes.algebra import Compound

MAGIC = b"NOVASYM1"
HEADER = Struct("<8s3Q8I")
DIM = Struct("<qqII")
EXPRESSION = Struct("<4I")
OP = Struct("<IIq")
PATCH = Struct("<QII")
EXTENT = Struct("<q")
_WORD = Struct("<q")
SIZE_BYTES = _WORD.size
"""Bytes of the value of a size in memory."""
_ALIGN = 64

PUSH, PUSH_DIM, ADD, MULTIPLY, FLOOR_DIVIDE, MAXIMUM, MINIMUM = range(7)
_CODES = {"floordiv": FLOOR_DIVIDE, "max": MAXIMUM, "min": MINIMUM}

_PLACEHOLDER = 0x7FFF << 48
"""Placeholders are numbers from here on: larger than any size, and not UTF-8 in a string."""

_SHORT_PLACEHOLDER = 0x7FFE << 48
"""The same, of numbers with 4 bytes in the tables: two of them are one word of the scan."""

LONG, SHORT = 0, 1
"""Widths of patches: 8 or 4 bytes."""


@record
class SymbolicSizes:
    """The sizes of a program; kernels load the values of the first `value_count` expressions.

    `representatives` are the sizes of the dims for which the tables are written. `shapes` has the
    number of the expression that a number in the shapes of the signature stands for.
    """

    dims: tuple[Dim, ...]
    representatives: Mapping[str, int]
    value_count: int
    expressions: tuple[str, ...]
    shapes: Mapping[int, int]

    def representative(self, size: Size) -> int:
        """The value of a size in the tables."""
        return evaluate(size, self.representatives)


class Placeholders:
    """Numbers the expressions of a program, and gives the tables placeholders for their values."""

    def __init__(self, values: Sequence[str] = ()):
        self._numbers = {text: i for i, text in enumerate(values)}
        self.value_count = len(values)
        """The first expressions, whose values kernels load."""

    def number(self, size: SizeExpr) -> int:
        """The index of an expression."""
        return self._numbers.setdefault(str(size), len(self._numbers))

    def of(self, size: Size) -> int:
        """A number of the tables: itself if it is static."""
        return _PLACEHOLDER + self.number(size) if isinstance(size, SizeExpr) else size

    def short(self, size: Size) -> int:
        """A number of 4 bytes in the tables, the next 4 of which are 1: itself if it is static."""
        return _SHORT_PLACEHOLDER + self.number(size) if isinstance(size, SizeExpr) else size

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(self._numbers)


@record
class SymbolicShapes:
    """What the runtime needs of a block: the dims, and the sizes of every argument and output.

    Kernels use `value_count` values of sizes.
    """

    dims: tuple[Dim, ...]
    extents: tuple[Size, ...]
    value_count: int

    def shapes(self, tensors: Sequence[TensorSpec]) -> tuple[tuple[Size, ...], ...]:
        """The shape of each of `tensors`, which are the arguments, then the outputs."""
        extents = iter(self.extents)
        return tuple(tuple(next(extents) for _ in spec.shape) for spec in tensors)


def pack_symbolic(tables: bytes, sizes: SymbolicSizes, tensors: Sequence[TensorSpec]) -> bytes:
    """The block; `tables` have placeholders, and `tensors` are the arguments, then the outputs."""
    arguments = [spec for spec in tensors if spec.role != "output"]
    extents = [~sizes.shapes[n] if n in sizes.shapes else n for t in tensors for n in t.shape]
    # The least values: a size divides only what it cannot be 0 for. Representatives may be larger
    # than the greatest values.
    dims = {dim.name: Dim(dim.name, dim.min) for dim in sizes.dims}
    expressions = [parse_size(text, dims) for text in sizes.expressions]
    patched = bytearray(tables)
    patches = []
    for offset in range(0, len(tables) - 7, 8):
        (word,) = _WORD.unpack_from(tables, offset)
        for first, width, upper in ((_PLACEHOLDER, LONG, 0), (_SHORT_PLACEHOLDER, SHORT, 1 << 32)):
            if 0 <= word - first < len(expressions):
                number = word - first
                value = sizes.representative(expressions[number])
                _WORD.pack_into(patched, offset, value + upper)
                patches.append(PATCH.pack(offset, number, width))
    strings = bytearray(b"\0")
    rows = [DIM.pack(d.min, d.max, _add(strings, d.name), 0) for d in sizes.dims]
    ops: list[bytes] = []
    entries = []
    for size in expressions:
        code = _compiled(size, {dim.name: i for i, dim in enumerate(sizes.dims)})
        entries.append(EXPRESSION.pack(len(ops), len(code), _add(strings, str(size)), 0))
        ops += [OP.pack(*op) for op in code]
    body = b"".join([*rows, *entries, *ops, *patches, *map(EXTENT.pack, extents), strings])
    start = HEADER.size + len(body)
    start += -start % _ALIGN
    header = HEADER.pack(
        MAGIC,
        start + len(tables),
        start,
        len(tables),
        len(rows),
        len(entries),
        len(ops),
        len(patches),
        len(extents),
        sizes.value_count,
        len(strings),
        sum(len(spec.shape) for spec in arguments),
    )
    return (header + body).ljust(start, b"\0") + bytes(patched)


def _add(strings: bytearray, text: str) -> int:
    offset = len(strings)
    strings += storable(text).encode() + b"\0"
    return offset


def _compiled(size: Size, dims: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """The postfix ops of a size: code, dim, value."""
    if isinstance(size, int):
        return [(PUSH, 0, size)]
    ops: list[tuple[int, int, int]] = []
    for i, (monomial, coefficient) in enumerate(size.terms):
        factors = [atom for atom, power in monomial for _ in range(power)]
        term: list[tuple[int, int, int]] = []
        for k, atom in enumerate(factors):
            if isinstance(atom, Compound):
                term += _compiled(atom.first, dims) + _compiled(atom.second, dims)
                term.append((_CODES[atom.function], 0, 0))
            else:
                term.append((PUSH_DIM, dims[atom.name], 0))
            term += [(MULTIPLY, 0, 0)] if k else []
        if coefficient != 1 or not factors:
            term.append((PUSH, 0, coefficient))
            term += [(MULTIPLY, 0, 0)] if factors else []
        ops += term + ([(ADD, 0, 0)] if i else [])
    return ops


def tables_of(block: Buffer) -> memoryview:
    """The part of a block that is tables: all of it for a program with static sizes."""
    view = memoryview(block)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        return view
    _, _, start, size, *_ = HEADER.unpack_from(view)
    return view[start : start + size]


def unpack_symbolic(block: Buffer) -> SymbolicShapes:
    """The dims and shapes of a block that the native reader has checked."""
    magic, _, _, _, *counts = HEADER.unpack_from(block)
    if magic != MAGIC:
        fail("symbolic-magic", f"magic {magic!r}")
    (
        dim_count,
        expression_count,
        op_count,
        patch_count,
        extent_count,
        value_count,
        string_size,
        _,
    ) = counts
    view, position = memoryview(block), HEADER.size
    tables = []
    for row, count in (
        (DIM, dim_count),
        (EXPRESSION, expression_count),
        (OP, op_count),
        (PATCH, patch_count),
        (EXTENT, extent_count),
    ):
        end = position + row.size * count
        tables.append(list(row.iter_unpack(view[position:end])))
        position = end
    strings = bytes(view[position : position + string_size])

    def text(offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")

    dims = tuple(Dim(text(name), low, high) for low, high, name, _ in tables[0])
    named = {dim.name: dim for dim in dims}
    sizes = [extent if extent >= 0 else tables[1][~extent][2] for (extent,) in tables[4]]
    extents = tuple(
        size if extent >= 0 else parse_size(text(size), named)
        for size, (extent,) in zip(sizes, tables[4], strict=True)
    )
    return SymbolicShapes(dims, extents, value_count)
