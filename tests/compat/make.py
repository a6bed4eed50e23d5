"""Makes the file of the current format version: `python tests/compat/make.py`, once a version.

A file that was released is never made again: `test_compat.py` proves that it still loads and still
gives the results recorded beside it. The program uses what the format knows: several types,
constants, a param with its value in the file, a param that a run updates, several results.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nova
from nova.artifact.manifest import FORMAT_VERSION
from nova.plan import build_plan, print_plan

FOLDER = Path(__file__).parent


def main() -> None:
    path = FOLDER / f"format-{FORMAT_VERSION}.nova"
    if path.exists():
        raise SystemExit(f"{path.name} is there: a released file stays as it is")
    rng = np.random.default_rng(2)
    arrays = {
        "x": rng.standard_normal((5, 8)).astype("f4"),
        "index": rng.integers(0, 8, (5,)),
        "mask": rng.integers(0, 2, (5, 6)).astype(bool),
        "w": rng.standard_normal((8, 6)).astype("f4"),
        "count": np.asarray(3, "i4"),
    }
    x, index, mask, w, count = (nova.tensor(a, name=n) for n, a in arrays.items())
    hidden = nova.where(mask, nova.softmax(x @ w), rng.standard_normal((5, 6)).astype("f4"))
    outputs = [hidden, hidden.sum(axis=0).cast("f64"), nova.take(w, index, axis=0).cast("f16")]
    plan = build_plan(outputs, [x, index, mask], [w, count], {count: count + 1})
    # By its text, without the lines of this file; every x86-64 CPU runs it and gives the same bits.
    program = nova.compile_plan(print_plan(plan, locations=False), target="x86_64")
    values = {name: arrays[name] for name in ("w", "count")}
    program.save(path, weights="embed", params=values)
    inputs = [arrays[name] for name in ("x", "index", "mask")]
    updated = arrays["count"].copy()
    results = program.run(inputs, [arrays["w"], updated])
    recorded = {f"input{i}": array for i, array in enumerate(inputs)}
    recorded |= {f"output{i}": array for i, array in enumerate(results)}
    np.savez_compressed(path.with_suffix(".npz"), **recorded, param_count=updated)


if __name__ == "__main__":
    main()
