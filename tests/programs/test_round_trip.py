"""Every model of the tests and examples: saved, loaded in a process without compilers, same bits.

The programs are saved with their weights inside, and all of them are loaded by one child process,
in which neither MLIR nor LLVM can be imported. The results of a run, and what a run updates, must
be the same to the last bit.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import test_models

import nova
from nova import nn, optim
from nova.frontends.safetensors import write_safetensors

ROOT = Path(__file__).parents[2]
OPS_PER_PROGRAM = 24
# What a machine that only runs programs need not have: all but numpy and ml_dtypes.
ABSENT = "torch_mlir llvmlite torch jax rich platformdirs cryptography"

CHILD = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[2].split():
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from pathlib import Path
import nova
from nova.frontends.safetensors import read_safetensors

def listed(arrays, prefix):
    return [arrays[f"{prefix}{i}"] for i in range(sum(n.startswith(prefix) for n in arrays))]

for path in sorted(Path(sys.argv[1]).glob("*.nova")):
    known = read_safetensors(path.with_suffix(".run"))
    model = nova.load(path)
    assert model.origin == "file", model.origin
    inputs = listed(known, "input")
    results = model.forward(*inputs)
    results = list(results) if isinstance(results, tuple) else [results]
    updated = list(model.params.values())
    for what, got, want in (
        ("result", results, listed(known, "result")), ("param", updated, listed(known, "param"))
    ):
        assert len(got) == len(want), f"{path.stem}: {len(got)} {what}s, not {len(want)}"
        for i, (mine, right) in enumerate(zip(got, want)):
            same = mine.shape == right.shape and mine.dtype == right.dtype
            if not same or mine.tobytes() != right.tobytes():
                print(f"{path.stem}: {what} {i} differs")
    print(f"ran {path.stem}")
assert not {"nova.ir", "nova.passes", "torch_mlir", "llvmlite"} & set(sys.modules)
"""


@dataclass(frozen=True)
class Case:
    """A program and what it is run with; params are those that it carries."""

    name: str
    program: nova.Compiled
    inputs: list[np.ndarray]


def example(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "examples"))


def loss_and_gradients(
    name: str, function: Callable[..., Any], inputs: dict[str, Any], params: dict[str, Any]
) -> Case:
    leaves = {n: nova.tensor(a, name=n) for n, a in inputs.items()}
    variables = {n: nova.tensor(a, name=n, requires_grad=True) for n, a in params.items()}
    program = nova.compile(
        function(**leaves, **variables),
        inputs=list(leaves.values()),
        params=list(variables.values()),
        include_backward=True,
    )
    return Case(name, program, list(inputs.values()))


def models_of_the_tests() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        word = np.dtype(dtype).name
        for batch, n_in, hidden, n_out in [(8, 16, 12, 10), (33, 70, 129, 10), (64, 200, 96, 17)]:
            inputs = {
                "x": rng.standard_normal((batch, n_in)).astype(dtype),
                "labels": rng.integers(0, n_out, batch),
            }
            shapes = {"w1": (n_in, hidden), "b1": (hidden,), "w2": (hidden, n_out), "b2": (n_out,)}
            params = test_models.weights(shapes, dtype)
            name = f"mlp-{batch}-{word}"
            yield loss_and_gradients(name, test_models.mlp_nova, inputs, params)
        width = 64
        inputs = {"x": rng.standard_normal((2, 24, width)).astype(dtype)}
        shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width))
        shapes |= {"g1": (width,), "c1": (width,)}
        shapes |= {"w1": (width, 4 * width), "w2": (4 * width, width)}
        params = test_models.weights(shapes, dtype)
        for knobs in test_models.BLOCK_KNOBS.values():
            with nova.knobs.override(**knobs):
                name = f"block-{len(knobs)}-{word}"
                yield loss_and_gradients(name, test_models.block_nova, inputs, params)


