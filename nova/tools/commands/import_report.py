"""nova import-report: show what an import does with every op of a model.

In: an .onnx, .pt2 or MLIR file. Out: ops by outcome, with counts, replacements, reasons and
locations, as text or JSON. The exit status is 1 if Nova does not compile all of the model.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from nova.api.import_report import ImportReport, import_report
from nova.errors import PipelineError
from nova.tools.report import Table, print_json, print_tables
from nova.tools.sizes import add_shape_argument, named_shapes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova import-report`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="an .onnx file, a .pt2 file of torch.export.save, or MLIR")
    add_shape_argument(parser)
    add("--entry", default="main", metavar="NAME", help="the function to start from (main)")
    add("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Show the report."""
    if Path(args.model).suffix == ".onnx":
        if any(not sizes.name for sizes in args.shape or []):
            raise PipelineError("--shape of an ONNX model has a name, such as --shape x=8x128")
        report = import_report(args.model, shapes=named_shapes(args.shape))
    else:
        report = import_report(Path(args.model), *(args.shape or []), entry=args.entry)
    if args.json:
        print_json({**dataclasses.asdict(report), "is_supported": report.is_supported})
    else:
        print_tables(make_tables(report))
    return 0 if report.is_supported else 1


def make_tables(report: ImportReport) -> list[Table]:
    """The report as tables: the counts, what is not supported and why, and what is."""
    summary: list[tuple[str, str]] = [("format", report.format), ("ops", report.summary())]
    summary += [("note", note) for note in report.notes]
    if report.error is not None:
        summary.append(("import", f"fails: {report.error}"))
    refused = [
        (r.op, r.count, r.outcome, r.reason, ", ".join(r.locations))
        for r in report.rows
        if r.reason
    ]
    accepted = [
        (r.op, r.count, r.outcome, ", ".join(r.replaced_by)) for r in report.rows if not r.reason
    ]
    return [
        Table(report.model, (), summary),
        Table("not imported", ("op", "count", "outcome", "reason", "where"), refused),
        Table("imported", ("op", "count", "outcome", "replaced by"), accepted),
    ]
