"""Sizes of every value of an imported program, as expressions over the `?` sizes of its arguments.

In: a module whose `@main` has no calls. Out: `Inference`, with the shape of every value and the
elements of small integer tensors that the program computes from sizes. The rules of ops are rows of
the tables in `stablehlo_shapes.py`, `stablehlo_elements.py` and `tensor_rules.py`. An op without a
rule is a SymbolicImportError, unless all of its types are static.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from nova.core.records import record
from nova.core.sizes import Shape, Size
from nova.errors import SymbolicImportError
from nova.frontends.checks import place
from nova.frontends.symbolic.equations import Equations, Solved
from nova.ir.bindings import ir

Shapes: TypeAlias = Sequence[Sequence[Size] | None]
Rule: TypeAlias = Callable[["Inference", Any], Shapes | None]
"""The shapes of the results of an op; None for those that their types say."""


MOST_ELEMENTS = 64
"""Elements of a tensor of sizes: a shape, not data."""
_MOST_RESTARTS = 4096


@record
class Rules:
    """The rules of a dialect: shapes of results, and elements of small integer tensors."""

    find: Callable[[str], Rule | None]
    record_elements: Callable[[Any, Any], None]


class Inference:
    """The shapes and the known elements of the values of one function."""

    def __init__(self, equations: Equations, rules: Rules, filename: str):
        self.equations = equations
        self.rules = rules
        self.filename = filename
        self.shapes: dict[Any, Shape] = {}
        self.elements: dict[Any, np.ndarray] = {}
        self.computed: list[Size] = []
        """Sizes that lowerings of ops compute, which are not sizes of values."""
        self.names: dict[str, str] = {}

    # --- values ---------------------------------------------------------------------------------

    def shape(self, value: Any) -> Shape:
        """The shape of a value, () for a scalar."""
        if value in self.shapes:
            return self.shapes[value]
        if not isinstance(value.type, ir.RankedTensorType):
            return ()
        return tuple(value.type.shape)

    def find(self, value: Any) -> np.ndarray | None:
        """The elements of a tensor (or of an integer) of sizes; None for data."""
        return self.elements.get(value)

    def sizes(self, value: Any, subject: str) -> list[Size]:
        """The elements of a value as sizes; SymbolicImportError if they are data."""
        elements = self.find(value)
        flat = None if elements is None else list(elements.reshape(-1))
        if flat is None or any(n is None or isinstance(n, bool) for n in flat):
            raise SymbolicImportError(f"{subject} is computed from data, not from sizes")
        return flat

    def equate(self, first: Size, second: Size, op: Any) -> None:
        """Record that two sizes are equal."""
        self.equations.equate(first, second, op.name)

    def same(self, op: Any, values: Sequence[Any]) -> Shape:
        """The shape of values that all have it."""
        first, *others = [self.shape(value) for value in values]
        for other in others:
            for a, b in zip(first, other, strict=True):
                self.equate(a, b, op)
        return first

    # --- the walk -------------------------------------------------------------------------------

    def block(self, block: Any) -> list[Any]:
        """Infer the ops of a block in order; returns the operands of its terminator."""
        operations = [op.operation for op in block.operations]
        for op in operations:
            try:
                self._op(op)
            except SymbolicImportError as error:
                raise error.located(place(op, self.filename)) from None
        return list(operations[-1].operands) if operations else []

    def bind(self, arguments: Sequence[Any], values: Sequence[Any], invariant: Any = ()) -> None:
        """Give block arguments the shapes of values, and the elements of those in `invariant`."""
        for i, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            self.shapes[argument] = self.shape(value)
            self.elements.pop(argument, None)
            if i in invariant and value in self.elements:
                self.elements[argument] = self.elements[value]

    def _op(self, op: Any) -> None:
        rule = self.rules.find(op.name)
        if rule is None:
            self._refuse_unknown(op)
            shapes: Shapes | None = None
        else:
            shapes = rule(self, op)
        for i, result in enumerate(op.results):
            shape = None if shapes is None else shapes[i]
            self.shapes[result] = self._merged(op, result, shape)
        self.rules.record_elements(self, op)

    def _merged(self, op: Any, result: Any, shape: Sequence[Size] | None) -> Shape:
        """The inferred shape of a result, with the static sizes of its type."""
        if not isinstance(result.type, ir.RankedTensorType):
            return ()
        declared = list(result.type.shape)
        if shape is None:
            if not result.type.has_static_shape:
                raise SymbolicImportError(f"{op.name} has a result of unknown size")
            return tuple(declared)
        unknown = ir.ShapedType.get_dynamic_size()
        merged = []
        for size, number in zip(shape, declared, strict=True):
            if number != unknown:
                self.equate(size, number, op)
                size = number
            self.equations.at_least(size, 0, f"a size of the result of {op.name}")
            merged.append(size)
        return tuple(merged)

    def _refuse_unknown(self, op: Any) -> None:
        types = [v.type for v in (*op.operands, *op.results)]
        for type_ in types:
            if isinstance(type_, ir.RankedTensorType) and not type_.has_static_shape:
                raise SymbolicImportError(f"{op.name} has no rule for symbolic sizes")
        for region in op.regions:
            for block in region.blocks:
                self.block(block)


def infer(
    main: Any,
    rules: Rules,
    filename: str,
    shapes: Sequence[Sequence[Size | None]],
    names: Sequence[str],
) -> Inference:
    """The shapes of all values of `main`.

    `shapes` are those of the arguments, None for a `?` without an expression; `names` are the names
    of their dims without an axis.
    """
    equations = Equations()
    unknown = ir.ShapedType.get_dynamic_size()
    for _ in range(_MOST_RESTARTS):
        inference = Inference(equations, rules, filename)
        try:
            for argument, expected, name in zip(main.arguments, shapes, names, strict=True):
                if not isinstance(argument.type, ir.RankedTensorType):
                    continue
                sizes = []
                for axis, number in enumerate(argument.type.shape):
                    size = number
                    if number == unknown:
                        size = equations.unknown(f"{name}_{axis}", expected[axis])
                    sizes.append(size)
                inference.shapes[argument] = tuple(sizes)
            inference.block(main.entry_block)
            if equations.rename(inference.names):
                continue
        except Solved:
            continue
        return inference
    raise SymbolicImportError("the equations between sizes of the program have no end")
