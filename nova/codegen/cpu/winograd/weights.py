"""The weights of Winograd convolutions, G g G^T, in the panels that the microkernel reads.

The layout: for each block of output channels the matrices follow each other, each cut into blocks
of input channels, and these into micropanels `[input channel][output channel]`.
"""

from __future__ import annotations

import numpy as np

from nova.codegen.cpu.winograd.matrices import TAPS, matrices
from nova.codegen.cpu.winograd.plan import WinogradPlan


def transform_array(flat: np.ndarray, plan: WinogradPlan) -> np.ndarray:
    """The transformed weights of a constant, whose elements are (output, input, y, x)."""
    taps = flat.astype(np.float64).reshape(plan.outputs, plan.channels, TAPS, TAPS)
    factors = np.array(matrices(plan.size).weights, dtype=np.float64)
    products = np.einsum("pi,ocij,qj->pqoc", factors, taps, factors, optimize=True)
    blocks = plan.outputs // plan.block_outputs, plan.block_outputs // plan.mr, plan.mr
    parts = plan.channels // plan.depth, plan.depth
    panels = products.reshape(plan.matrices, *blocks, *parts).transpose(1, 0, 4, 2, 5, 3)
    return np.ascontiguousarray(panels).astype(flat.dtype).reshape(-1)
