"""Damaged texts through the compiler, in one process: `text_child.py SEEDS FIRST LAST`.

The number of the text at work is printed first, so that whoever started this process knows which
text has killed it. Every text must be compiled, or be refused with an error of Nova: a traceback
ends this process, and so does a crash of it. The compiler's own child may die; that is an error
like any other. What is accepted is checked: a plan is run and compared with the numpy interpreter,
and the later stages of a text must give the same code from their own text. The last line is a
summary in JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from stage_texts import EMITS, Seed, arrays_of, mutate, read_seeds

import nova
from nova.debug.oracle import arg_value, step_value
from nova.errors import NovaError, SandboxError
from nova.gpusim.image import decode_image
from nova.plan import Plan, parse_plan

SECONDS = 60
TEXT_SECONDS = 20
MOST_ELEMENTS = 1 << 20


def try_text(seed: Seed, text: str, number: int) -> str:
    try:
        if seed.stage == "plan":
            return try_plan(text, number)
        if seed.stage == "ptx":
            decode_image(text)
            return "accepted"
        emit = EMITS.get(seed.stage or "", "so")
        completed = nova.translate(text, targets=seed.target, start_from=seed.stage, emit=emit)
    except SandboxError as error:
        if error.what.startswith("stage ") and "does not take the text" in error.what:
            return "refused by a stage"
        return "stopped" if "seconds" in error.what else "crashed"
    except NovaError as error:
        assert str(error).strip(), "an empty message"
        return type(error).__name__
    if emit == "so" and number % 8 == 0:
        check_stages(seed, completed)
    return "accepted"


def check_stages(seed: Seed, done: nova.Translation) -> None:
    """The text of a later stage must give the code that the whole way gave."""
    stage = "buffers"
    if stage not in done.stages:
        return
    again = nova.translate(done.stages[stage], targets=seed.target, start_from=stage)
    first, second = (list(t.stages.items())[-1] for t in (done, again))
    assert first == second, "another program from the text of a later stage"


def try_plan(text: str, number: int) -> str:
    plan = parse_plan(text)
    sizes = [a.type.shape for a in plan.signature.arguments] + [
        s.out_type.shape for s in plan.steps
    ]
    if any(np.prod([max(n, 1) for n in shape], dtype=float) > MOST_ELEMENTS for shape in sizes):
        return "accepted, large"
    program = nova.compile_plan(text)
    args = arrays_of(program.signature.arguments, number)
    count = len(plan.signature.inputs)
    supplied = [array.copy() for array in args]
    actual = program.run(supplied[:count], supplied[count:] or None)
    actual = actual if isinstance(actual, tuple | list) else [actual]
    for value, want in zip(actual, plan_values(plan, args), strict=True):
        np.testing.assert_allclose(
            value.astype("f8"), want.astype("f8"), rtol=1e-2, atol=1e-2, equal_nan=True
        )
    return "accepted and right"


def plan_values(plan: Plan, args: list[np.ndarray]) -> list[np.ndarray]:
    """What numpy says that the plan gives."""
    slots: list[np.ndarray] = []
    for step in plan.steps:
        slots.append(step_value(step, [arg_value(plan, a, args, slots) for a in step.args]))
    return [arg_value(plan, a, args, slots) for a in plan.results]


def main(path: Path, first: int, last: int) -> None:
    seeds = read_seeds(path)
    outcomes: Counter[str] = Counter()
    nova.knobs.text_seconds = TEXT_SECONDS
    nova.knobs.cache = False
    nova.knobs.threads = 1
    started = time.process_time()
    for number in range(first, last):
        print(number, flush=True)
        signal.alarm(SECONDS)
        seed, text = mutate(seeds, number)
        try:
            outcome = try_text(seed, text, number)
        except BaseException as error:
            error.add_note(f"text {number}: {seed.name}\n{text[:20_000]}")
            raise
        signal.alarm(0)
        outcomes[outcome] += 1
        outcomes[f"{seed.stage or 'imported'}: {outcome}"] += 1
    print(f"{time.process_time() - started:.1f} s here", file=sys.stderr)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    path, first, last = sys.argv[1:]
    main(Path(path), int(first), int(last))
