"""`guard-atan2`: upstream folds atan2 of two zeros to NaN; C99 defines it by their signs."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, ir
from nova.ir.walk import find_ops
from nova.passes.base import Pass


@record
class GuardAtan2(Pass):
    """Rewrite atan2(y, x) of constants as atan2(y, x is 0 and y is 0 ? 1 / x : x).

    atan2(±0, ±inf) is atan2(±0, ±0), and folds. Only an op with two operands that do not depend on
    arguments of the function is folded; others stay. Before passes that fold: the legalization of
    StableHLO, and the first canonicalization of linalg.
    """

    name: ClassVar[str] = "guard-atan2"
    only_with: ClassVar[tuple[str, ...]] = ("math.atan2", "stablehlo.atan2")

    def run(self, module: ir.Module) -> None:
        constants: dict[Any, bool] = {}
        for op in find_ops(module, *self.only_with):
            if all(_is_constant(value, constants) for value in op.operands):
                with ir.InsertionPoint(op), op.location:
                    guarded = _guarded if op.name == "math.atan2" else _guarded_stablehlo
                    op.operands[1] = guarded(*op.operands)


def _guarded(y: Any, x: Any) -> Any:
    """`x`, or an infinity with its sign where both are zero."""
    zero, unit = (arith.constant(x.type, _number(x.type, n)) for n in (0.0, 1.0))
    is_zero = [arith.cmpf(arith.CmpFPredicate.OEQ, value, zero) for value in (y, x)]
    return arith.select(arith.andi(*is_zero), arith.divf(unit, x), x)


def _guarded_stablehlo(y: Any, x: Any) -> Any:
    def create(name: str, type_: Any, operands: list[Any], **attributes: Any) -> Any:
        return ir.Operation.create(f"stablehlo.{name}", [type_], operands, attributes).results[0]

    flags = ir.RankedTensorType.get(list(x.type.shape), ir.IntegerType.get_signless(1))
    zero, unit = (create("constant", x.type, [], value=_number(x.type, n)) for n in (0.0, 1.0))
    equal = ir.Attribute.parse("#stablehlo<comparison_direction EQ>")
    is_zero = [create("compare", flags, [v, zero], comparison_direction=equal) for v in (y, x)]
    infinity = create("divide", x.type, [unit, x])
    return create("select", x.type, [create("and", flags, is_zero), infinity, x])


def _number(type_: Any, value: float) -> Any:
    if not isinstance(type_, ir.ShapedType):
        return ir.FloatAttr.get(type_, value)
    return ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(type_.element_type, value))


def _is_constant(value: Any, constants: dict[Any, bool]) -> bool:
    """Whether a value depends on no argument of a function; `constants` are the results so far."""
    if value not in constants:
        constants[value] = False  # a value of a loop depends on itself
        constants[value] = _depends_on_constants(value, constants)
    return constants[value]


def _depends_on_constants(value: Any, constants: dict[Any, bool]) -> bool:
    if isinstance(value, ir.BlockArgument):
        op = value.owner.owner.operation
        if not op.name.startswith("linalg."):
            return False
        return _is_constant(op.operands[value.arg_number], constants)
    op = ir.OpResult(value).owner.operation
    if op.regions and not op.name.startswith("linalg."):
        return False
    return all(_is_constant(operand, constants) for operand in op.operands)
