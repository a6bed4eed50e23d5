"""Programs of other compilers: from MLIR in any of four dialects to the stages of Nova.

In: MLIR text or bytecode in the nova dialect, StableHLO, TOSA or linalg on tensors, or launches of
device code on memrefs. Out: a module at the stage `nova`, `linalg` or `outlined`, checked, with its
signature. Called by `nova.api.translate`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from nova.compiler.recorder import module_text
from nova.compiler.signature import ProgramSignature, keep_signature, read_signature
from nova.errors import (
    LoweringError,
    NovaError,
    PassError,
    SymbolicImportError,
    UnsupportedOpError,
)
from nova.frontends.checks import (
    at_file,
    check_lowered,
    check_ops,
    check_quantized,
    find_frontend,
)
from nova.frontends.entry import take_entry
from nova.frontends.launches import has_launches, import_launches
from nova.frontends.resources import inline_resources
from nova.frontends.source import Source, parse_source
from nova.frontends.specialize import ArgumentShape
from nova.frontends.symbolic.compare_lowered import compare_lowered
from nova.frontends.symbolic.importer import HINT, is_symbolic, table_of
from nova.ir.bindings import ir
from nova.ir.linalg.attribute_cache import attribute_cache
from nova.passes import pipelines
from nova.passes.base import Pass, UpstreamPass, run_pipeline, run_verified_once

# The passes from each of the dialects to linalg; those to the stage `linalg` are after them.
_LEGALIZATIONS: dict[str, Callable[[], list[Pass]]] = {
    "stablehlo": pipelines.legalize_stablehlo,
    "tosa": pipelines.legalize_tosa,
    "linalg": list,
}
# Quantized numbers become integers and scales, also those of arguments.
_QUANTIZED = UpstreamPass("func.func(stablehlo-legalize-quant-to-math)", signs=("!quant.",))
_ILLEGAL = re.compile(r"failed to legalize (?:unresolved )?operation '([\w.]+)'")


@dataclass(frozen=True)
class Imported:
    """An imported program: `module` is at `stage`; `text` is its original text."""

    module: ir.Module
    stage: str
    signature: ProgramSignature
    frontend: str
    text: str


def import_program(
    source: Source,
    entry: str = "main",
    params: Collection[str] = (),
    shapes: Sequence[ArgumentShape] | None = None,
) -> Imported:
    """Read, check and lower a program; its function `entry` becomes `main`.

    The arguments named in `params` become params and come after the others. With `shapes`, `?`
    sizes of the program become those of arguments of these shapes. Other `?` sizes are symbolic:
    the program is lowered twice, with other numbers that stand for the sizes, and compared.
    """
    with attribute_cache():
        imported = _import_once(source, entry, params, shapes, ())
        if imported.frontend in _LEGALIZATIONS and is_symbolic(imported.module):
            representatives = table_of(imported.module).representatives.values()
            other = _import_once(source, entry, params, shapes, tuple(representatives))
            compare_lowered(imported.module, other.module, source.name)
    return imported


def _import_once(
    source: Source,
    entry: str,
    params: Collection[str],
    shapes: Sequence[ArgumentShape] | None,
    avoided: Collection[int],
) -> Imported:
    module = parse_source(source)
    try:
        if has_launches(module):
            text = module_text(module)
            signature = import_launches(module, entry, source.name, params)
            _keep(module, signature)
            return Imported(module, "outlined", signature, "gpu", text)
        frontend = find_frontend(module, source.name)
        if frontend == "stablehlo":
            if "quant." in source.text:
                check_quantized(module, source.name)
            run_pipeline(module, [_QUANTIZED])
        signature = take_entry(module, entry, source.name, params, shapes, avoided)
        if "dense_resource" in source.text:
            inline_resources(module, source.name)
        check_ops(module, source.name)
        text = module_text(module)
        if frontend == "nova":
            run_pipeline(module, [UpstreamPass("inline,symbol-dce")])
            _keep(module, signature)
            return Imported(module, "nova", signature, frontend, text)
        legalize = [step for step in _LEGALIZATIONS[frontend]() if step.concerns_source(text)]
        lower = pipelines.import_linalg(is_clean=pipelines.leaves_clean(legalize))
        lower = [step for step in lower if step.concerns_source(text)]
        run_verified_once(module, [*legalize, *lower])
        if is_symbolic(module):
            # Numbers of affine maps in code become constants, which may stand for sizes.
            run_pipeline(module, [UpstreamPass("lower-affine", signs=("affine.",))])
        check_lowered(module, source.name)
        _keep(module, signature)
    except NovaError as error:
        explained = _explained(at_file(error, source.name))
        if is_symbolic(module) and not isinstance(explained, SymbolicImportError):
            what = f"the program cannot have symbolic sizes: {explained.what}"
            raise SymbolicImportError(what, where=explained.where, hint=HINT) from None
        raise explained from None
    return Imported(module, "linalg", signature, frontend, text)


def _keep(module: ir.Module, signature: ProgramSignature) -> None:
    with module.context, ir.Location.unknown():
        keep_signature(module, signature)
    assert read_signature(module) == signature


def _explained(error: NovaError) -> NovaError:
    """The MLIR error for an op that its conversions do not support, with the name of the op."""
    found = _ILLEGAL.search(error.what) if isinstance(error, PassError) else None
    if found is None and not isinstance(error, LoweringError):
        return error
    what = f"{found[1]} has no code in Nova in this form" if found else error.what
    return UnsupportedOpError(what, where=error.where, hint=error.hint)
