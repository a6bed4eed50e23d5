"""Large constants in modules: attributes that refer to memory outside of MLIR.

In: arrays, or the text of a module with the values of constants in hexadecimal. Out: attributes
`dense_resource<nova_digest>`, which MLIR reads without a copy and prints as short as that, and a
table of the bytes for each context, as the bindings do not read such attributes. `emit.py` and
`parse_module` make them, `dense_bytes` reads them, `module_text` prints without the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from nova.constants import LEAST, Constants, digest_of
from nova.mlir.bindings import ir

# Whole constants of ops that hold one; in kernels, and of other element types, they stay.
_INLINE = re.compile(
    r"(?:\b(?:nova|arith|stablehlo)\.constant\b|\btosa\.const\b|\bmemref\.global\b)[^\n]{0,400}?"
    rf'(dense<"0x([0-9A-Fa-f]{{{2 * LEAST},}})">)\s*:\s*(?=tensor<([0-9x]*)x(\w+)>)'
)
_GLOBAL = re.compile(
    r"\bmemref\.global\b[^\n]{0,200}?:\s*memref<([0-9x]*)x(\w+)>\s*=\s*"
    rf'(dense<"0x([0-9A-Fa-f]{{{2 * LEAST},}})">)'
)
_BLOB = re.compile(
    rf'("(?:[^"\\\n]|\\.)*"|[\w.$-]+)(\s*:\s*)"0x([0-9A-Fa-f]{{8}})([0-9A-Fa-f]{{{2 * LEAST},}})"'
)
_USE = re.compile(r"dense_resource<([^>]*)>\s*:\s*tensor<([0-9x]*)x(\w+)>")
_OWN_NAME = re.compile(r"nova_([0-9a-f]{64})(?:_[0-9]+)?")
_NAME = re.compile(r"dense_resource<nova_([0-9a-f]{64})(?:_[0-9]+)?>")
_WIDTHS = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    **{f"{sign}i{bits}": bits // 8 for sign in ("", "s", "u") for bits in (8, 16, 32, 64)},
}

_TABLES: WeakKeyDictionary[ir.Context, Constants] = WeakKeyDictionary()


def constants_of(context: ir.Context) -> Constants:
    """The large constants of all modules of a context."""
    table = _TABLES.get(context)
    if table is None:
        table = _TABLES[context] = Constants()
    return table


def resource(data: np.ndarray, type_: ir.Type) -> ir.Attribute:
    """The attribute of a large constant; its bytes are not copied."""
    with type_.context:
        constants = constants_of(type_.context)
        digest = constants.add(memoryview(data).cast("B"))
        return _attribute(constants, digest, type_)


def _attribute(constants: Constants, digest: str, type_: ir.Type) -> ir.Attribute:
    data = np.frombuffer(constants[digest], np.uint8)
    return ir.DenseResourceElementsAttr.get_from_buffer(data, f"nova_{digest}", type_, alignment=1)


def is_resource(attr: Any) -> bool:
    """Whether an attribute's values are outside of it, as those of large constants are."""
    return type(attr) is ir.Attribute and str(attr).startswith("dense_resource<")


def resource_bytes(attr: ir.Attribute) -> memoryview | None:
    """The bytes of a constant that `resource` made; None for other attributes."""
    # The bindings give no class to these attributes, and the text of others may be long.
    if type(attr) is not ir.Attribute or (found := _NAME.match(str(attr))) is None:
        return None
    return constants_of(attr.context).get(found[1])


def retyped(attr: ir.Attribute, type_: ir.Type) -> ir.Attribute:
    """A constant with another type whose elements have the same bytes."""
    data = resource_bytes(attr)
    if data is not None:
        return resource(np.frombuffer(data, np.uint8), type_)
    text = str(attr)
    return ir.Attribute.parse(f"{text[: text.rindex(' : ')]} : {type_}")


# --- texts ----------------------------------------------------------------------------------------


def take_constants(text: str, constants: Constants) -> str:
    """Move the values of large constants from the text of a module into the table."""
    if '"0x' not in text or len(text) < 2 * LEAST:
        return text
    cuts = sorted([*_inline_cuts(text, constants), *_blob_cuts(text, constants)])
    if not cuts:
        return text
    pieces, done = [], 0
    for low, high, new in cuts:
        pieces += [text[done:low], new]
        done = high
    return "".join([*pieces, text[done:]])


_Cut = tuple[int, int, str]


def _inline_cuts(text: str, constants: Constants) -> Iterator[_Cut]:
    for pattern, (whole, digits, shape, element) in (
        (_INLINE, (1, 2, 3, 4)),
        (_GLOBAL, (3, 4, 1, 2)),
    ):
        for match in pattern.finditer(text):
            data = bytes.fromhex(match[digits])
            if len(data) == _size(match[shape], match[element]):
                low, high = match.span(whole)
                yield low, high, f"dense_resource<nova_{constants.add(data)}>"


def _blob_cuts(text: str, constants: Constants) -> Iterator[_Cut]:
    """The values behind a module, and the names by which ops refer to them."""
    start = text.rfind("\n{-#")
    found = list(_BLOB.finditer(text, start)) if start >= 0 else []
    if not found:
        return
    used: dict[str, list[re.Match[str]]] = {}
    for match in _USE.finditer(text, 0, start):
        used.setdefault(match[1], []).append(match)
    for blob in found:
        uses = used.get(blob[1], [])
        size = len(blob[4]) // 2
        if len(blob[4]) % 2 or any(_size(use[2], use[3]) != size for use in uses):
            continue
        data = bytes.fromhex(blob[4])
        own = _OWN_NAME.fullmatch(blob[1])
        if own is not None and digest_of(data) == own[1]:
            constants.add(data, own[1])
        elif uses:
            digest = constants.add(data)
            for use in uses:
                yield *use.span(1), f"nova_{digest}"
        else:
            continue
        # An empty resource under its old name: nothing refers to it.
        yield *blob.span(4), ""


def _size(shape: str, element: str) -> int | None:
    """The bytes of a tensor's values; None for element types that are stored in other ways."""
    width = _WIDTHS.get(element)
    if width is None or not shape:
        return None
    return width * prod(int(extent) for extent in shape.split("x"))


def attach_constants(module: ir.Module) -> None:
    """Give the references of a parsed module the memory that they stand for."""
    constants = constants_of(module.context)
    made: dict[tuple[str, ir.Type], ir.Attribute] = {}

    def visit(op: Any) -> None:
        for name in list(op.attributes):
            attr = op.attributes[name]
            found = _NAME.match(str(attr)) if type(attr) is ir.Attribute else None
            if found is not None and found[1] in constants:
                key = (found[1], attr.type)
                if key not in made:
                    made[key] = _attribute(constants, found[1], attr.type)
                op.attributes[name] = made[key]
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation)

    visit(module.operation)
