"""The import report of a torch program: an exported graph of ATen ops.

In: a `torch.export.ExportedProgram` after Nova's decompositions. Out: an `ImportReport`. Every node
is tried alone, on placeholders of the types of its operands. An op without a row falls back to
torch in `torch.compile(backend="nova")`; `nova.from_torch` refuses it.
"""

from __future__ import annotations

import operator
from typing import Any

from nova.frontends.report.table import (
    FALLBACK,
    SUPPORTED,
    ImportReport,
    Survey,
    one_line,
    tensors_in,
)
from nova.frontends.torch.importer import COPY_INTO, REFUSALS, run_alone
from nova.frontends.torch.source import location_of, op_name


def report_torch(exported: Any, name: str) -> ImportReport:
    """What the importer does with every node of an exported program."""
    survey = Survey()
    for node in exported.graph.nodes:
        if node.op != "call_function" or node.target in (operator.getitem, COPY_INTO):
            continue
        op, location = op_name(node.target), str(location_of(node))
        try:
            result = run_alone(node)
        except REFUSALS as error:
            survey.add(op, FALLBACK, location=location, reason=one_line(error))
            continue
        ops = survey.new_ops(tensors_in(result))
        survey.add(op, SUPPORTED, location=location, replaced_by=ops)
    return ImportReport(name, "torch", survey.rows())
