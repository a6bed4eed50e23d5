"""Plan transformations for inspection: return every slot, cut a prefix, convert slots to inputs.

Pure functions from plan to plan, used by the checked runs and by the reduction of failing programs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nova.plan import Arg, Argument, Input, Literal, Param, Plan, Signature, Slot, Step


@dataclass(frozen=True)
class Program:
    """A plan with the arrays of its arguments, inputs first."""

    plan: Plan
    arrays: tuple[np.ndarray, ...]


def all_slots(plan: Plan) -> Plan:
    """The plan that returns every slot and updates nothing.

    Loops, branches and calls have several results: the slots of their `result` steps.
    """
    slots = tuple(Slot(s.out_slot) for s in plan.steps if not s.results)
    return replace(plan, results=slots, updates=())


def producer(plan: Plan, step: Step) -> Step:
    """The loop, branch or call that a `result` step selects a result of; other steps themselves."""
    source = step.args[0] if step.op == "result" else None
    return plan.steps[source.index] if isinstance(source, Slot) else step


def prefix(plan: Plan, steps: int) -> Plan:
    """The first `steps` steps: returns their values that the rest or the caller uses, and updates.

    Values that only the prefix uses are not returned, so fusion and placement are as in the whole.
    """
    used = {
        a.index
        for a in (*plan.results, *(a for s in plan.steps[steps:] for a in s.args))
        if isinstance(a, Slot) and a.index < steps
    }
    updates = tuple((i, v) for i, v in plan.updates if _is_available(v, steps))
    later = [v for _, v in plan.updates if not _is_available(v, steps)]
    used |= {a.index for a in later if isinstance(a, Slot) and a.index < steps}
    results: tuple[Arg, ...] = tuple(Slot(i) for i in sorted(used) if not plan.steps[i].results)
    if steps == len(plan.steps):
        results = plan.results
    return Plan(plan.signature, plan.steps[:steps], results, updates)


def _is_available(arg: Arg, steps: int) -> bool:
    return not isinstance(arg, Slot) or arg.index < steps


def cut(
    program: Program,
    slots: Mapping[int, np.ndarray],
    results: Sequence[Arg],
    updates: Sequence[tuple[int, Arg]] = (),
) -> Program:
    """Only the steps that `results` and `updates` need, with `slots` as inputs; drops the rest."""
    plan = program.plan
    count = len(plan.signature.inputs)
    reachable = _reach(plan, [*results, *(v for _, v in updates)], slots)
    kept_steps = [s for s in plan.steps if s.out_slot in reachable and s.out_slot not in slots]
    used = [a for s in kept_steps for a in s.args] + [*results, *(v for _, v in updates)]
    inputs = sorted({a.index for a in used if isinstance(a, Input)})
    params = sorted({a.index for a in used if isinstance(a, Param)} | {i for i, _ in updates})
    cut_slots = sorted({a.index for a in used if isinstance(a, Slot) and a.index in slots})
    renamed: dict[Arg, Arg] = {Input(old): Input(new) for new, old in enumerate(inputs)}
    renamed |= {Param(old): Param(new) for new, old in enumerate(params)}
    renamed |= {Slot(old): Input(len(inputs) + new) for new, old in enumerate(cut_slots)}
    renamed |= {Slot(s.out_slot): Slot(new) for new, s in enumerate(kept_steps)}

    def new(arg: Arg) -> Arg:
        return arg if isinstance(arg, Literal) else renamed[arg]

    signature = Signature(
        (
            *(plan.signature.inputs[i] for i in inputs),
            *(Argument(f"slot{i}", plan.steps[i].out_type) for i in cut_slots),
        ),
        tuple(plan.signature.params[i] for i in params),
    )
    steps = tuple(
        replace(s, args=tuple(new(a) for a in s.args), out_slot=k) for k, s in enumerate(kept_steps)
    )
    number = {old: k for k, old in enumerate(params)}
    arrays = (
        *(program.arrays[i] for i in inputs),
        *(slots[i] for i in cut_slots),
        *(program.arrays[count + i] for i in params),
    )
    return Program(
        Plan(
            signature,
            steps,
            tuple(new(r) for r in results),
            tuple((number[i], new(v)) for i, v in updates),
        ),
        arrays,
    )


def _reach(plan: Plan, roots: Sequence[Arg], cut_slots: Collection[int]) -> set[int]:
    """The slots that `roots` need, stopping at `cut_slots`."""
    reached: set[int] = set()
    stack = [a.index for a in roots if isinstance(a, Slot)]
    while stack:
        slot = stack.pop()
        if slot in reached:
            continue
        reached.add(slot)
        if slot not in cut_slots:
            stack += [a.index for a in plan.steps[slot].args if isinstance(a, Slot)]
    return reached


def describe(plan: Plan, step: Step) -> str:
    """`mul(f32[8,16], f32[16]) -> f32[8,16]`."""
    return f"{step.op}({', '.join(str(plan.type_of(a)) for a in step.args)}) -> {step.out_type}"
