"""Inlines constants whose values are at the end of a program's text.

In: a module with `dense_resource<name>` constants, as torch-mlir writes weights. Out: the same
module with plain dense constants, which all passes and MLIR's Python bindings can read. The parser
has already taken large constants out of the text (`nova/ir/resources.py`). Called by
`nova.frontends.import_mlir`.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np

from nova.errors import ImportedProgramError
from nova.frontends.checks import all_ops, explain_type, place
from nova.ir.bindings import ir
from nova.ir.resources import is_resource, resource_bytes
from nova.ir.types import memory_dtype
from nova.passes.importing.complex_rules import is_complex

_USE = re.compile(r"dense_resource<(.*)> : ", re.DOTALL)
_BLOB = re.compile(r'^ *("(?:[^"\\]|\\.)*"|[^\s":]+): "0x([0-9A-Fa-f]*)"', re.MULTILINE)
_ALIGNMENT_BYTES = 4  # the alignment field before the values


def inline_resources(module: ir.Module, filename: str) -> None:
    """Replace every `dense_resource` by its values; ImportedProgramError if they are missing."""
    values: dict[str, bytes] | None = None
    for op in all_ops(module):
        if any(is_complex(result.type) for result in op.results):
            continue  # the bindings cannot read attributes of complex numbers
        for name in list(op.attributes):
            attr = op.attributes[name]
            # The bindings have no class for them.
            if not is_resource(attr) or resource_bytes(attr) is not None:
                continue
            if values is None:
                values = _read_blobs(str(module))
            try:
                op.attributes[name] = _plain(attr, values)
            except ValueError as error:
                raise ImportedProgramError(
                    f"{op.name}: {error}", where=place(op, filename)
                ) from None


def _read_blobs(text: str) -> dict[str, bytes]:
    """The resources that MLIR prints after a module, by their printed names."""
    end = text.rpartition("\n{-#")[2]
    return {name: bytes.fromhex(digits) for name, digits in _BLOB.findall(end)}


def _plain(attr: ir.Attribute, values: dict[str, bytes]) -> ir.Attribute:
    type_ = attr.type
    wrong = explain_type(type_)
    if wrong is not None:
        raise ValueError(wrong[0])
    used = _USE.match(str(attr))
    name = used[1] if used else str(attr)
    if name not in values:
        raise ValueError(f"the values of the resource {name} are not in the program")
    data = values[name][_ALIGNMENT_BYTES:]
    dtype, shape = memory_dtype(type_.element_type), list(type_.shape)
    if len(data) != prod(shape) * dtype.itemsize:
        raise ValueError(f"the resource {name} has {len(data)} bytes, which is not {type_}")
    raw = np.frombuffer(data, f"u{dtype.itemsize}")
    if isinstance(type_.element_type, ir.IntegerType) and type_.element_type.width == 1:
        raw = raw.astype(bool)
    with attr.context:
        return ir.DenseElementsAttr.get(raw, type=type_.element_type, shape=shape)
