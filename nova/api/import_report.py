"""`nova.import_report`: what Nova does with every op of a model of another framework.

In: an ONNX model, MLIR, a torch module or exported program, or a function of jax. Out: an
`ImportReport`. The model is imported and not compiled. Called by `nova import-report`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from nova.api.translate.request import argument_shapes
from nova.core.user_facing import user_facing
from nova.errors import ArgumentTypeError, OptionTypeError
from nova.frontends.report.table import ImportReport
from nova.frontends.source import read_source

__all__ = ["ImportReport", "import_report"]


@user_facing
def import_report(
    model: Any,
    *args: Any,
    shapes: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    entry: str = "main",
) -> ImportReport:
    """What an import does with every op of a model: its replacement, or why it is not supported.

    `model` is the path of an `.onnx`, `.pt2` or MLIR file, MLIR text or bytecode, an
    `onnx.ModelProto`, a `torch.nn.Module`, a `torch.export.ExportedProgram`, or a function of jax.
    `args` are example arguments: a module and a function need them, an MLIR program with `?` sizes
    takes their shapes. `shapes` and `values` are those of `nova.from_onnx`, `entry` is that of
    `nova.translate`. See docs/importing.md.
    """
    _check_options(shapes, values, entry)
    package = type(model).__module__.partition(".")[0]
    if _is_onnx(model, package):
        from nova.frontends.onnx.read import read_model
        from nova.frontends.report.onnx_model import report_onnx

        return report_onnx(read_model(model), shapes, values)
    if _is_torch(model, package):
        return _report_torch(model, args)
    if callable(model):
        return _report_jax(model, args)
    if not isinstance(model, str | bytes | os.PathLike):
        raise ArgumentTypeError(
            f"a {type(model).__name__} is not a model that Nova imports",
            hint="pass a path, MLIR text, an ONNX model, a torch module or a function of jax",
        )
    from nova.frontends.report.mlir_module import report_mlir

    sizes = argument_shapes(args) if args else None
    return report_mlir(read_source(model), entry, shapes=sizes)


def _check_options(shapes: Any, values: Any, entry: Any) -> None:
    names = "None or a dict with names of inputs"
    for option, value, types, description in (
        ("shapes", shapes, (Mapping, NoneType), f"{names} or axes, and their sizes"),
        ("values", values, (Mapping, NoneType), f"{names} and their values"),
        ("entry", entry, (str,), "the name of the function to start from"),
    ):
        if not isinstance(value, types):
            raise OptionTypeError(
                f"import_report(): {option} is {value!r}, of type {type(value).__name__}",
                hint=f"it takes {description}",
            )


def _is_onnx(model: Any, package: str) -> bool:
    if isinstance(model, str | os.PathLike) and "\n" not in os.fspath(model):
        return Path(model).suffix == ".onnx"
    return package == "onnx"


def _is_torch(model: Any, package: str) -> bool:
    if isinstance(model, str | os.PathLike) and "\n" not in os.fspath(model):
        return Path(model).suffix == ".pt2"
    names = {f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__}
    return bool(names & {"torch.nn.modules.module.Module"}) or (
        package == "torch" and type(model).__name__ == "ExportedProgram"
    )


def _report_torch(model: Any, args: tuple[Any, ...]) -> ImportReport:
    from nova.api.from_torch import decomposed, exported_module, load_exported

    name = type(model).__name__
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        exported = load_exported(name)
    elif name == "ExportedProgram":
        exported = decomposed(model)
    else:
        exported = exported_module(model, args)
    from nova.frontends.report.torch_graph import report_torch  # needs torch

    return report_torch(exported, name)


def _report_jax(function: Any, args: tuple[Any, ...]) -> ImportReport:
    from nova.api.from_jax import exported_function
    from nova.frontends.report.mlir_module import report_mlir

    exported = exported_function(function, args, {})
    report = report_mlir(read_source(exported.mlir_module()))
    return replace(report, model=exported.fun_name)
