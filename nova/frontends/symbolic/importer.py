"""Makes a program of MLIR with `?` sizes a program with symbolic sizes.

In: a module with `@main`, and the shapes of its arguments where the caller names them. Out: the
same module with representatives instead of `?`, and the table of dims and sizes on `@main`. Called
by `nova.frontends.entry`. `import_program` lowers such a program twice, with other representatives,
and compares (`compare_lowered.py`): no size is baked into its code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from nova.core.sizes import Size, SizeExpr, bounds, find_choices, symbols_of
from nova.errors import LoweringError, NovaError, SymbolicImportError
from nova.frontends.symbolic.infer import Inference, Rules, infer
from nova.frontends.symbolic.stablehlo_elements import record_elements
from nova.frontends.symbolic.stablehlo_regions import DIM_NAME
from nova.frontends.symbolic.stablehlo_rewrite import StablehloRewriter
from nova.frontends.symbolic.stablehlo_shapes import SHAPES
from nova.frontends.symbolic.tensor_rewrite import TensorRewriter
from nova.frontends.symbolic.tensor_rules import find_rule, record_scalars
from nova.ir.bindings import ir
from nova.ir.symbolic.size_table import (
    SizeTable,
    choose_representatives,
    degree_of,
    is_product,
)
from nova.ir.walk import every_op, find_function, functions, main_function
from nova.passes.base import UpstreamPass, run_pipeline

HINT = "example arguments with args= (--shape) compile it for their sizes"
_STABLEHLO = Rules(SHAPES.get, record_elements)
_LINALG = Rules(find_rule, record_scalars)
_INLINE = "inline,symbol-dce"
_COMPOSITES = "func.func(stablehlo-legalize-composite-to-call)"
_GENERALIZE = "linalg-generalize-named-ops"
_MOST_VALUES = 1 << 16
_LARGE = (1 << 30) - 35
_MOST_AXES = 64
_GLOBAL_CONSTANT = "jax.global_constant"
"""The name of a size, on the argument of a function that jax passes it to."""


def has_unknown_sizes(module: ir.Module) -> bool:
    """Whether an argument of `@main` has a `?` size."""
    return any(
        isinstance(type_, ir.RankedTensorType) and not type_.has_static_shape
        for type_ in main_function(module).type.inputs
    )


def is_symbolic(module: ir.Module) -> bool:
    """Whether `@main` has a table of symbolic sizes."""
    main = find_function(module, "main")
    return main is not None and SizeTable.of(main) is not None


def table_of(module: ir.Module) -> SizeTable:
    """The table of a symbolic program."""
    table = SizeTable.of(main_function(module))
    assert table is not None
    return table


def make_symbolic(
    module: ir.Module,
    filename: str,
    frontend: str,
    names: Sequence[str],
    shapes: Sequence[Sequence[Size]] | None,
    avoided: Collection[int],
) -> SizeTable:
    """Give every value of the program its symbolic size; SymbolicImportError where one has none.

    `frontend` is its dialect, `names` are those of the arguments. Representatives are not in
    `avoided`.
    """
    try:
        is_linalg = frontend == "linalg"
        if is_linalg:
            run_pipeline(module, [UpstreamPass(_INLINE), UpstreamPass(_GENERALIZE)])
        else:
            _name_sizes(module)
            run_pipeline(module, [UpstreamPass(_COMPOSITES), UpstreamPass(_INLINE)])
        main = main_function(module)
        expected: Sequence[Sequence[Size | None]] = shapes or [[None] * _MOST_AXES for _ in names]
        rules = _LINALG if is_linalg else _STABLEHLO
        inference = infer(main, rules, filename, expected, [_identifier(n) for n in names])
        table = _table(main, inference, avoided)
        rewriter = TensorRewriter if is_linalg else StablehloRewriter
        with table.active():
            rewriter(main, inference, table).run()
        _retype(main)
        table.write(main)
        _verify(module)
    except NovaError as error:
        if error.hint is not None:
            raise
        what = error.what if isinstance(error, SymbolicImportError) else _described(error)
        raise SymbolicImportError(what, where=error.where or filename, hint=HINT) from None
    return table


def _described(error: NovaError) -> str:
    return f"the program cannot have symbolic sizes: {error.what}"


def _identifier(name: str) -> str:
    """The name of an argument as part of the name of a dim."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return text if text.isidentifier() else f"arg_{text}"


