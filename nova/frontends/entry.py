"""The entry function of a program: it becomes `main`, with a Nova signature.

In: a parsed module and the function's name. Out: the module with that function as `@main`, all
others private, without attributes of other compilers, and the signature. Called by
`nova.frontends.import_mlir`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from nova.artifact.manifest import TensorSpec
from nova.compiler.signature import ProgramSignature, drop_written, written_specs
from nova.core.dtypes import EVERY, TensorType, array_dtype, real_of
from nova.errors import (
    ArgumentNameError,
    DTypeError,
    EntryError,
    ImportedProgramError,
    UnsupportedOpError,
)
from nova.frontends.checks import explain_type, find_frontend, place
from nova.frontends.specialize import (
    ArgumentShape,
    check_shapes,
    is_static_call,
    specialize_sizes,
)
from nova.frontends.symbolic.importer import has_unknown_sizes, make_symbolic
from nova.ir.attributes import (
    DIMS,
    INPUTS,
    NAME,
    SIGNATURE,
    SIZES,
    UPDATES,
    name_dictionaries,
)
from nova.ir.bindings import func, ir
from nova.ir.kernel import Main
from nova.ir.types import nova_type
from nova.ir.walk import find_function, functions
from nova.passes.base import UpstreamPass, run_pipeline

# Buffer donation: the result that aliases an argument, as jax and TensorFlow write it.
_DONATED = "tf.aliasing_output"
_NAMES = (NAME.name, "jax.arg_info")
_RESULT_NAMES = (NAME.name, "jax.result_info")
# Element types, and their types after the stage nova.
_NARROWED = {("u8", "i8"), ("u16", "i16"), ("u32", "i32"), ("u64", "i64"), ("bool", "i8")}
_KEPT = {
    "function_type",
    DIMS.name,
    INPUTS.name,
    SIGNATURE.name,
    SIZES.name,
    UPDATES.name,
    "sym_name",
}


def take_entry(
    module: ir.Module,
    entry: str,
    filename: str,
    params: Collection[str] = (),
    shapes: Sequence[ArgumentShape] | None = None,
    avoided: Collection[int] = (),
) -> ProgramSignature:
    """Make the function `entry` the program; functions that it does not call are dropped.

    Arguments whose names are in `params` become params, which come after the inputs. With `shapes`,
    the program is specialized for arguments of these. `?` sizes that remain become symbolic, with
    representatives that are not in `avoided`.
    """
    for op in module.body.operations:
        if not isinstance(op, func.FuncOp):
            raise UnsupportedOpError(
                f"{op.operation.name} next to the functions of the program",
                where=place(op.operation, filename),
            )
    main = find_entry(module, entry, filename)
    _rename(module, main)
    for function in functions(module):
        function.attributes["sym_visibility"] = ir.StringAttr.get(
            "public" if function == main else "private", module.context
        )
    run_pipeline(module, [UpstreamPass("symbol-dce")])
    with module.context, ir.Location.unknown():
        if shapes is not None and is_static_call(shapes):
            specialize_sizes(module, shapes, filename)
        elif shapes is not None:
            check_shapes(main, shapes, filename)
        if has_unknown_sizes(module) and not is_static_call(shapes):
            names = argument_names(main)
            sizes = None if shapes is None else [shape for shape, _ in shapes]
            frontend = find_frontend(module, filename)
            make_symbolic(module, filename, frontend, names, sizes, avoided)
    main = find_function(module, "main")
    with module.context, ir.Location.unknown():
        signature = _read_signature(main, filename)
        if params:
            signature = _move_params(main, signature, params, filename)
        _reorder_results(main, signature)
        _clean(main, signature)
    return signature


def find_entry(module: ir.Module, entry: str, filename: str) -> Any:
    """The entry function, which has one block; EntryError if there is none."""
    entry = entry.removeprefix("@")
    found = find_function(module, entry)
    if found is None:
        others = [f.name.value for f in functions(module) if not _is_private(f)]
        listed = ", ".join(f"@{name}" for name in others)
        raise EntryError(
            f"the program has no function @{entry}" + (f": it has {listed}" if others else ""),
            where=filename,
            hint=f"entry={others[0]!r} (--entry {others[0]}) starts from it" if others else None,
        )
    if found.is_external:
        raise EntryError(f"@{entry} has no body", where=place(found.operation, filename))
    if len(found.body.blocks) != 1:
        raise UnsupportedOpError(
            f"@{entry} jumps between blocks",
            where=place(found.operation, filename),
            hint="write loops and branches with scf or StableHLO",
        )
    return found


def _is_private(function: Any) -> bool:
    attributes = function.attributes
    return "sym_visibility" in attributes and attributes["sym_visibility"].value == "private"


def _rename(module: ir.Module, main: Any) -> None:
    if main.name.value == "main":
        return
    taken = {f.name.value for f in functions(module)}
    with module.context:
        other = find_function(module, "main")
        if other is not None:
            free = next(f"main_{i}" for i in range(len(taken) + 1) if f"main_{i}" not in taken)
            ir.SymbolTable.replace_all_symbol_uses("main", free, module.operation)
            ir.SymbolTable.set_symbol_name(other.operation, free)
        ir.SymbolTable.replace_all_symbol_uses(main.name.value, "main", module.operation)
        ir.SymbolTable.set_symbol_name(main.operation, "main")


# --- signature ------------------------------------------------------------------------------------


def _read_signature(main: Any, filename: str) -> ProgramSignature:
    given = list(main.type.inputs)
    inputs = len(given)
    if INPUTS.has(main):
        inputs = INPUTS.get(main)
    attributes = _dictionaries(main, "arg_attrs", len(given))
    alias = _aliases(main, attributes, filename)
    args = []
    names = argument_names(main)
    for i, (type_, argument) in enumerate(zip(given, main.entry_block.arguments, strict=True)):
        name = names[i]
        kind = _nova_type(type_, f"argument {name!r}", place(argument, filename))
        role = "input" if i < inputs else "param"
        args.append(
            TensorSpec(name, kind.shape, kind.dtype.name, role, donated=i in alias.values())
        )
    results = list(main.type.results)
    own = _dictionaries(main, "res_attrs", len(results))
    updates = Main(main).updates
    outputs = []
    used_names: set[str] = set()
    for i, type_ in enumerate(results[: len(results) - len(updates)]):
        kind = _nova_type(type_, f"result {i}", place(main.operation, filename))
        name = _unique(_name_of(own[i], _RESULT_NAMES) or f"y{i}", used_names)
        outputs.append(
            TensorSpec(name, kind.shape, kind.dtype.name, "output", alias=alias.get(i, -1))
        )
    if updates:  # a program of Nova itself
        args = [replace(a, donated=i in updates) for i, a in enumerate(args)]
    return _take_written(main, ProgramSignature(tuple(args), tuple(outputs)), filename)


def _take_written(main: Any, seen: ProgramSignature, filename: str) -> ProgramSignature:
    """The dtypes in the text of a later Nova stage, whose types have lost information."""
    specs = [*seen.args, *seen.outputs]
    try:
        written = written_specs(main)
    except (ValueError, TypeError, KeyError, AttributeError):  # not written by Nova
        written = []
    if written is None:
        return seen
    fits = len(written) == len(specs) and all(
        (w.role == "output") == (s.role == "output")
        and ((w.shape, w.dtype) == (s.shape, s.dtype) or _is_narrowed(w, s))
        for w, s in zip(written, specs, strict=True)
    )
    if not fits:
        raise ImportedProgramError(
            f"the attribute {SIGNATURE.name} does not say what the types of the function say",
            where=place(main.operation, filename),
            hint="start_from takes the text of a stage as it is; without the attribute, the types "
            "count",
        )
    drop_written(main)
    taken = [replace(s, dtype=w.dtype, shape=w.shape) for s, w in zip(specs, written, strict=True)]
    return ProgramSignature(tuple(taken[: len(seen.args)]), tuple(taken[len(seen.args) :]))


def _is_narrowed(written: TensorSpec, spec: TensorSpec) -> bool:
    """Whether the type of a later stage can be that of the written dtype and shape."""
    element = array_dtype(written.dtype)
    if element.is_complex:
        return spec.shape == (*written.shape, 2) and spec.dtype == real_of(element).name
    return written.shape == spec.shape and (written.dtype, spec.dtype) in _NARROWED


def argument_names(main: Any) -> list[str]:
    """The names of the arguments: by attribute, location or index; all different."""
    arguments = list(main.entry_block.arguments)
    attributes = _dictionaries(main, "arg_attrs", len(arguments))
    used_names: set[str] = set()
    return [
        _unique(_name_of(attributes[i], _NAMES) or _located(argument) or f"arg{i}", used_names)
        for i, argument in enumerate(arguments)
    ]


def _nova_type(type_: Any, what: str, at: str) -> TensorType:
    wrong = explain_type(type_)
    if wrong is not None:
        raise ImportedProgramError(f"{what} of the program: {wrong[0]}", where=at, hint=wrong[1])
    try:
        return nova_type(type_)
    except DTypeError:
        raise ImportedProgramError(
            f"{what} of the program is {type_}, which no array of Nova's holds",
            where=at,
            hint="convert inside of the program; the types are " + ", ".join(d.name for d in EVERY),
        ) from None


def _aliases(main: Any, attributes: list[Any], filename: str) -> dict[int, int]:
    """For each result that aliases an argument, that argument."""
    alias: dict[int, int] = {}
    results = list(main.type.results)
    for i, own in enumerate(attributes):
        if own is None or _DONATED not in own:
            continue
        result = int(own[_DONATED].value)
        fits = 0 <= result < len(results) and results[result] == main.type.inputs[i]
        if not fits or result in alias:
            raise ImportedProgramError(
                f"argument {i} is donated to result {result}, which is not there, is of another "
                "type, or has the memory of another argument",
                where=place(main.operation, filename),
            )
        alias[result] = i
    return alias


def _dictionaries(main: Any, name: str, count: int) -> list[Any]:
    if name not in main.attributes:
        return [None] * count
    return list(main.attributes[name])


def _name_of(attributes: Any, names: tuple[str, ...]) -> str | None:
    for name in names:
        if attributes is not None and name in attributes:
            value = attributes[name]
            # Bytes: MLIR's strings need not be UTF-8.
            if isinstance(value, ir.StringAttr) and value.value_bytes:
                return value.value_bytes.decode(errors="replace")
    return None


def _located(argument: Any) -> str | None:
    """The name that jax gives an argument: its location."""
    location = argument.location
    return str(location.name_str) if isinstance(location, ir.NameLoc) else None


def _unique(name: str, taken: set[str]) -> str:
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}#{number}"
    taken.add(chosen)
    return chosen


# --- rewriting ------------------------------------------------------------------------------------


def _move_params(
    main: Any, signature: ProgramSignature, params: Collection[str], filename: str
) -> ProgramSignature:
    names = [a.name for a in signature.args]
    if unknown := sorted(set(params) - set(names)):
        raise ArgumentNameError(
            f"the program has no argument {unknown[0]!r} to give a value to",
            where=place(main.operation, filename),
            hint=f"its arguments are {', '.join(map(repr, names))}",
        )
    is_param = [a.role == "param" or a.name in params for a in signature.args]
    order = sorted(range(len(names)), key=lambda i: is_param[i])
    block = main.entry_block
    count = len(names)
    for i in order:
        old = block.arguments[i]
        old.replace_all_uses_with(block.add_argument(old.type, old.location))
    for i in reversed(range(count)):
        block.erase_argument(i)
    kind = ir.FunctionType.get([a.type for a in block.arguments], list(main.type.results))
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]  # `_clean` writes those of the new order
    if UPDATES.has(main):
        UPDATES.set(main, tuple(order.index(u) for u in UPDATES.get(main)))
    args = [replace(signature.args[i], role="param" if is_param[i] else "input") for i in order]
    outputs = [
        replace(o, alias=order.index(o.alias)) if o.alias >= 0 else o for o in signature.outputs
    ]
    return ProgramSignature(tuple(args), tuple(outputs))


def _reorder_results(main: Any, signature: ProgramSignature) -> None:
    """Results that alias an argument become updates, which come after the others."""
    aliases = {i: s.alias for i, s in enumerate(signature.outputs) if s.alias >= 0}
    if not aliases:
        return
    operations = main.entry_block.operations
    returned = operations[len(operations) - 1].operation
    order = [*signature.returned, *aliases]
    values = [returned.operands[i] for i in order]
    types = [main.type.results[i] for i in order]
    for position, value in enumerate(values):
        returned.operands[position] = value
    kind = ir.FunctionType.get(list(main.type.inputs), types)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    UPDATES.set(main, tuple(aliases.values()))


def _clean(main: Any, signature: ProgramSignature) -> None:
    """Drop attributes of other compilers; keep names and attributes that Nova's stages read."""
    for name in list(main.attributes):
        if name not in _KEPT:
            del main.attributes[name]
    if signature.args:
        main.arg_attrs = name_dictionaries([a.name for a in signature.args])
    inputs = sum(a.role == "input" for a in signature.args)
    INPUTS.set(main, inputs)
