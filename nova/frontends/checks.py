"""Checks an imported program op by op, before any pass runs on it.

In: a parsed module, and its file name for messages. Out: its dialect, or an error at the line of
the first op that Nova cannot import. MLIR's own passes assert on some of these ops, which ends the
process, so this comes first. Called by `nova.frontends.import_mlir`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nova.errors import ImportedProgramError, LoweringError, NovaError, UnsupportedOpError
from nova.ir.bindings import ir
from nova.ir.context import in_file
from nova.ir.control_flow.functions import every_control, is_call, name_of
from nova.ir.diagnostics import Diagnostic, file_position
from nova.ir.dialect import SIZE
from nova.ir.linalg.generic import GenericOp
from nova.ir.mathlib import EXPANSIONS, ROUNDING
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import every_op
from nova.passes.importing.complex_rules import is_complex
from nova.passes.importing.drop_annotations import is_annotation
from nova.passes.importing.expand_approx_top_k import is_approx_top_k
from nova.passes.importing.expand_factorizations import is_factorization
from nova.passes.importing.split_complex import COMPLEX_OPS

# The source dialects of programs, and the dialects that may be used with each.
FRONTENDS = {
    "nova": ("nova",),
    "stablehlo": ("stablehlo", "chlo"),
    "tosa": ("tosa",),
    "linalg": ("linalg", "tensor", "arith", "math", "scf", "affine", "index"),
}
_EVERYWHERE = ("builtin", "func")
_OWNER = {dialect: name for name, group in FRONTENDS.items() for dialect in group}
# A program in one of these may also contain linalg and its related dialects.
_MIXES_WITH_LINALG = ("stablehlo", "tosa")
_MOST_ELEMENTS = 1 << 47
_INTEGERS = (1, 8, 16, 32, 64)
_FLOATS = (ir.F32Type, ir.F64Type, NARROW_TYPES)


def find_frontend(module: ir.Module, filename: str) -> str:
    """The source dialect of a program; ImportedProgramError if there are several."""
    first: dict[str, Any] = {}
    for op in all_ops(module):
        name = op.name
        if op.name == "tensor.empty" or name.partition(".")[0] in _EVERYWHERE:
            continue
        owner = _OWNER.get(name.partition(".")[0])
        if owner is None:
            raise UnsupportedOpError(
                f"{name} is of a dialect that Nova does not import",
                where=place(op, filename),
                hint=f"a program is in one of {', '.join(FRONTENDS)}"
                + _stage_hint(name.partition(".")[0]),
            )
        first.setdefault(owner, op)
    found = list(first)
    if len(found) > 1 and any(f in _MIXES_WITH_LINALG for f in found) and "linalg" in found:
        found.remove("linalg")
    if len(found) > 1:
        a, b = (first[name] for name in found[:2])
        raise ImportedProgramError(
            f"the program mixes {a.name}, of {found[0]}, with {b.name}, of {found[1]}",
            where=place(b, filename),
            hint="write it in one of the two",
        )
    return found[0] if found else "linalg"


def _stage_hint(dialect: str) -> str:
    if dialect in ("memref", "llvm", "bufferization", "vector", "cf"):
        return "; for the text of a later stage say so with start_from (--start-from)"
    return ""


def check_ops(module: ir.Module, filename: str) -> None:
    """Refuse types and ops that later passes cannot handle."""
    accepted: set[Any] = set()  # a program has few types, and thousands of values
    for op in all_ops(module):
        values = [*op.results, *op.operands]
        for region in op.regions:
            for block in region.blocks:
                values += block.arguments
        for type_ in {value.type for value in values} - accepted:
            wrong = explain_type(type_)
            if wrong is None and not is_complex(type_):
                accepted.add(type_)
            elif wrong is None and not _takes_complex(op):
                wrong = f"complex numbers ({type_})", "compute with real and imaginary parts"
            if wrong is not None:
                what, hint = wrong
                raise ImportedProgramError(
                    f"{op.name}: {what}", where=place(op, filename), hint=hint
                )
        if op.name in _REFUSED and not _has_lowering(op):
            raise UnsupportedOpError(
                f"{_described(op)}: {_REFUSED[op.name]}", where=place(op, filename)
            )


def check_quantized(module: ir.Module, filename: str) -> None:
    """Refuse quantized types of unsigned storage: upstream's conversion makes it signed."""
    for op in all_ops(module):
        types = [str(value.type) for value in (*op.results, *op.operands)]
        if op.name == "func.func":
            types.append(str(op.attributes["function_type"]))
        if any("!quant.uniform<u" in text for text in types):
            raise UnsupportedOpError(
                f"{op.name}: a quantized type of unsigned integers",
                where=place(op, filename),
                hint="quantize to signed integers: i8 with a zero point that is 128 less",
            )


def _takes_complex(op: Any) -> bool:
    return op.name.partition(".")[0] in _EVERYWHERE or op.name in COMPLEX_OPS


def _has_lowering(op: Any) -> bool:
    return op.name == "stablehlo.custom_call" and (
        is_annotation(op) or is_approx_top_k(op) or is_factorization(op)
    )


def _described(op: Any) -> str:
    if op.name == "stablehlo.custom_call":
        return f"stablehlo.custom_call @{op.attributes['call_target_name'].value}"
    return op.name


# Ops with a more specific reason than the lack of a lowering.
_REFUSED = {
    "stablehlo.custom_call": "code that is not part of the program",
    "stablehlo.rng": "random numbers without a seed",
    "stablehlo.infeed": "reads from outside of the program",
    "stablehlo.outfeed": "writes outside of the program",
    "stablehlo.send": "sends to another device",
    "stablehlo.recv": "receives from another device",
    "func.call_indirect": "calls a function that is not known",
    "tosa.custom": "code that is not part of the program",
}


