"""Sound files that the tests of this folder damage, with the results that they have to give.

`write_sound_files` compiles them into a folder; each `NAME.nova` has its arrays in `NAME.npz`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import nova
from nova.artifact.sign import make_key_pair, sign_artifact
from nova.artifact.tables import Tables, TaskSpec
from nova.artifact.write import FileSpec, write_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings

# Room in the manifest for what a test adds to it.
FILLER = "filler"
# The file that runs on the simulated device.
HYBRID = "hybrid"
ROOM = 3000


def make_program() -> tuple[nova.Compiled, dict[str, np.ndarray]]:
    """A few kernels, constants, params of several types, one of which a run updates."""
    rng = np.random.default_rng(7)
    arrays = {
        "x": rng.standard_normal((48, 160)).astype("f4"),
        "w": rng.standard_normal((160, 96)).astype("f4"),
        "b": rng.standard_normal(96),
        "count": np.asarray(3, "i8"),
    }
    x, w, b, count = (nova.tensor(array, name=name) for name, array in arrays.items())
    table = nova.tensor(rng.standard_normal((48, 96)).astype("f4"))
    y = nova.softmax(nova.tanh(x @ w) + table)
    outputs = [y, y.sum(axis=0).cast("f64") * b]
    updates = {count: count + 1}
    return nova.compile(outputs, inputs=[x], params=[w, b, count], updates=updates), arrays


def make_contents() -> FileSpec:
    """What the file of the program is written from."""
    return build(make_program()[0].plan, Settings(), {}).contents


def write_sound_files(folder: Path) -> None:
    """With everything, with as little as possible, with tasks, signed, and for a device."""
    program, arrays = make_program()
    params = {name: array for name, array in arrays.items() if name != "x"}
    results = program.run([arrays["x"]], [array.copy() for array in params.values()])
    contents = make_contents()
    values = {i: array.reshape(-1).view("u1").data for i, array in enumerate(params.values(), 1)}
    files = {
        "full": write_artifact(_full(contents, values)),
        "plain": write_artifact(replace(contents, stages={}, source="", key={})),
        "tasks": write_artifact(_with_tasks(contents)),
    }
    key, _ = make_key_pair(folder / "key")
    files["signed"] = sign_artifact(files["plain"], key)
    for name, data in files.items():
        (folder / f"{name}.nova").write_bytes(data)
        inputs = () if name == "full" else params.values()
        np.savez(
            folder / f"{name}.npz",
            input0=arrays["x"],
            **{f"param{i}": array for i, array in enumerate(inputs)},
            **{f"output{i}": array for i, array in enumerate(results)},
        )
    write_hybrid_file(folder)


def write_hybrid_file(folder: Path) -> None:
    """A small program of a device with a kernel of the host, which runs on the simulated one."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 8)).astype("f4")
    X = nova.tensor(x, name="x")
    hidden = nova.tanh(X @ rng.standard_normal((8, 8)).astype("f4"))
    with nova.device("cpu"):
        weights = nova.softmax(hidden)
    program = nova.compile([weights, weights * 2 + hidden], inputs=[X])
    data = nova.translate(program, targets="cuda:sm_80").data
    (folder / f"{HYBRID}.nova").write_bytes(data)
    results = nova.load(folder / f"{HYBRID}.nova", device="sim").run([x])
    outputs = {f"output{i}": np.asarray(array) for i, array in enumerate(results)}
    np.savez(folder / f"{HYBRID}.npz", input0=x, **outputs)


def _full(contents: FileSpec, values: Mapping[int, memoryview]) -> FileSpec:
    """Two variants, of which the better one runs nowhere, and the values of all params."""
    (variant,) = contents.variants
    target = variant.target
    better = replace(
        target, name="better", features=tuple(sorted({*target.features, "no-such-feature"}))
    )
    return replace(
        contents,
        variants=(variant, replace(variant, target=better)),
        weights=values,
        key={FILLER: "x" * ROOM},
    )


def _with_tasks(contents: FileSpec) -> FileSpec:
    """Two tasks for launches that can be cut in two, each launch behind the one before it."""
    (variant,) = contents.variants
    return replace(
        contents,
        variants=(replace(variant, tables=replace(variant.tables, tasks=_tasks(variant.tables))),),
        key={FILLER: "x" * ROOM},
    )


def _tasks(tables: Tables) -> tuple[TaskSpec, ...]:
    pieces = []
    for launch in tables.launches:
        grid = tables.kernels[launch.kernel].grid
        cuts = [0, grid // 2, grid] if grid > 1 else [0, grid]
        pieces.append(list(pairwise(cuts)))
    tasks: list[TaskSpec] = []
    for number, ranges in enumerate(pieces):
        waits = len(pieces[number - 1]) if number else 0
        first = len(tasks) + len(ranges)
        more = len(pieces[number + 1]) if number + 1 < len(pieces) else 0
        successors = tuple(range(first, first + more))
        tasks += [TaskSpec(number, waits, low, high, successors) for low, high in ranges]
    return tuple(tasks)
