"""Predicted against measured times: `program.simulate(device="h200")` and runs on this GPU.

    python benchmarks/gpu/predict.py [--calls N] [--measured FILE] [NAME ...]

The programs are those of overlap.py, with the default launches. `--measured` takes the times from a
file that `overlap.py --json` wrote on an H200, and needs no GPU. The bar: within 20 %, the worst
within 35 %.
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

USUAL, WORST = 0.20, 0.35


def _compile_elsewhere() -> None:
    """Let the programs of overlap.py compile for an H200 that is not here."""
    compile_program, training = nova.compile, overlap.training

    def for_h200(*args: Any, **options: Any) -> Any:
        return compile_program(*args, **{**options, "target": "cuda:sm_90a", "run_mode": "sim"})

    nova.compile = for_h200
    nova.to_device = lambda array, *_: array
    overlap.training = lambda name, target="cuda:sm_90a": training(name, target)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(overlap.PROGRAMS)}")
    parser.add_argument("--calls", type=int, default=300, help="in a round (300)")
    parser.add_argument("--measured", type=Path, help="times of overlap.py --json")
    options = parser.parse_args(arguments)
    measured: dict[str, float] = {}
    if options.measured is not None:
        rows = json.loads(options.measured.read_text())
        measured = {row["name"]: row["us"]["auto"] for row in rows}
        _compile_elsewhere()
    errors = []
    print(f"{'program':<18}{'predicted':>12}{'measured':>12}{'ratio':>8}")
    for name in options.names or measured or overlap.PROGRAMS:
        call, program = overlap.PROGRAMS[name]()
        us = measured[name] if measured else overlap.microseconds(call, options.calls)
        predicted = program.simulate(device="h200").makespan / 1e3
        errors.append(abs(predicted / us - 1))
        print(f"{name:<18}{predicted:12.2f}{us:12.2f}{predicted / us:8.2f}", flush=True)
    usual = sum(error <= USUAL for error in errors)
    print(f"{usual} of {len(errors)} within {USUAL:.0%}; the worst is off by {max(errors):.0%}")
    return 0 if max(errors) <= WORST else 1


if __name__ == "__main__":
    sys.exit(main())
