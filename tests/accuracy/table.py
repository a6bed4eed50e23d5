"""The table of docs/math-accuracy.md that `sweep.py` measured.

    python tests/accuracy/table.py            # writes the page

In: docs/math-accuracy.json. Out: the page, with the lines between two markers replaced. Called by
`test_sweep.py`, too, which refuses a page that says otherwise than the measurements.
"""

from __future__ import annotations

import json
import sys

from sweep import FUNCTIONS, PATTERNS, RESULTS, Report

PAGE = RESULTS.with_suffix(".md")
BEGIN = "<!-- Written by tests/accuracy/table.py from math-accuracy.json. -->\n"
END = "<!-- End of the written table. -->\n"


def reports() -> dict[str, dict[str, Report]]:
    """What was measured, by target and function."""
    targets = json.loads(RESULTS.read_text())["f32"]
    return {t: {f: Report(**row) for f, row in rows.items()} for t, rows in targets.items()}


def render() -> str:
    lines = ["| function | target | patterns | error in ulp | worst at | wrong special values |"]
    lines.append("|---|---|---|---|---|---|")
    for target, rows in reports().items():
        for name in FUNCTIONS:
            if (report := rows.get(name)) is not None:
                count = "all 2**32" if report.patterns == PATTERNS else f"{report.patterns:,}"
                at = float.fromhex(report.at)
                cells = (name, target, count, f"{report.ulp:.2f}", f"{at:.9g}", str(report.wrong))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written_page() -> str:
    """The page as it should be."""
    before, remaining = PAGE.read_text().split(BEGIN)
    after = remaining.split(END)[1]
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written_page())
    sys.exit(0)
