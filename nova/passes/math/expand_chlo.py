"""`expand-chlo`: special functions of CHLO become elementwise ops with scalar code."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import arith, func, ir, tensor
from nova.ir.clone import clone_into
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.walk import function_ops, main_function
from nova.passes.base import Pass, UpstreamPass

_FUNCTIONS = ("bessel_i1e", "digamma", "erf", "erf_inv", "erfc", "lgamma")
# What the pipeline does to these functions as well; the pass managers are the same.
_LEGALIZE = (
    "func.func(chlo-legalize-to-stablehlo)",
    "stablehlo-legalize-to-linalg,canonicalize,cse",
)


@record
class ExpandChlo(Pass):
    """Replace each special function of a float tensor by a `linalg.generic` that computes it.

    Upstream expands one into dozens of ops on tensors, which every pass up to fusion would process
    for each use. Here it expands a function once for each element type, and the scalar code becomes
    the body of one op. Functions inside of regions, and those of complex numbers, are left to it.
    """

    name: ClassVar[str] = "expand-chlo"
    only_with: ClassVar[tuple[str, ...]] = tuple(f"chlo.{name}" for name in _FUNCTIONS)

    def run(self, module: ir.Module) -> None:
        made: dict[tuple[str, Any], Any] = {}
        expansions: dict[tuple[str, Any], ir.Module] = {}
        for op in function_ops(module, "chlo."):
            if op.name not in self.only_with or not _is_float(op):
                continue
            type_ = op.results[0].type
            function = op.name, type_.element_type
            if function not in expansions:
                expansions[function] = _expand(*function)
            with ir.InsertionPoint(op), op.location:
                generic = made.get((op.name, type_))
                if generic is None:
                    generic = made[op.name, type_] = _elementwise(op, expansions[function])
                else:
                    destination = _empty(type_)
                    generic = generic.clone()
                    generic.operands[0] = op.operands[0]
                    generic.operands[1] = destination
            op.results[0].replace_all_uses_with(generic.results[0])
            op.erase()


def _is_float(op: Any) -> bool:
    """Whether an op maps a tensor of floats to one of the same static type."""
    type_ = op.results[0].type
    return (
        isinstance(type_, ir.RankedTensorType)
        and type_.has_static_shape
        and isinstance(type_.element_type, ir.FloatType)
        and [value.type for value in op.operands] == [type_]
    )


def _expand(name: str, element: Any) -> ir.Module:
    """A module whose `main` computes the function by linalg ops, for a vector."""
    module = ir.Module.create()
    vector = ir.RankedTensorType.get([2], element)
    with ir.InsertionPoint(module.body):
        main = func.FuncOp("main", ([vector], [vector]))
        block = main.add_entry_block()
    with ir.InsertionPoint(block):
        value = ir.Operation.create(name, [vector], [block.arguments[0]]).result
        func.ReturnOp([value])
    for text in _LEGALIZE:
        UpstreamPass(text, verify=False).run(module)
    return module


def _elementwise(op: Any, expansion: ir.Module) -> Any:
    """The op as one `linalg.generic`, whose body has the code of `expansion`."""
    type_ = op.results[0].type
    identity = ir.AffineMap.get_identity(type_.rank)
    generic = generic_op(
        [type_], [op.operands[0]], [_empty(type_)], [identity] * 2, ["parallel"] * type_.rank
    )
    block = generic.regions[0].blocks.append(type_.element_type, type_.element_type)
    with ir.InsertionPoint(block):
        yield_op([_scalar_code(main_function(expansion).entry_block, block.arguments[0])])
    return generic


def _scalar_code(block: Any, argument: Any) -> Any:
    """Emit the elementwise ops of a block for one element; returns its result."""
    scalars = {block.arguments[0]: argument}
    for op in (op.operation for op in block.operations):
        if op.name == "func.return":
            break
        if op.name == "arith.constant":
            scalars[op.results[0]] = _scalar_constant(op)
        elif op.name == "linalg.generic":
            *body, end = (inner.operation for inner in op.regions[0].blocks[0].operations)
            arguments = op.regions[0].blocks[0].arguments
            for inner, value in zip(arguments, op.operands, strict=True):
                if value in scalars:  # and not a destination
                    scalars[inner] = scalars[value]
            for inner in body:
                clone_into(inner, scalars)
            scalars[op.results[0]] = scalars[end.operands[0]]
    return scalars[op.operands[0]]


def _scalar_constant(op: Any) -> Any:
    value = op.attributes["value"]
    if isinstance(value, ir.DenseElementsAttr):
        value = value.get_splat_value()
    return arith.ConstantOp(value.type, value).result


def _empty(type_: Any) -> Any:
    return tensor.empty(list(type_.shape), type_.element_type)
