"""Schedule search: kernel by kernel, decision by decision (coordinate descent), until time is up.

In: a module at any stage up to `buffers`, and settings with `tune` seconds. Out: settings without
`tune` and with the `schedules` that were found. The longest kernels come first, and each
gets a share of the time by its cost. A variant is accepted only if it wins clearly, so that noise
rarely decides.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from nova import knobs
from nova.codegen.common.overrides import NO_OVERRIDES, ScheduleOverrides, read_overrides
from nova.codegen.cpu.search_space import list_variants, merge
from nova.compiler.stages import passes_between
from nova.core.log import Progress, log, progress
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import ScheduleError, TargetError
from nova.ir.bindings import ir
from nova.ir.clone import copy_module
from nova.ir.walk import kernels, main_function
from nova.passes.base import run_pipeline
from nova.passes.cpu.choose_schedules import kernel_digest
from nova.passes.cpu.pack_constants import constant_arguments
from nova.passes.kernels.plan_tasks import kernel_ns
from nova.tuning.trial import Trial

_CLEARLY = 0.97
"""A variant is better if its time is at most this fraction of the best time."""

_WORTH_NS = 2_000.0
"""Kernels with a shorter estimated time, over all their calls, are not tuned."""


@dataclass(frozen=True)
class _Candidate:
    """A kernel to tune: its estimated time in a run of the program."""

    kernel: Any
    digest: str
    ns: float
    constants: frozenset[int]


def tune_settings(
    module: ir.Module, after: str, settings: Settings, bar: Progress | None = None
) -> Settings:
    """Try schedules for `settings.tune` seconds; `module`, at the stage `after`, is consumed.

    Shows its progress on `bar`, or on its own bar.
    """
    check_tunable(settings.target)
    started = time.monotonic()
    run_pipeline(module, passes_between(after, "buffers", settings))
    plain = replace(settings, tune=0.0)
    with progress("tuning", 100) if bar is None else nullcontext(bar) as progress_bar:
        search = _Search(plain, started, settings.tune, progress_bar)
        search.run(_candidates(module, plain))
    return replace(plain, schedules=tuple(search.schedules))


def check_tunable(target: str) -> None:
    """TargetError unless code for `target` runs on this machine, where it is timed."""
    target_spec, machine = parse_target(target), parse_target("cpu")
    missing = [f for f in target_spec.features if f not in machine.features]
    if target_spec.arch != machine.arch:
        missing = [target_spec.arch]
    if missing:
        raise TargetError(
            f"target {target!r} cannot be tuned on this machine, which lacks {', '.join(missing)}",
            hint="tune where the program will run, or leave tune out",
        )


def _candidates(module: ir.Module, settings: Settings) -> list[_Candidate]:
    """The kernels worth tuning, the longest first; deduplicated, so no two are equal."""
    main = main_function(module)
    calls = Counter(
        op.callee.value for op in main.entry_block.operations if op.operation.name == "func.call"
    )
    constants = constant_arguments(module)
    lowered = copy_module(module)
    run_pipeline(lowered, passes_between("buffers", "loops", settings))
    cost = {k.name.value: kernel_ns(k) for k in kernels(lowered)}
    candidates = [
        _Candidate(k, kernel_digest(k), cost[name] * calls[name], constants.get(name, frozenset()))
        for k in kernels(module)
        if cost[name := k.name.value] * calls[name] >= _WORTH_NS
    ]
    return sorted(candidates, key=lambda c: -c.ns)


class _Search:
    """One tuning session: its deadline, and the overrides for `choose-schedules` that it found."""

    def __init__(self, settings: Settings, started: float, seconds: float, bar: Progress):
        self.settings = settings
        self.started = started
        self.seconds = seconds
        self.bar = bar
        self.schedules: list[str] = []

    def run(self, candidates: list[_Candidate]) -> None:
        remaining_ns = sum(c.ns for c in candidates)
        for number, candidate in enumerate(candidates):
            now = time.monotonic()
            seconds_left = self.started + self.seconds - now
            if seconds_left <= 0:
                skipped = len(candidates) - number
                log("tune", f"time is up: {skipped} of {len(candidates)} kernels were not tried")
                break
            share = now + seconds_left * candidate.ns / remaining_ns
            remaining_ns -= candidate.ns
            overrides = self._tune(candidate, share)
            if overrides.explicit:
                self.schedules.append(f"{candidate.digest}:{overrides}")
        self.schedules.sort()

    def _tune(self, candidate: _Candidate, end: float) -> ScheduleOverrides:
        """The best overrides for one kernel until `end`; none if its own schedule is as good."""
        name = f"@{candidate.kernel.name.value}"
        trial = Trial(candidate.kernel, self.settings, candidate.constants)
        if trial.refused is not None:
            log("tune", f"{name}: not tuned: {trial.refused}")
            return NO_OVERRIDES
        target = parse_target(self.settings.target)
        decisions = list_variants(
            candidate.kernel, target, self.settings.tile_work, knobs.get("threads")
        )
        # The search starts from the overrides that the kernel already has.
        overrides = read_overrides(candidate.kernel)
        plain = best = trial.compile(overrides) if decisions else None
        tried = 0
        for decision in decisions:
            base = overrides
            for alternative in decision:
                if time.monotonic() >= end:
                    break
                self._show(f"{name}: {tried} tried")
                variant = merge(base, alternative)
                try:
                    program = trial.compile(variant)
                except ScheduleError:
                    continue  # not every combination is legal
                tried += 1
                old, new = trial.compare(best, program)
                # A win counts only if it is reproduced.
                if new < _CLEARLY * old and _is_better(trial, best, program):
                    overrides, best = variant, program
        if best is plain:
            log("tune", f"{name}: its schedule stays, {tried} others tried")
            return NO_OVERRIDES
        # Compare with the initial schedule once more: many small wins may have been noise.
        old, new = trial.compare(plain, best)
        verdict = "taken" if new < _CLEARLY * old else "not taken"
        log(
            "tune",
            f"{name}: {overrides} takes {new / 1e3:.1f} us instead of {old / 1e3:.1f}, "
            " "
            f"{tried} tried: {verdict}",
        )
        return overrides if verdict == "taken" else NO_OVERRIDES

    def _show(self, text: str) -> None:
        passed = (time.monotonic() - self.started) / self.seconds
        self.bar.advance(text, min(99, int(100 * passed)))


def _is_better(trial: Trial, best: Any, program: Any) -> bool:
    old, new = trial.compare(best, program)
    return new < _CLEARLY * old
