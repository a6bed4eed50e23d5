"""Peak rates of GPUs, by the names of their makers: what a kernel could reach at best.

In: the model of a device. Out: a `DevicePeak`, or None for an unknown model and for the simulator.
The rates are those of the data sheets: dense 16-bit matmuls on tensor cores with f32 sums, and
memory bandwidth. The summary of a trace shows the share of them that each kernel reached.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DevicePeak:
    """Floating-point operations and bytes per second."""

    flops: float
    bytes: float


# Part of the model name, the more specific ones first.
_PEAKS: tuple[tuple[str, DevicePeak], ...] = (
    ("B200", DevicePeak(2250e12, 8.0e12)),
    ("H200", DevicePeak(989e12, 4.8e12)),
    ("H100 PCIe", DevicePeak(756e12, 2.0e12)),
    ("H100 NVL", DevicePeak(835e12, 3.9e12)),
    ("H100", DevicePeak(989e12, 3.35e12)),
    ("A100-SXM4-80GB", DevicePeak(312e12, 2.04e12)),
    ("A100", DevicePeak(312e12, 1.55e12)),
    ("L40S", DevicePeak(362e12, 0.86e12)),
    ("L4", DevicePeak(121e12, 0.3e12)),
    ("A10", DevicePeak(125e12, 0.6e12)),
)


def find_peak(model: str) -> DevicePeak | None:
    """The peak of a device such as "NVIDIA H200"."""
    return next((peak for name, peak in _PEAKS if name in model), None)
