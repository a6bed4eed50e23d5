"""Complex numbers: a complex tensor is a pair of real tensors from the moment it is built.

`rows.py` has the ops that form and read pairs: `complex`, `real` and `imag`, and `from_parts` and
`as_parts`, which see the memory of a complex tensor as a real one. An op of another
row on complex operands builds real ops on their parts, by the rule of that row in `rules.py`; a row
without a rule refuses complex operands. So gradients, passes and code for every target are those of
real ops, and a gradient is d/d(real) + i d/d(imag), torch's convention.

A complex type remains only on arguments and results of a program. In memory it is numpy's layout,
the parts interleaved: to compiled code a complex64 of shape S is an f32 of shape S + (2,).
"""

from nova.ops.complex import fourier, functions, real_fourier, rows


def register_rows() -> None:
    rows.register_rows()
    functions.register_rows()
    fourier.register_rows()
    real_fourier.register_rows()
