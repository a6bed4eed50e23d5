"""Damaged blocks of symbolic tables, each with the check that must refuse it."""

from __future__ import annotations

from typing import Any

from tiny_file import Block

from nova.artifact import specialized, symbolic

EXTENTS = (~0, 4, 8, 2, 4, 8)
"""Of the arguments and outputs of the tiny file; the first axis is the dim."""


def block(
    *,
    dims: Any = ((1, 64, 1, 0),),
    ops: Any = ((symbolic.PUSH_DIM, 0, 0), (symbolic.PUSH, 0, 4), (symbolic.MULTIPLY, 0, 0)),
    expressions: Any = ((0, 1, 1, 0), (0, 3, 1, 0)),
    patches: Any = (),
    extents: Any = EXTENTS,
    header: dict[int, Any] | None = None,
    cut: int = 0,
) -> bytes:
    """A block around the tables of the tiny file; `header` replaces fields by their number."""
    strings, tables = b"\0B\0", Block().pack()
    rows = [symbolic.DIM.pack(*row) for row in dims]
    rows += [symbolic.EXPRESSION.pack(*row) for row in expressions]
    rows += [symbolic.OP.pack(*row) for row in ops]
    rows += [symbolic.PATCH.pack(*row) for row in patches]
    rows += [symbolic.EXTENT.pack(extent) for extent in extents]
    body = b"".join(rows) + strings
    start = symbolic.HEADER.size + len(body)
    start += -start % 64
    counts = [len(dims), len(expressions), len(ops), len(patches), len(extents), 1, len(strings), 3]
    fields: list[Any] = [symbolic.MAGIC, start + len(tables), start, len(tables), *counts]
    for number, value in (header or {}).items():
        fields[number] = value
    data = (symbolic.HEADER.pack(*fields) + body).ljust(start, b"\0") + tables
    return data[: len(data) - cut]


def with_code(
    *,
    sizes: Any = ((2,),),
    symbolic_block: bytes | None = None,
    header: dict[int, Any] | None = None,
    blocks: Any = None,
    cut: int = 0,
) -> bytes:
    """A block with code for some sizes; `header` replaces fields, `blocks` spans of tables."""
    inner = block() if symbolic_block is None else symbolic_block
    tables = Block().pack()
    data = specialized.pack_specialized(inner, [(numbers, tables) for numbers in sizes])
    fields: list[Any] = list(specialized.HEADER.unpack_from(data))
    for number, value in (header or {}).items():
        fields[number] = value
    start = specialized.HEADER.size
    rows = b"".join(specialized.BLOCK.pack(*span) for span in blocks or ())
    data = specialized.HEADER.pack(*fields) + rows + data[start + len(rows) :]
    return data[: len(data) - cut]


