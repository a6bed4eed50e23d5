"""The discrete Fourier transform along the last axis, on pairs of parts.

In: a pair (real part, imaginary part or None) of tensors. Out: the pair of the transform, by the
rows `dft` and `rdft` (nova/ops/complex/fourier.py). Called by `functions.py` and by ONNX rows.
"""

from __future__ import annotations

from typing import Any

from nova.ops import F
from nova.ops.complex.parts import Pair


def joined(x: Pair) -> Any:
    """A pair as one tensor, with a last axis of two."""
    return F.stack([x[0], F.zeros_like(x[0]) if x[1] is None else x[1]], axis=-1)


def transform(x: Pair, sign: int, scale: float = 1.0) -> Pair:
    """scale * sum over j of x[j] * exp(sign * 2 pi i j k / n), along the last axis of size n."""
    terms = F.dft(joined(x), sign=sign, scale=scale)
    return terms[..., 0], terms[..., 1]


def transform_real(x: Any) -> Pair:
    """The first n // 2 + 1 terms of the forward transform of a real tensor."""
    terms = F.rdft(x)
    return terms[..., 0], terms[..., 1]
