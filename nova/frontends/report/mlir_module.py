"""The import report of an MLIR program: StableHLO, TOSA or linalg.

In: a `Source`. Out: an `ImportReport`. Each op of the program becomes a program of its own, whose
arguments are the op's operands and the values that its regions capture, and is imported alone: one
unsupported op does not hide the next. Ops of the same form are tried once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from nova.errors import NovaError
from nova.frontends.checks import all_ops, find_frontend, place
from nova.frontends.entry import take_entry
from nova.frontends.import_mlir import import_program
from nova.frontends.launches import has_launches
from nova.frontends.report.table import SUPPORTED, UNSUPPORTED, ImportReport, Survey, one_line
from nova.frontends.resources import inline_resources
from nova.frontends.source import Source, parse_source
from nova.frontends.specialize import ArgumentShape
from nova.ir.bindings import ir

# Ops that are part of every lowered program, and say nothing about the op that it came from.
_FRAME = {"func.func", "func.return", "linalg.yield", "linalg.index", "tensor.empty"}
# The ops of a callee are surveyed where it is defined.
_SKIPPED = {"func.func", "func.return", "func.call"}
# A larger constant operand becomes an argument.
_MOST_COPIED = 1 << 12


def report_mlir(
    source: Source,
    entry: str = "main",
    params: Collection[str] = (),
    shapes: Sequence[ArgumentShape] | None = None,
) -> ImportReport:
    """What the importer does with every op of a program."""
    frontend, error = "mlir", None
    survey = Survey()
    try:
        module = parse_source(source)
        if has_launches(module):
            return ImportReport(source.name, "gpu", (), ("launches of device code",), None)
        frontend = find_frontend(module, source.name)
        _survey_ops(_specialized(module, source, entry, shapes), source.name, survey)
        import_program(source, entry, params, shapes)
    except NovaError as reason:
        error = one_line(reason)
    return ImportReport(source.name, frontend, survey.rows(), (), error)


def _specialized(
    module: ir.Module, source: Source, entry: str, shapes: Sequence[ArgumentShape] | None
) -> ir.Module:
    """The module with the sizes of `shapes`; as it is if its signature is not supported."""
    try:
        take_entry(module, entry, source.name, (), shapes)
        inline_resources(module, source.name)
    except NovaError:  # the import of the whole program reports it
        return parse_source(source)
    return module


def _survey_ops(module: ir.Module, filename: str, survey: Survey) -> None:
    outcomes: dict[str, tuple[tuple[str, ...], str]] = {}
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for view in block.operations:
                    op = view.operation
                    if op.name in _SKIPPED:
                        continue
                    text = isolated(module, op)
                    if text not in outcomes:
                        outcomes[text] = _outcome(text)
                    replaced_by, reason = outcomes[text]
                    survey.add(
                        op.name,
                        UNSUPPORTED if reason else SUPPORTED,
                        location=place(op, filename),
                        replaced_by=replaced_by,
                        reason=reason,
                    )


def _outcome(text: str) -> tuple[tuple[str, ...], str]:
    """The ops that a program of one op becomes, and why it is not imported."""
    try:
        imported = import_program(Source("op", text.encode()))
    except NovaError as error:
        return (), one_line(error)
    names = [op.name for op in all_ops(imported.module)]
    return tuple(dict.fromkeys(n for n in names if n not in _FRAME)), ""


def isolated(module: ir.Module, op: Any) -> str:
    """The text of a program whose only op is `op`, with its small constant operands."""
    captured = _captured(op)
    with module.context, ir.Location.unknown():
        program = ir.Module.create()
        with ir.InsertionPoint(program.body):
            if any(_names_function(nested) for nested in _with_nested(op)):
                _copy_callees(module, op)
            copied = [v for v in captured if _is_small_constant(v)]
            arguments = [v for v in captured if v not in copied]
            types = [v.type for v in arguments], [r.type for r in op.results]
            function = ir.Operation.create(
                "func.func",
                regions=1,
                attributes={
                    "sym_name": ir.StringAttr.get("main"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get(*types)),
                },
            )
        block = function.regions[0].blocks.append(*types[0])
        with ir.InsertionPoint(block):
            inner = [v.owner.clone().results[0] for v in copied]
            clone = op.clone()
            ir.Operation.create("func.return", operands=list(clone.operation.results))
        replacements = [*zip(copied, inner, strict=True)]
        replacements += zip(arguments, block.arguments, strict=True)
        for nested in _with_nested(clone.operation):
            for old, new in replacements:
                nested.replace_uses_of_with(old, new)
        return str(program)


def _captured(op: Any) -> list[Any]:
    """The values that an op and its regions use and that are defined outside of it."""
    inside: list[Any] = []
    used: list[Any] = []
    for nested in _with_nested(op):
        used += nested.operands
        inside += nested.results
        inside += [a for region in nested.regions for block in region for a in block.arguments]
    defined = set(inside)
    return list(dict.fromkeys(v for v in used if v not in defined))


def _with_nested(op: Any) -> list[Any]:
    nested = [op]
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                nested += _with_nested(inner.operation)
    return nested


def _is_small_constant(value: Any) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operands or owner.regions or len(owner.results) > 1:
        return False
    return len(str(owner)) <= _MOST_COPIED


def _names_function(op: Any) -> bool:
    if op.name == "stablehlo.constant":  # the bindings cannot read complex values
        return False
    return any("@" in str(op.attributes[name]) for name in op.attributes)


def _copy_callees(module: ir.Module, op: Any) -> None:
    """Copy the functions that an op may refer to: all but the one that it is in."""
    for function in module.body.operations:
        if function.operation != op.parent:
            function.operation.clone()
