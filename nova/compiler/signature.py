"""The signature of a program that is a module: its arguments and results.

In: a module at any stage that still has `main`. Out: names, shapes, dtypes and roles of arguments
and results, for the manifest. Later stages lose information (u8 becomes i8, a bool a byte, results
become arguments), so `keep_signature` stores it as the attribute `nova.signature` of `main`. Called
by `nova.api.translate` and `start_from_plan`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nova.artifact.manifest import TensorSpec
from nova.core.dtypes import array_dtype
from nova.core.records import record
from nova.ir.attributes import INPUTS, NAME, OUTPUTS, SIGNATURE
from nova.ir.bindings import ir
from nova.ir.kernel import Main
from nova.ir.types import nova_type
from nova.ir.walk import main_function


@record
class ProgramSignature:
    """Arguments in call order, and all results; `alias` marks the updates of arguments."""

    args: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def returned(self) -> tuple[int, ...]:
        """The results with separate memory, in order."""
        return tuple(i for i, spec in enumerate(self.outputs) if spec.alias < 0)


def read_signature(module: ir.Module) -> ProgramSignature:
    """The signature attribute of `main`, or else the signature from its type."""
    main = main_function(module)
    specs = written_specs(main)
    if specs is None:
        return _from_types(main)
    updated = Main(main).updates
    args = [s for s in specs if s.role != "output"]
    return ProgramSignature(
        tuple(replace(s, donated=i in updated) for i, s in enumerate(args)),
        tuple(s for s in specs if s.role == "output"),
    )


def written_specs(main: Any) -> list[TensorSpec] | None:
    """The signature attribute of `main`, arguments first; None if it has none."""
    if not SIGNATURE.has(main):
        return None
    return [_read_spec(entry) for entry in SIGNATURE.get(main)]


def drop_written(main: Any) -> None:
    """Remove the signature attribute of `main`."""
    SIGNATURE.remove(main)


def keep_signature(module: ir.Module, signature: ProgramSignature | None = None) -> None:
    """Store the signature, if later stages could not infer it from the types of `main`."""
    main = main_function(module)
    inferred = _from_types(main)
    signature = signature or inferred
    lossy = any(array_dtype(s.dtype).kind in "ubc" for s in (*signature.args, *signature.outputs))
    if lossy or signature != inferred:
        specs = [*signature.args, *signature.outputs]
        SIGNATURE.set(main, ir.ArrayAttr.get([_write_spec(s) for s in specs]))


def _write_spec(spec: TensorSpec) -> Any:
    i64 = ir.IntegerType.get_signless(64)
    entries = {
        "dtype": ir.StringAttr.get(spec.dtype),
        "name": ir.StringAttr.get(spec.name),
        "role": ir.StringAttr.get(spec.role),
        "shape": ir.DenseI64ArrayAttr.get(list(spec.shape)),
    }
    if spec.alias >= 0:
        entries["alias"] = ir.IntegerAttr.get(i64, spec.alias)
    return ir.DictAttr.get(entries)


def _read_spec(entry: Any) -> TensorSpec:
    return TensorSpec(
        entry["name"].value,
        tuple(entry["shape"]),
        entry["dtype"].value,
        entry["role"].value,
        alias=int(entry["alias"].value) if "alias" in entry else -1,
    )


def _from_types(main: Any) -> ProgramSignature:
    updated = Main(main).updates
    inputs_of_main, results = list(main.type.inputs), list(main.type.results)
    if OUTPUTS.has(main):  # destinations and the workspace are already arguments
        outputs = OUTPUTS.get(main)
        inputs_of_main, results = inputs_of_main[: -outputs - 1], inputs_of_main[-outputs - 1 : -1]
    else:
        results = results[: len(results) - len(updated)]
    inputs = INPUTS.get(main) if INPUTS.has(main) else len(inputs_of_main)
    names = _names(main, len(inputs_of_main))
    args = []
    for i, type_ in enumerate(inputs_of_main):
        tensor = nova_type(type_)
        role = "input" if i < inputs else "param"
        args.append(
            TensorSpec(names[i], tensor.shape, tensor.dtype.name, role, donated=i in updated)
        )
    outs = []
    for i, type_ in enumerate(results):
        tensor = nova_type(type_)
        outs.append(TensorSpec(f"y{i}", tensor.shape, tensor.dtype.name, "output"))
    return ProgramSignature(tuple(args), tuple(outs))


def _names(main: Any, count: int) -> list[str]:
    attributes = list(main.arg_attrs) if len(main.arguments) else []
    names = [f"arg{i}" for i in range(count)]
    for i, argument_attributes in enumerate(attributes[:count]):
        if NAME.name in argument_attributes:
            names[i] = argument_attributes[NAME.name].value
    return names