_TOP = 2**32 - 1
BLOCKS: list[tuple[str, str, bytes]] = [
    ("symbolic size", "symbolic-size", block(header={1: 1 << 40})),
    ("cut symbolic block", "symbolic-size", block(cut=8)),
    ("many dims", "symbolic-size", block(header={4: _TOP})),
    ("many expressions", "symbolic-size", block(header={5: _TOP})),
    ("many ops", "symbolic-size", block(header={6: _TOP})),
    ("many patches", "symbolic-size", block(header={7: _TOP})),
    ("many extents", "symbolic-size", block(header={8: _TOP})),
    ("long names", "symbolic-size", block(header={10: _TOP})),
    ("tables before the names", "symbolic-size", block(header={2: 64})),
    ("crooked inner tables", "symbolic-size", block(header={2: 65})),
    ("tables outside", "symbolic-size", block(header={2: 1 << 62})),
    (
        "no dims",
        "symbolic-count",
        block(dims=(), ops=((0, 0, 4),), expressions=((0, 1, 1, 0),) * 2),
    ),
    ("many values", "symbolic-count", block(header={9: 9})),
    ("many arguments", "symbolic-count", block(header={11: 9})),
    ("negative dim", "symbolic-dim", block(dims=((-1, 4, 1, 0),))),
    ("empty bounds", "symbolic-dim", block(dims=((5, 4, 1, 0),))),
    ("dim without a name", "symbolic-dim", block(dims=((1, 4, 99, 0),))),
    ("unbound dim", "symbolic-dim", block(extents=(2, *EXTENTS[1:]))),
    (
        "quotient alone",
        "symbolic-dim",
        block(ops=((1, 0, 0), (0, 0, 4), (4, 0, 0)), extents=(~1, *EXTENTS[1:])),
    ),
    ("ops outside", "symbolic-expression", block(expressions=((0, 1, 1, 0), (2, 9, 1, 0)))),
    ("ops far outside", "symbolic-expression", block(expressions=((0, 1, 1, 0), (_TOP, 1, 1, 0)))),
    ("no ops", "symbolic-expression", block(expressions=((0, 1, 1, 0), (0, 0, 1, 0)))),
    ("two values left", "symbolic-expression", block(expressions=((0, 1, 1, 0), (0, 2, 1, 0)))),
    ("nothing to multiply", "symbolic-expression", block(expressions=((0, 1, 1, 0), (2, 1, 1, 0)))),
    ("op of no code", "symbolic-expression", block(ops=((1, 0, 0), (0, 0, 4), (7, 0, 0)))),
    ("dim outside", "symbolic-expression", block(ops=((1, 9, 0), (0, 0, 4), (3, 0, 0)))),
    (
        "deep expression",
        "symbolic-expression",
        block(ops=((1, 0, 0),) * 65, expressions=((0, 1, 1, 0), (0, 65, 1, 0))),
    ),
    ("patch of the magic", "symbolic-patch", block(patches=((0, 0, 0),))),
    ("patch of the size", "symbolic-patch", block(patches=((8, 0, 0),))),
    ("crooked patch", "symbolic-patch", block(patches=((17, 0, 0),))),
    ("patch outside", "symbolic-patch", block(patches=((1 << 62, 0, 0),))),
    ("patch by nothing", "symbolic-patch", block(patches=((16, 9, 0),))),
    ("patch of two bytes", "symbolic-patch", block(patches=((16, 0, 2),))),
    ("extent by nothing", "symbolic-extent", block(extents=(~9, *EXTENTS[1:]))),
    ("extent of another size", "symbolic-extent", block(extents=(~0, 5, *EXTENTS[2:]))),
    ("too few extents", "symbolic-extent", block(extents=EXTENTS[:-1])),
    ("inner magic", "tables-magic", block().replace(b"NOVATBL1", b"NOVATBL9")),
    ("specialized size", "specialized-size", with_code(header={1: 1 << 40})),
    ("cut specialized block", "specialized-size", with_code(cut=8)),
    ("no combination", "specialized-size", with_code(header={4: 0})),
    ("many combinations", "specialized-size", with_code(header={4: _TOP})),
    ("combinations after the block", "specialized-size", with_code(header={4: 4000})),
    ("many sizes of one", "specialized-size", with_code(header={5: _TOP})),
    ("reserved word", "specialized-size", with_code(header={6: 1})),
    ("symbolic tables in the header", "specialized-size", with_code(header={2: 8})),
    ("symbolic tables outside", "specialized-size", with_code(header={2: 1 << 62})),
    ("crooked symbolic tables", "specialized-size", with_code(header={2: 129})),
    ("no symbolic tables", "specialized-size", with_code(symbolic_block=Block().pack())),
    ("cut symbolic tables", "symbolic-size", with_code(symbolic_block=block(cut=8))),
    ("code outside", "specialized-size", with_code(blocks=((1 << 62, 8),))),
    ("code after the end", "specialized-size", with_code(blocks=((128, 1 << 62),))),
    ("crooked code", "specialized-size", with_code(blocks=((129, 8),))),
    ("two sizes of one dim", "specialized-dim", with_code(sizes=((2, 2),))),
    ("size out of bounds", "specialized-dim", with_code(sizes=((65,),))),
    ("negative size", "specialized-dim", with_code(sizes=((-2,),))),
]
