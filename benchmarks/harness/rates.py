"""How near a call comes to what the machine can do: the work of a call and the measured peaks.

A workload's `work(**size)` gives the `Work`; `run.py` asks a worker once a run for the peaks, from
the loops that `nova.trace` compares with, and puts `floor_seconds` into each table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """The least that a call has to do: operations, and bytes between memory and the cores.

    Bytes are left out where the data stays in caches, or where arithmetic takes far longer.
    """

    flop: float = 0
    byte: float = 0

    def floor_seconds(self, peaks: dict[str, float], threads: int) -> float | None:
        """The time at the peak that bounds it; None where that many cores were not measured."""
        if threads == 1:
            flops, moved = peaks["core_flops"], peaks["core_bytes"]
        elif threads == peaks["cores"]:
            flops, moved = peaks["flops"], peaks["bytes"]
        else:
            return None
        return max(self.flop / flops, self.byte / moved)

    def describe(self, seconds: float) -> str:
        """The rate of a call that took `seconds`, in the unit of what bounds it."""
        if self.flop:
            return f"{self.flop / seconds * 1e-9:.3g} GFLOP/s"
        return f"{self.byte / seconds * 1e-9:.3g} GB/s"


def matmul_work(*shapes: tuple[int, int, int], times: int = 1) -> Work:
    """The work of matmuls (m, k, n), each done `times` times."""
    return Work(flop=2.0 * times * sum(m * k * n for m, k, n in shapes))


def read_peaks() -> dict[str, Any]:
    """Operations and bytes per second of one core and of all; measured once per run."""
    from nova.tracing.peaks import measured_peaks

    return asdict(measured_peaks())
