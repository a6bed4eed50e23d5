"""A figure that Nova has to meet; `bars.py` lists them, `harness.verdicts` judges them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BEST_PEER = "the best peer"
"""In the place of a contender: the fastest of the table, in that run, that is not Nova."""

MEASURES = ("seconds", "difference", "share", "speed")


@dataclass(frozen=True)
class Bar:
    """A limit for the median of a contender; `phase` for workloads with phases.

    `measure` is "seconds", or compares with another contender of the same table (`peer`): the
    "difference" in seconds, the "share" of its time, or the "speed", its time over that of the
    contender. A speed has to be at least the limit, the others at most. `size` and `threads` pick a
    table of a workload that has several.
    """

    text: str
    workload: str
    contender: str
    limit: float
    measure: str = "seconds"
    peer: str = ""
    phase: str = ""
    size: str = ""
    threads: int = 0

    def __post_init__(self) -> None:
        assert self.measure in MEASURES, f"{self.measure}: not one of {', '.join(MEASURES)}"
        assert (self.measure == "seconds") == (not self.peer), f"{self.text}: which peer?"

    def is_about(self, table: dict[str, Any]) -> bool:
        return (
            table["workload"] == self.workload
            and self.size in ("", table["size"])
            and self.threads in (0, table.get("threads", 0))
        )
