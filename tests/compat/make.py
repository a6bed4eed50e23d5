"""Makes the files of the current format version: `python tests/compat/make.py`, once a version.

A file that was released is never made again: `test_compat.py` proves that it still loads and still
gives the results recorded beside it. The programs use what the format knows: several types,
constants, a param with its value in the file, a param that a run updates, several results; code for
a CPU and two GPUs, and kernels of the host between those of a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import nova
from nova.artifact.manifest import FORMAT_VERSION
from nova.plan import build_plan, print_plan

FOLDER = Path(__file__).parent
GPUS = ["cuda:sm_80", "cuda:sm_90a"]


def main() -> None:
    for mode, make in (("format", make_plain), ("devices", make_devices), ("mixed", make_mixed)):
        path = FOLDER / mode / f"{mode}-{FORMAT_VERSION}.nova"
        if path.exists():
            raise SystemExit(f"{path.name} is there: a released file stays as it is")
        make(path)


def make_plain(path: Path) -> None:
    """A program for every x86-64 CPU, which gives the same bits on all of them."""
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
    # By its text, without the lines of this file.
    program = nova.compile_plan(print_plan(plan, locations=False), target="x86_64")
    values = {name: arrays[name] for name in ("w", "count")}
    program.save(path, weights="embed", params=values)
    inputs = [arrays[name] for name in ("x", "index", "mask")]
    updated = arrays["count"].copy()
    results = program.run(inputs, [arrays["w"], updated])
    recorded = {f"input{i}": array for i, array in enumerate(inputs)}
    recorded |= {f"output{i}": array for i, array in enumerate(results)}
    np.savez_compressed(path.with_suffix(".npz"), **recorded, param_count=updated)


def make_devices(path: Path) -> None:
    """One step of training for the CPU and two GPUs."""
    _make_step(path, pinned=False)


def make_mixed(path: Path) -> None:
    """The same with a softmax that stays on the host."""
    _make_step(path, pinned=True)


def _make_step(path: Path, *, pinned: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 8)).astype("f4")
    w = rng.standard_normal((8, 8)).astype("f4")
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w", requires_grad=True)
    hidden = nova.tanh(X @ W) + np.linspace(0, 1, 8, dtype="f4")
    with nova.device("cpu" if pinned else "cuda"):
        weights = nova.softmax(hidden)
    loss = ((weights @ W) ** 2).mean()
    nova.backward(loss)
    plan = build_plan([loss, weights], [X], [W], {W: W - 0.5 * W.grad})
    program = nova.compile_plan(print_plan(plan, locations=False), target="x86_64")
    created = nova.translate(program, targets=["x86_64", *GPUS])
    created.save(path)
    updated = w.copy()
    result: list[Any] = list(nova.load(path).run([x], [updated]))
    np.savez_compressed(
        path.with_suffix(".npz"), x=x, w=w, loss=result[0], weights=result[1], updated=updated
    )


if __name__ == "__main__":
    main()
