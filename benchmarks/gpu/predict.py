"""Predicted against measured times: `program.simulate(device="h200")` and runs on this GPU.

    python benchmarks/gpu/predict.py [--calls N] [--json FILE] [--measured FILE] [NAME ...]

The programs are those of overlap.py, each as a graph of launches and as a persistent kernel. A row
has both times of both launches, and whether the launch with the lower prediction is also the faster
one. `--json` writes the measured times; `--measured` reads such a file from an H200, and needs no
GPU. The bar: within 20 %, the worst within 35 %, and the right launch for 9 of 10 programs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import overlap

import nova
from nova import knobs

USUAL, WORST, RANKED = 0.20, 0.35, 0.9
LAUNCHES = ("graph", "persistent")
_ORDER = {True: "right launch", False: "WRONG LAUNCH"}


def _compile_elsewhere() -> None:
    """Let the programs of overlap.py compile for an H200 that is not here."""
    compile_program, training = nova.compile, overlap.training

    def for_h200(*args: Any, **options: Any) -> Any:
        return compile_program(*args, **{**options, "target": "cuda:sm_90a", "run_mode": "sim"})

    nova.compile = for_h200
    nova.to_device = lambda array, *_: array
    overlap.training = lambda name, target="cuda:sm_90a": training(name, target)


def _predict(name: str, calls: int) -> tuple[float, float | None]:
    """Predicted and measured microseconds of a call; nothing is run with `calls` of 0."""
    call, program = overlap.PROGRAMS[name]()
    measured = overlap.microseconds(call, calls) if calls else None
    return program.simulate(device="h200").makespan / 1e3, measured


def _row(name: str, predicted: dict[str, float], measured: dict[str, float]) -> str:
    pairs = [(predicted[launch], measured[launch]) for launch in LAUNCHES]
    figures = "".join(f"{ours:12.2f}{us:12.2f}{ours / us:8.2f}" for ours, us in pairs)
    return f"{name:<18}{figures}  {_ORDER[_ranks_right(predicted, measured)]}"


def _ranks_right(predicted: dict[str, float], measured: dict[str, float]) -> bool:
    return min(LAUNCHES, key=predicted.__getitem__) == min(LAUNCHES, key=measured.__getitem__)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(overlap.PROGRAMS)}")
    parser.add_argument("--calls", type=int, default=300, help="in a round (300)")
    parser.add_argument("--json", type=Path, help="write the measured times to this file")
    parser.add_argument("--measured", type=Path, help="times that --json wrote on an H200")
    options = parser.parse_args(arguments)
    known: dict[str, dict[str, float]] = {}
    if options.measured is not None:
        known = json.loads(options.measured.read_text())
        _compile_elsewhere()
    errors, right, times = [], [], {}
    print(
        f"{'program':<18}"
        + "".join(f"{launch:>12}{'measured':>12}{'ratio':>8}" for launch in LAUNCHES)
    )
    for name in options.names or known or overlap.PROGRAMS:
        predicted, measured = {}, known.get(name, {})
        for launch in LAUNCHES:
            with knobs.override(launch=launch):
                predicted[launch], us = _predict(name, 0 if known else options.calls)
            if us is not None:
                measured[launch] = us
        errors += [abs(predicted[launch] / measured[launch] - 1) for launch in LAUNCHES]
        right.append(_ranks_right(predicted, measured))
        times[name] = measured
        print(_row(name, predicted, measured), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(times))
    usual = sum(error <= USUAL for error in errors)
    print(f"{usual} of {len(errors)} within {USUAL:.0%}; the worst is off by {max(errors):.0%}")
    print(f"the faster launch is predicted for {sum(right)} of {len(right)} programs")
    return 0 if max(errors) <= WORST and sum(right) >= RANKED * len(right) else 1


if __name__ == "__main__":
    sys.exit(main())