def explain_type(type_: Any) -> tuple[str, str | None] | None:
    """What is wrong with a type (and how to fix it); None for supported types."""
    if isinstance(type_, ir.UnrankedTensorType):
        return f"{type_} has no rank", "a program of MLIR has static shapes"
    if isinstance(type_, ir.RankedTensorType):
        if not type_.has_static_shape:
            return (
                f"{type_} has a size that is not known",
                "a program of MLIR has static shapes: give example arguments with args= (--shape), "
                "or export it for the sizes it will run with",
            )
        if type_.encoding is not None:
            return f"{type_} has an encoding", "only plain dense tensors are compiled"
        if prod(n or 1 for n in type_.shape) >= _MOST_ELEMENTS:
            return f"{type_} has more elements than memory has bytes", None
        return explain_element(type_.element_type)
    if str(type_).startswith("!tosa.shape"):
        return None
    if isinstance(type_, ir.FunctionType):
        return None
    return explain_element(type_)


def explain_element(type_: Any) -> tuple[str, str | None] | None:
    """The same for an element type or a scalar."""
    if isinstance(type_, (*_FLOATS, ir.IndexType)):
        return None
    if isinstance(type_, ir.IntegerType) and type_.width in _INTEGERS:
        return None
    if isinstance(type_, ir.ComplexType) and isinstance(
        type_.element_type, ir.F32Type | ir.F64Type
    ):
        return None
    if str(type_).startswith("!quant."):
        return f"quantized numbers ({type_})", "write it with integers and scales"
    if isinstance(type_, ir.MemRefType | ir.UnrankedMemRefType):
        return (
            f"memory ({type_})",
            "a program takes and gives tensors; the text of a later stage needs start_from",
        )
    return (
        f"the type {type_}",
        "Nova computes with f8E4M3FN, f8E5M2, f16, bf16, f32, f64, and integers of 8 to 64 bits",
    )


# --- after lowering -------------------------------------------------------------------------------

_LOWERED = {
    "func.func",
    "func.return",
    "linalg.generic",
    "linalg.index",
    "linalg.yield",
    "scf.condition",
    "scf.for",
    "scf.if",
    "scf.while",
    "scf.yield",
    "tensor.collapse_shape",
    "tensor.empty",
    "tensor.expand_shape",
    "tensor.extract",
    "tensor.from_elements",
    "tensor.insert",
    "affine.apply",
    "affine.max",
    "affine.min",
    SIZE,
}
_MATH = {"absf", "absi", "copysign", "ctlz", "ctpop", "cttz", "fma", "sqrt"}
_LOWERED |= {f"math.{name}" for name in _MATH} | {*EXPANSIONS, *ROUNDING}


def check_lowered(module: ir.Module, filename: str) -> None:
    """Refuse ops that remain after lowering to linalg and that later stages cannot lower."""
    controls = {f"@{name_of(f)}" for f in every_control(module)}
    for op in all_ops(module):
        if op.name == "linalg.generic":
            _check_accesses(op, filename)
        if op.name == "arith.constant" or (_is_known(op) and not _is_whole(op)):
            continue
        if op.name == "builtin.module" or (
            is_call(op) and str(op.attributes["callee"]) in controls
        ):
            continue  # loops and branches
        what, hint = f"{_described(op)} has no code in Nova", None
        if op.name == "func.call":
            callee = op.attributes["callee"].value
            what = f"@{callee} is called and not part of the program"
            hint = "functions without a body, and functions that call themselves, are not compiled"
        elif op.name.startswith("cf."):
            what, hint = f"{op.name}: jumps between blocks", "write loops and branches with scf"
        raise UnsupportedOpError(what, where=place(op, filename), hint=hint)


def _is_known(op: Any) -> bool:
    return op.name in _LOWERED or op.name.startswith("arith.")


def _is_whole(op: Any) -> bool:
    """Whether an op computes on whole tensors, which only linalg ops do at this stage."""
    if op.name.partition(".")[0] not in ("arith", "math"):
        return False
    return any(isinstance(result.type, ir.RankedTensorType) for result in op.results)


def _check_accesses(op: Any, filename: str) -> None:
    """Refuse access patterns that the schedules cannot handle."""
    generic = GenericOp(op)
    try:
        written = [generic.accesses[generic.num_inputs + i] for i in range(generic.num_outputs)]
        sizes = generic.sizes
    except LoweringError as error:
        raise UnsupportedOpError(
            f"linalg.generic with {error.what}", where=place(op, filename), hint=error.hint
        ) from None
    for access in written:
        loops = [access.row_dim(i) for i in range(len(access.coefficients))]
        parallel = [d for d in range(len(sizes)) if generic.iterators[d] == "parallel"]
        if None in loops or sorted(d for d in loops if d is not None) != parallel:
            raise UnsupportedOpError(
                "linalg.generic that writes elsewhere than at its parallel loops",
                where=place(op, filename),
            )


def all_ops(module: ir.Module) -> list[Any]:
    """Every op of the module but itself; nested ops come after their parent."""
    return every_op(module, outer_first=True)[1:]


def place(op: Any, filename: str) -> str:
    """`file:line:col` of an op or an argument, or the file if it has no line."""
    here = in_file(Diagnostic("note", "", *file_position(op.location)), filename)
    return here.where or filename


def at_file(error: NovaError, filename: str) -> NovaError:
    """An error of a pass, whose locations call the program's own text `-`."""
    if error.where is None or not error.where.startswith("-:"):
        return error
    return type(error)(error.what, where=filename + error.where[1:], hint=error.hint)