def _name_sizes(module: ir.Module) -> None:
    """Mark the sizes that have names: the names of jax are lost when functions are inlined."""
    for function in functions(module):
        if function.is_external or "arg_attrs" not in function.attributes:
            continue
        block = function.entry_block
        attributes = list(function.attributes["arg_attrs"])
        for argument, named in zip(block.arguments, attributes, strict=True):
            if _GLOBAL_CONSTANT in named:
                with ir.InsertionPoint.at_block_begin(block), function.location:
                    ir.Operation.create(
                        "stablehlo.custom_call",
                        [],
                        [argument],
                        {
                            "call_target_name": ir.StringAttr.get(DIM_NAME),
                            "backend_config": named[_GLOBAL_CONSTANT],
                            "has_side_effect": ir.BoolAttr.get(True),
                        },
                    )


def _retype(main: Any) -> None:
    block = main.entry_block
    returned = list(block.operations)[-1].operation
    type_ = ir.FunctionType.get(
        [argument.type for argument in block.arguments], [v.type for v in returned.operands]
    )
    main.attributes["function_type"] = ir.TypeAttr.get(type_)


def _verify(module: ir.Module) -> None:
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        details = "; ".join(d.message for d in error.error_diagnostics)
        raise SymbolicImportError(f"its sizes do not fit together: {details}") from None


# --- the table ------------------------------------------------------------------------------------


def _table(main: Any, inference: Inference, avoided: Collection[int]) -> SizeTable:
    """Representatives that no static number of the program is a multiple of."""
    equations = inference.equations
    shapes = list(inference.shapes.values())
    sizes = [n for shape in shapes for n in shape] + inference.computed
    # A size that is never positive is written as the negative of a size.
    positive = [-v if bounds(v)[1] <= 0 else v for v in sizes if isinstance(v, SizeExpr)]
    expressions = {
        size: size for size in positive if isinstance(size, SizeExpr) and not is_product(size)
    }
    for size in expressions:
        choice = next(find_choices(size), None)
        if choice is not None:
            raise SymbolicImportError(
                f"code generation does not take the size {size}: {choice} is not a polynomial of "
                "the dims"
            )
        if size.evaluate({dim.name: _LARGE for dim in size.symbols}) < _LARGE // 4096:
            raise SymbolicImportError(f"the size {size} does not grow with its dims")
    numbers = {*_numbers(main), *avoided, *(n for n in sizes if isinstance(n, int))}
    degree = max([1, *(sum(map(degree_of, shape)) for shape in shapes)])
    used = {dim.name for dim in symbols_of(positive)}
    dims = [dim for name, dim in equations.dims.items() if name in used]
    try:
        return choose_representatives(dims, expressions, numbers, degree)
    except LoweringError as error:
        raise SymbolicImportError(error.what) from None


def _numbers(main: Any) -> Iterator[int]:
    """The integers in types, attributes and constants of the program."""
    for op in every_op(main):
        for value in (*op.results, *op.operands):
            if isinstance(value.type, ir.RankedTensorType):
                yield from (n for n in value.type.shape if n >= 0)
        for name in op.attributes:
            yield from _attribute_numbers(op.attributes[name])


def _attribute_numbers(attribute: Any) -> Iterator[int]:
    if isinstance(attribute, ir.DenseIntElementsAttr):
        if attribute.is_splat:
            yield int(attribute.get_splat_value().value)
        elif len(attribute) <= _MOST_VALUES:
            yield from map(int, attribute)
    elif isinstance(attribute, ir.DenseFPElementsAttr):
        if attribute.is_splat:
            value = attribute.get_splat_value().value
            yield from [int(value)] if abs(value) < 1 << 40 else []
    elif isinstance(attribute, ir.IntegerAttr):
        yield int(attribute.value)
    elif isinstance(attribute, ir.DenseI64ArrayAttr | ir.ArrayAttr):
        for item in attribute:
            yield from [item] if isinstance(item, int) else _attribute_numbers(item)
