"""The cost estimate: the compiler cuts tasks by it, the runtime plans threads by it."""

from __future__ import annotations

import re
from pathlib import Path

from nova.artifact.tables import CORES, UNLINKED
from nova.codegen.common.cost_model import BYTES_PER_NS, OPERATIONS_PER_NS, estimate_ns

PREPARE = Path(__file__).parents[3] / "native" / "src" / "exec" / "program_graph.c"


def test_the_slower_of_computing_and_moving_counts():
    assert estimate_ns("vector", 2000, 80) == 1000
    assert estimate_ns("matrix", 64, 8000) == 1000


def test_the_runtime_has_the_same_speeds():
    result = re.search(
        r"OPERATIONS_PER_NS\[\] = \{(.*?)\};\s.*BYTES_PER_NS = (.*?);", PREPARE.read_text()
    )
    assert result is not None
    assert [float(v) for v in result[1].split(",")] == list(OPERATIONS_PER_NS.values())
    assert list(OPERATIONS_PER_NS) == [core for core in CORES if core not in UNLINKED]
    assert float(result[2]) == BYTES_PER_NS
