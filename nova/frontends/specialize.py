"""Programs with `?` sizes, specialized for the sizes of example arguments.

In: a parsed module whose `@main` may have arguments of unknown sizes, and the shapes it is compiled
for. Out: the module with static shapes wherever StableHLO's shape refinement finds them. Called by
`nova.frontends.entry`, before the signature is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.core.sizes import Size, is_static_shape, known_equal
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ImportedProgramError,
    PassError,
)
from nova.frontends.checks import place
from nova.ir.bindings import ir
from nova.ir.types import nova_dtype
from nova.ir.walk import every_op, main_function
from nova.passes.base import UpstreamPass, run_pipeline

# Shape and, if it is known, the name of the dtype.
ArgumentShape = tuple[tuple[Size, ...], str | None]

_REFINE = (
    "stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism),"
    "stablehlo-refine-shapes,canonicalize,cse"
)
_ASSERTION = "shape_assertion"


def is_static_call(shapes: Sequence[ArgumentShape] | None) -> bool:
    """Whether all sizes of example arguments are numbers."""
    return shapes is not None and all(is_static_shape(shape) for shape, _ in shapes)


def check_shapes(main: Any, shapes: Sequence[ArgumentShape], filename: str) -> list[Any]:
    """The types of the arguments with static sizes of `shapes`; errors if they do not fit."""
    types = list(main.type.inputs)
    if len(shapes) != len(types):
        raise ArgumentCountError(
            f"{len(shapes)} example arguments given, the program has {len(types)}",
            where=place(main.operation, filename),
        )
    return [
        _refined_type(type_, shape, place(argument, filename), number)
        for number, (type_, shape, argument) in enumerate(
            zip(types, shapes, main.entry_block.arguments, strict=True)
        )
    ]


def specialize_sizes(module: ir.Module, shapes: Sequence[ArgumentShape], filename: str) -> None:
    """Refine the program for arguments of these shapes; errors if it cannot have them."""
    main = main_function(module)
    refined = check_shapes(main, shapes, filename)
    if refined == list(main.type.inputs):
        return
    listed = ",".join(map(str, refined))
    try:
        run_pipeline(
            module,
            [
                UpstreamPass("inline,symbol-dce"),
                UpstreamPass(f"stablehlo-refine-arguments{{types={listed}}}"),
                UpstreamPass(_REFINE),
            ],
        )
    except PassError as error:
        raise ImportedProgramError(
            f"the program cannot have arguments of {listed}: {error.what}",
            where=error.where or filename,
        ) from None
    _check_assertions(module, filename)


def _refined_type(type_: Any, shape: ArgumentShape, where: str, number: int) -> Any:
    sizes, dtype = shape
    if not isinstance(type_, ir.RankedTensorType):
        return type_
    unknown = ir.ShapedType.get_dynamic_size()
    fits = len(sizes) == len(type_.shape) and all(
        n == unknown or known_equal(n, size) for n, size in zip(type_.shape, sizes, strict=True)
    )
    if not fits:
        raise ArgumentShapeError(
            f"example argument {number} has shape {sizes}, the program takes {type_}", where=where
        )
    if dtype is not None and nova_dtype(type_.element_type).name != dtype:
        raise ArgumentDTypeError(
            f"example argument {number} is of {dtype}, the program takes {type_}", where=where
        )
    numbers = [size if isinstance(size, int) else unknown for size in sizes]
    return ir.RankedTensorType.get(numbers, type_.element_type)


def _check_assertions(module: ir.Module, filename: str) -> None:
    """Drop the assertions of jax about sizes that hold; one that does not is an error."""
    for op in every_op(module):
        if op.name != "stablehlo.custom_call":
            continue
        if op.attributes["call_target_name"].value != _ASSERTION:
            continue
        holds = op.operands[0]
        if not isinstance(holds, ir.OpResult) or holds.owner.name != "stablehlo.constant":
            continue
        if not holds.owner.attributes["value"].get_splat_value().value:
            message = (
                op.attributes["error_message"].value if "error_message" in op.attributes else ""
            )
            raise ArgumentShapeError(
                f"an assertion of the program about its sizes does not hold: {message}".strip(),
                where=place(op, filename),
            )
        op.erase()
