"""Plan to graph: the steps of a plan as nodes over other tensors.

In: a plan, as a compiled program or the text in a file has it, and a tensor for each of its
arguments. Out: the tensors of its results. Sizes of the plan that are symbolic become the sizes of
the arguments. `nova.call` inlines programs by this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType
from nova.core.location import at
from nova.core.sizes import Size, SizeExpr, substitute
from nova.graph.build import make_node
from nova.graph.control.call import call_node
from nova.graph.control.regions import Region, control_node
from nova.graph.tensor import Tensor, on_device
from nova.ops import OPS
from nova.ops.loops.control import CALL, find_op
from nova.plan.plan import Arg, Input, Literal, Param, Plan, Slot, Step


def inline_plan(
    plan: Plan, arguments: Sequence[Tensor], sizes: Mapping[str, Size] | None = None
) -> list[Tensor]:
    """The results of a plan over `arguments`: its inputs, then its params.

    `sizes` are the sizes of its dims; the arguments have the types of the signature with them.
    """
    return _Inliner(plan, arguments, sizes or {}).results()


class _Inliner:
    def __init__(self, plan: Plan, arguments: Sequence[Tensor], sizes: Mapping[str, Size]):
        self.plan, self.arguments, self.sizes = plan, arguments, sizes
        self.slots: list[Any] = []  # a tensor, or the results of a step with several

    def results(self) -> list[Tensor]:
        for step in self.plan.steps:
            location = nullcontext() if step.location is None else at(step.location)
            with location, on_device(step.device):
                self.slots.append(self._step(step))
        return [self._value(r) for r in self.plan.results]

    def _value(self, arg: Arg) -> Any:
        match arg:
            case Input(index):
                return self.arguments[index]
            case Param(index):
                return self.arguments[len(self.plan.signature.inputs) + index]
            case Slot(index):
                return self.slots[index]
            case Literal(array, type_):
                return Tensor(self._type(type_), data=array, fixed=True)

    def _type(self, type_: TensorType) -> TensorType:
        if not self.sizes or type_.is_static:
            return type_
        return TensorType(tuple(substitute(n, self.sizes) for n in type_.shape), type_.dtype)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, SizeExpr):
            return substitute(value, self.sizes)
        return tuple(map(self._attribute, value)) if isinstance(value, tuple) else value

    def _step(self, step: Step) -> Any:
        operands = [self._value(a) for a in step.args]
        attrs = {name: self._attribute(value) for name, value in step.attrs.items()}
        if step.op == "result":
            return operands[0][attrs["index"]]
        if step.op == CALL.name:
            types = [self._type(t) for t in step.results]
            return call_node(np.asarray(operands[0].data), operands[1:], types, attrs["memory"])
        if step.results:
            regions = [self._region(plan) for plan in step.regions]
            return control_node(find_op(step.op), operands, regions, attrs)
        return make_node(OPS[step.op], tuple(operands), attrs, self._type(step.out_type))

    def _region(self, plan: Plan) -> Region:
        params = [Tensor(self._type(a.type), name=a.name) for a in plan.signature.inputs]
        return Region(tuple(params), tuple(inline_plan(plan, params, self.sizes)))
