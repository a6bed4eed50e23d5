"""Large constants in modules: attributes that refer to memory outside of MLIR.

In: arrays, or the text of a module with constants in hexadecimal. Out: attributes
`dense_resource<nova_digest>`, which MLIR prints without the values, and a table of the bytes for
each context. `dense` and `parse_module` create them, `dense_bytes` reads them. MLIR passes must not
need the values: only constants that `main` passes to kernels are stored this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from nova.core.constants import LEAST, Constants, digest_of, expand_text
from nova.ir.bindings import ir

# Whole constants of ops that hold one; those in kernels, and of other dtypes, stay in the text.
_VALUES = re.compile(rf'dense<"0x([0-9A-Fa-f]{{{2 * LEAST},}}+)">')
_MOST_BEFORE = 400
_OP = re.compile(
    r"(?:\b(?:nova|arith|stablehlo)\.constant\b|\btosa\.const\b|\bmemref\.global\b)[^\n]*\Z"
)
_TYPE_AFTER = re.compile(r"\s*:\s*tensor<([0-9x]*)x(\w+)>")
_TYPE_BEFORE = re.compile(r"\bmemref\.global\b[^\n]*:\s*memref<([0-9x]*)x(\w+)>\s*=\s*\Z")
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
    "f8E4M3FN": 1,
    "f8E5M2": 1,
    **{f"{sign}i{bits}": bits // 8 for sign in ("", "s", "u") for bits in (8, 16, 32, 64)},
}

# Device code and LLVM functions hold their own constants, which MLIR translates.
_CODE = ("gpu.module", "llvm.func", "llvm.mlir.global")

_TABLES: WeakKeyDictionary[ir.Context, Constants] = WeakKeyDictionary()


def constants_of(context: ir.Context) -> Constants:
    """The large constants of all modules of a context."""
    table = _TABLES.get(context)
    if table is None:
        table = _TABLES[context] = Constants()
    return table


def resource(data: np.ndarray, type_: ir.Type) -> ir.Attribute:
    """The attribute of a large constant, whose bytes are not copied.

    MLIR makes each name unique: a caller that needs one often keeps the attribute, for CSE.
    """
    digest = constants_of(type_.context).add(data.data.cast("B"))
    with type_.context:
        return ir.Attribute.parse(f"dense_resource<nova_{digest}> : {type_}")


def is_resource(attr: Any) -> bool:
    """Whether the values of an attribute are outside of it, as those of large constants are."""
    return type(attr) is ir.Attribute and str(attr).startswith("dense_resource<")


def resource_digest(attr: ir.Attribute) -> str | None:
    """The digest of a constant from `resource` or the parser; None for other attributes."""
    # The bindings have no class for these attributes, and the text of others may be long.
    if type(attr) is not ir.Attribute or (match := _NAME.match(str(attr))) is None:
        return None
    return match[1] if match[1] in constants_of(attr.context) else None


def resource_bytes(attr: ir.Attribute) -> memoryview | None:
    """The bytes of such a constant; None for other attributes."""
    digest = resource_digest(attr)
    return None if digest is None else constants_of(attr.context)[digest]


def whole_text(text: str, context: ir.Context) -> str:
    """The text of a module with the values of its large constants."""
    return expand_text(text, constants_of(context).digits)


def retyped(attr: ir.Attribute, type_: ir.Type) -> ir.Attribute:
    """A constant with another type of the same byte layout."""
    data = resource_bytes(attr)
    if data is not None:
        return resource(np.frombuffer(data, np.uint8), type_)
    text = str(attr)
    return ir.Attribute.parse(f"{text[: text.rindex(' : ')]} : {type_}")


# --- texts ----------------------------------------------------------------------------------------


def take_constants(text: str, constants: Constants) -> str:
    """Move the values of large constants from the text of a module into the table."""
    if len(text) < 2 * LEAST or any(sign in text for sign in _CODE):
        return text
    cuts = sorted([*_inline_cuts(text, constants), *_blob_cuts(text, constants)])
    if not cuts:
        return text
    pieces, end = [], 0
    for low, high, new in cuts:
        pieces += [text[end:low], new]
        end = high
    return "".join([*pieces, text[end:]])


_Cut = tuple[int, int, str]


def _inline_cuts(text: str, constants: Constants) -> Iterator[_Cut]:
    # The values first: a pattern that begins with the op would be tried at each of their digits.
    for match in _VALUES.finditer(text):
        before = text[max(0, match.start() - _MOST_BEFORE) : match.start()]
        type_ = _TYPE_BEFORE.search(before)
        if type_ is None and _OP.search(before) is not None:
            type_ = _TYPE_AFTER.match(text, match.end())
        if type_ is None or len(match[1]) % 2:
            continue
        data = bytes.fromhex(match[1])
        if len(data) == _size(type_[1], type_[2]):
            yield *match.span(), f"dense_resource<nova_{constants.add(data)}>"


def _blob_cuts(text: str, constants: Constants) -> Iterator[_Cut]:
    """The resource values after a module, and the names by which ops refer to them."""
    start = text.rfind("{-#")
    matches = list(_BLOB.finditer(text, start)) if start >= 0 else []
    if not matches:
        return
    used: dict[str, list[re.Match[str]]] = {}
    for match in _USE.finditer(text, 0, start):
        used.setdefault(match[1], []).append(match)
    for blob in matches:
        uses = used.get(blob[1], [])
        size = len(blob[4]) // 2
        if len(blob[4]) % 2 or any(_size(use[2], use[3]) != size for use in uses):
            continue
        data = bytes.fromhex(blob[4])
        name_match = _OWN_NAME.fullmatch(blob[1])
        if name_match is not None and digest_of(data) == name_match[1]:
            constants.add(data, name_match[1])
        elif uses:
            digest = constants.add(data)
            for use in uses:
                yield *use.span(1), f"nova_{digest}"
        else:
            continue
        # An empty resource with its old name, without references.
        yield *blob.span(4), ""


def _size(shape: str, element: str) -> int | None:
    """The size of a tensor's values in bytes; None for dtypes with another encoding."""
    width = _WIDTHS.get(element)
    if width is None or not shape:
        return None
    return width * prod(int(extent) for extent in shape.split("x"))