def models_of_the_examples() -> Iterator[Case]:
    rng = np.random.default_rng(2)
    digits, gpt, attention = example("digits"), example("gpt"), example("attention_block")
    images = rng.random((16, 64), np.float32)
    labels = rng.integers(0, 10, 16)
    model = digits.make_model()
    step = digits.make_step(model, 100)
    yield Case("digits-step", step.lower(images, labels), [images, labels])
    model.eval()
    x = nova.tensor(images, name="images")
    program = nova.compile(nova.softmax(model(x)), inputs=[x], params=model.parameters())
    yield Case("digits-eval", program, [images])
    nn.manual_seed(3)
    model = gpt.GPT(gpt.Config(vocabulary=40, context=16, width=32, layers=2))
    tokens, following = rng.integers(0, 40, (2, 2, 16))
    for precision in (None, "bf16", "f16"):
        step = nova.train_step(
            model,
            lambda m, t, f: m.loss(t, f),
            optim.AdamW(model.parameters(), lr=1e-3, clip_norm=1.0),
            precision=precision,
        )
        yield Case(f"gpt-{precision}", step.lower(tokens, following), [tokens, following])
    x = rng.standard_normal((attention.BATCH, attention.TIME, attention.WIDTH), np.float32)
    params = attention.make_parameters(rng)
    function = nova.jit(nova.value_and_grad(attention.loss))
    # Arguments of a jit function are inputs: its dict comes first, by name.
    arrays = [*(params[name] for name in sorted(params)), x, x]
    yield Case("attention", function.lower(params, x, x), arrays)
    y = rng.random(64, np.float32)
    X, Y = nova.tensor(rng.random((64, 3), np.float32), name="X"), nova.tensor(y, name="Y")
    W = nova.tensor(np.zeros(3, np.float32), requires_grad=True, name="W")
    loss = nova.mse_loss(X @ W, Y)
    nova.backward(loss)
    step = nova.compile(loss, inputs=[X, Y], params=[W], updates={W: W - 0.1 * W.grad})
    yield Case("regression", step, [X.data, Y.data])


def ops() -> Iterator[Case]:
    """The first case of every row of the op table, some rows per program."""
    sys.path.insert(0, str(ROOT / "tests/support/ops"))
    try:
        cases, samples = map(importlib.import_module, ("op_cases", "op_samples"))
    finally:
        sys.path.remove(str(ROOT / "tests/support/ops"))
    built = [cases.build(n, s.cases[0], s.usual) for n, s in samples.SAMPLES.items()]
    for start in range(0, len(built), OPS_PER_PROGRAM):
        group = built[start : start + OPS_PER_PROGRAM]
        inputs = [t for b in group for t in b.inputs]
        outputs = [t for b in group for t in b.outputs]
        arrays = [a for b in group for a in b.arrays]
        yield Case(f"ops-{start}", nova.compile(outputs, inputs=inputs), arrays)


def write(case: Case, folder: Path) -> None:
    """Save the program, run it, and write down what went in and what came out."""
    program = case.program
    path = folder / f"{case.name}.nova"
    program.save(path, weights="embed")
    params = [array.copy() for array in program.params.values()]
    inputs = [np.require(a, requirements="C") for a in case.inputs]
    results = program.run(inputs, params)
    listed = list(results) if isinstance(results, tuple) else [results]
    groups = {"input": inputs, "result": listed, "param": params}
    write_safetensors(
        path.with_suffix(".run"),
        {f"{name}{i}": a for name, arrays in groups.items() for i, a in enumerate(arrays)},
    )


@pytest.mark.parametrize(
    "make",
    [
        models_of_the_tests,
        pytest.param(models_of_the_examples, marks=pytest.mark.slow),
        ops,
    ],
)
def test_same_bits_in_a_process_without_compilers(
    make: Callable[[], Iterator[Case]], tmp_path: Path
) -> None:
    names = []
    for case in make():
        write(case, tmp_path)
        names.append(case.name)
    assert len(names) == len(set(names)) > 5
    completed = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), ABSENT],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert completed.returncode == 0, completed.stderr
    assert sorted(completed.stdout.splitlines()) == sorted(f"ran {name}" for name in names)
