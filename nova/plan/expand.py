"""Expands the composites of a plan with symbolic sizes into primitive steps.

In: a plan. Out: a plan whose steps are primitives, and composites that codegen has a kernel for.
Types in IR have representative sizes (`nova/ir/symbolic/size_table.py`), so an expansion that
computes with a size, such as the divisor of a mean, happens here, where sizes are expressions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nova.core.dtypes import TensorType
from nova.core.location import at
from nova.graph.autodiff import expand_composite
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ops import OPS
from nova.ops.loops.control import CONTROL_OPS
from nova.ops.table import CPU_KERNEL, Op
from nova.plan.plan import Arg, Literal, Plan, Slot, Step


def expand_composites(plan: Plan) -> Plan:
    """The plan with its composites expanded; derivations are dropped."""
    return _Expander(plan).run()


class _Expander:
    def __init__(self, plan: Plan):
        self.plan = plan
        self.steps: list[Step] = []
        self.slots: list[Arg] = []  # of each step of the plan: its value in the expanded plan

    def run(self) -> Plan:
        for step in self.plan.steps:
            self.slots.append(self._step(step))
        return Plan(
            self.plan.signature,
            tuple(self.steps),
            tuple(map(self._arg, self.plan.results)),
            tuple((i, self._arg(value)) for i, value in self.plan.updates),
        )

    def _arg(self, arg: Arg) -> Arg:
        return self.slots[arg.index] if isinstance(arg, Slot) else arg

    def _step(self, step: Step) -> Arg:
        args = tuple(map(self._arg, step.args))
        if step.op in CONTROL_OPS:
            index = len(self.steps)
            regions = tuple(map(expand_composites, step.regions))
            self.steps.append(replace(step, args=args, out_slot=index, regions=regions))
            return Slot(index)
        row = OPS[step.op]
        types = tuple(self.plan.type_of(arg) for arg in step.args)
        whole = _is_whole(row, types, step.attrs)
        if row.kind != "composite" or whole:
            return self._append(step, step.op, args, step)
        leaves = [Tensor(t) for t in types]
        node = Tensor(step.out_type, op=row, inputs=tuple(leaves), attrs=step.attrs)
        values = dict(zip(leaves, args, strict=True))
        location = step.location
        if location is None:
            return self._expand(node, values, step)
        with at(location):
            return self._expand(node, values, step)

    def _expand(self, node: Tensor, values: dict[Tensor, Arg], step: Step) -> Arg:
        """The value of a composite node; `values` has its operands, and keeps the nodes alive."""
        expanded = expand_composite(node, node.inputs)
        for part in topological([expanded], stop=node.inputs):
            if part in values:
                continue
            if part.op is None:
                assert part.data is not None
                values[part] = Literal(part.data, part.type)
            elif part.op.kind == "composite" and not _is_whole(
                part.op, tuple(i.type for i in part.inputs), part.attrs
            ):
                values[part] = self._expand(part, values, step)
            else:
                args = tuple(values[i] for i in part.inputs)
                values[part] = self._append(step, part.op.name, args, part)
        return values[expanded]

    def _append(self, step: Step, op: str, args: tuple[Arg, ...], source: Step | Tensor) -> Slot:
        type_ = source.out_type if isinstance(source, Step) else source.type
        index = len(self.steps)
        self.steps.append(
            Step(op, args, dict(source.attrs), type_, index, step.location, step.device)
        )
        return Slot(index)


def _is_whole(row: Op, types: tuple[TensorType, ...], attrs: dict[str, Any]) -> bool:
    """Whether a composite has a kernel on every target, and so is not expanded."""
    if row.has_kernel is None or CPU_KERNEL in row.tags:
        return False
    return row.has_kernel(types, attrs)
