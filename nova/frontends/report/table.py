"""The rows of an import report: ops by name and outcome, with counts, replacements and reasons.

Called by the surveys of this folder, one per model format; `nova.api.import_report` and the command
`nova import-report` show the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nova.graph.order import topological
from nova.graph.tensor import Tensor

# Outcomes, in the order of a report.
UNSUPPORTED = "unsupported"
FALLBACK = "falls back"
UNCHECKED = "not checked"
SUPPORTED = "supported"
EXPANDED = "expanded"
CONSTANT = "constant"
OUTCOMES = (UNSUPPORTED, FALLBACK, UNCHECKED, SUPPORTED, EXPANDED, CONSTANT)
_MOST_LOCATIONS = 8


@dataclass
class OpRow:
    """Ops of one name with one outcome.

    count        how many of them the model has.
    replaced_by  what they become: ops of Nova, or of linalg for an MLIR program.
    reason       why they are unsupported, fall back or are not checked.
    locations    the first few nodes or lines.
    """

    op: str
    outcome: str
    count: int = 0
    replaced_by: tuple[str, ...] = ()
    reason: str = ""
    locations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ImportReport:
    """The outcome of an import, op by op.

    model    the name of the file or module.
    format   `onnx`, `torch`, or the dialect of an MLIR program.
    rows     ops by outcome: what is unsupported comes first.
    notes    what the survey assumed, such as sizes of dynamic axes.
    error    why the program as a whole cannot be imported; None if it can.
    """

    model: str
    format: str
    rows: tuple[OpRow, ...]
    notes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def is_supported(self) -> bool:
        """Whether Nova compiles all of the model."""
        return self.error is None and all(
            row.outcome in (SUPPORTED, EXPANDED, CONSTANT) for row in self.rows
        )

    def counts(self) -> dict[str, int]:
        """The number of ops of each outcome."""
        totals = dict.fromkeys(OUTCOMES, 0)
        for row in self.rows:
            totals[row.outcome] += row.count
        return {outcome: total for outcome, total in totals.items() if total}

    def __str__(self) -> str:
        lines = [f"{self.model} ({self.format}): {self.summary()}"]
        lines += [f"  note: {note}" for note in self.notes]
        if self.error is not None:
            lines.append(f"  the import fails: {self.error}")
        for row in self.rows:
            made = f" -> {', '.join(row.replaced_by)}" if row.replaced_by else ""
            lines.append(f"  {row.outcome}: {row.op} x{row.count}{made}")
            if row.reason:
                lines.append(f"    {row.reason}")
                lines.append(f"    at {', '.join(row.locations)}")
        return "\n".join(lines)

    def summary(self) -> str:
        """The counts in one line."""
        counts = ", ".join(f"{total} {outcome}" for outcome, total in self.counts().items())
        return counts or "no ops"


class Survey:
    """Collects the rows of a report."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], OpRow] = {}
        self._reported: set[int] = set()
        # The identity of a tensor is its address: it must not be reused.
        self._tensors: list[Tensor] = []

    def add(
        self,
        op: str,
        outcome: str,
        *,
        location: str,
        replaced_by: Iterable[str] = (),
        reason: str = "",
        count: int = 1,
    ) -> None:
        """Count one op, or `count` of the same form."""
        row = self._rows.setdefault((op, outcome, reason), OpRow(op, outcome, reason=reason))
        row.count += count
        row.replaced_by = tuple(dict.fromkeys((*row.replaced_by, *replaced_by)))
        if len(row.locations) < _MOST_LOCATIONS and location not in row.locations:
            row.locations.append(location)

    def new_ops(self, results: Sequence[Tensor]) -> list[str]:
        """The names of the ops that these results need and that no call before has returned."""
        created = [t for t in topological(results) if id(t) not in self._reported]
        self._tensors += created
        self._reported.update(map(id, created))
        return list(dict.fromkeys(t.op.name for t in created if t.op is not None))

    def rows(self) -> tuple[OpRow, ...]:
        """The rows by outcome, the most frequent ones first."""
        order = {outcome: i for i, outcome in enumerate(OUTCOMES)}
        return tuple(
            sorted(self._rows.values(), key=lambda r: (order[r.outcome], -r.count, r.op, r.reason))
        )


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a result: a tensor, or lists of them."""
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item)]
    return [value] if isinstance(value, Tensor) else []


def one_line(error: BaseException) -> str:
    """The message of an error without its location."""
    text = getattr(error, "what", None) or str(error) or type(error).__name__
    hint = getattr(error, "hint", None)
    return " ".join(f"{text}{f' ({hint})' if hint else ''}".split())
