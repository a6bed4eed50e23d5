"""The 8-bit floats of MLIR and their formats: E4M3FN and E5M2.

`expand-f8` reads the formats; the schedules name the types as MLIR prints them.
"""

from __future__ import annotations

from typing import Any

from nova.core.records import record
from nova.ir.bindings import ir


@record
class F8Format:
    """Bits of the fraction, bias of the exponent, and the codes of special values.

    `first_special` is the first code that is not a finite number, `overflow_bits` are those of the
    least f32 that rounds beyond the largest, `ptx` is the name of the type in PTX.
    """

    fraction: int
    bias: int
    nan: int
    infinity: int | None
    first_special: int
    overflow_bits: int
    ptx: str


# 448 is the largest E4M3FN, and a tie at 464 rounds to it; in E5M2 a tie at 61440 is infinite.
FORMATS = {
    "f8E4M3FN": F8Format(3, 7, 0x7F, None, 0x7F, 0x43E80001, "e4m3"),
    "f8E5M2": F8Format(2, 15, 0x7F, 0x7C, 0x7C, 0x47700000, "e5m2"),
}
F8_TYPES = ir.Float8E4M3FNType | ir.Float8E5M2Type
NARROW_TYPES = ir.F16Type | ir.BF16Type | F8_TYPES
"""Floats that are stored narrow and computed in f32."""


def f8_format(type_: Any) -> F8Format | None:
    """The format of an 8-bit float, or of a vector of them; None for another type."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return FORMATS[str(element)] if isinstance(element, F8_TYPES) else None
