"""What a figure is that Nova has to meet; `bars.py` lists them, `harness.verdicts` judges them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BEST_PEER = "the best peer"
"""In the place of a contender: the fastest of the table, in that run, that is not Nova."""

KINDS = ("seconds", "difference", "share", "speed")


@dataclass(frozen=True)
class Bar:
    """A limit for the median of a contender; `phase` for workloads with phases.

    `kind` says of what: of its seconds, or beside another contender of the same table (`beside`) of
    the difference in seconds, the share of its time, or the speed, its time over the contender's
    own. Only a speed is to be at least the limit. `size` and `threads` pick a table of a workload
    that has several.
    """

    text: str
    workload: str
    contender: str
    limit: float
    kind: str = "seconds"
    beside: str = ""
    phase: str = ""
    size: str = ""
    threads: int = 0

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"{self.kind}: not one of {', '.join(KINDS)}"
        assert (self.kind == "seconds") == (not self.beside), f"{self.text}: beside whom?"

    def is_about(self, table: dict[str, Any]) -> bool:
        return (
            table["workload"] == self.workload
            and self.size in ("", table["size"])
            and self.threads in (0, table.get("threads", 0))
        )
