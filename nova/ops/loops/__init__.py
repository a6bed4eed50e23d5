"""Primitives that fold or order elements along axes: windows, scans, sorts.

Each file has rows with a type rule, a numpy reference, a gradient and a lowering; `nova.ops`
registers them. `nova/ops/functional/` has the functions of torch that are written with them.
"""

from nova.ops.loops import convolution, quantized, scans, scatters, slices, sorting, windows

FAMILIES = (windows, convolution, scans, sorting, scatters, slices, quantized)


def register_rows() -> None:
    for family in FAMILIES:
        family.register_rows()
