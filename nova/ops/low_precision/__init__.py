"""Products of narrow operands with wide results, and numbers as integers or 8-bit floats.

`matmul.py` has the matmuls, `quantization.py` the affine quantization of tensors, per tensor or
per axis, and 4-bit integers packed in bytes. docs/low-precision.md describes them.
"""

from nova.ops.low_precision import matmul, quantization

FAMILIES = (matmul, quantization)


def register_rows() -> None:
    for family in FAMILIES:
        family.register_rows()
