"""The tour of Nova: define a model, watch it being compiled, train it, save it, load it again.

`make demo` runs this. The model is a small MLP that learns to tell two spirals apart. One compiled
program does a whole training step: forward, backward and the update of the parameters in place.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import nova

POINTS, HIDDEN, STEPS, RATE, MOMENTUM = 256, 48, 1200, 0.05, 0.9
OUT = Path(__file__).parents[1] / "build"


def make_spirals(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on two spirals, and which of the two each point is on."""
    turn = np.sqrt(rng.uniform(0.02, 1.0, POINTS)) * 3 * np.pi
    label = np.arange(POINTS) % 2
    angle = turn + np.pi * label
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / 6
    points += rng.normal(0, 0.02, points.shape)
    return points.astype(np.float32), label.astype(np.int64)


def make_parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = [2, HIDDEN, HIDDEN, 2]
    arrays: dict[str, np.ndarray] = {}
    for layer, (rows, columns) in enumerate(pairwise(sizes), 1):
        weight = rng.normal(0, np.sqrt(2 / rows), (rows, columns))
        arrays[f"W{layer}"] = weight.astype(np.float32)
        arrays[f"b{layer}"] = np.zeros(columns, np.float32)
    return arrays


def model(x: nova.Tensor, p: dict[str, nova.Tensor]) -> nova.Tensor:
    """The scores of both classes for each point."""
    hidden = nova.gelu(x @ p["W1"] + p["b1"])
    hidden = nova.gelu(hidden @ p["W2"] + p["b2"])
    return hidden @ p["W3"] + p["b3"]


def compile_step(
    points: np.ndarray, labels: np.ndarray, arrays: dict[str, np.ndarray]
) -> nova.Compiled:
    """One program: the loss, its gradients, and SGD with momentum on all parameters."""
    X, Y = nova.tensor(points, name="X"), nova.tensor(labels, name="Y")
    params = {n: nova.tensor(a, requires_grad=True, name=n) for n, a in arrays.items()}
    speeds = {n: nova.tensor(np.zeros_like(a), name=f"v_{n}") for n, a in arrays.items()}
    loss = nova.cross_entropy(model(X, params), Y)
    nova.backward(loss)
    updates = {}
    for name, param in params.items():
        speed = MOMENTUM * speeds[name] + param.grad
        updates[speeds[name]] = speed
        updates[param] = param - RATE * speed
    state = [*params.values(), *speeds.values()]
    return nova.compile(loss, inputs=[X, Y], params=state, updates=updates)


def show_stages(step: nova.Compiled) -> None:
    """Size, time and the first telling lines of every stage."""
    about = {
        "plan": ("the frozen linear program", "slot["),
        "nova": ("the nova dialect of MLIR", '"nova.'),
        "linalg": ("loops over tensors, fused", "linalg.generic"),
        "kernels": ("groups of ops, one function each", "call @"),
        "buffers": ("memory for every value, planned", "memref.view"),
        "loops": ("tiled and vectorized loops", "vector."),
        "llvm": ("the LLVM dialect", "llvm.func"),
        "ll": ("LLVM IR", "define"),
        "object": ("machine code", ""),
        "artifact": ("one file: code, tables, texts", ""),
    }
    for stage, (what, telling) in about.items():
        metrics = step.metrics.get(stage)
        took = f"{metrics['seconds'] * 1e3:7.1f} ms" if metrics else "  from cache"
        size = metrics["bytes"] if metrics else len(step.stages.get(stage, ""))
        print(f"  {stage:<9} {what:<34} {size:>8,} bytes {took}")
        lines = [line for line in step.stages.get(stage, "").splitlines() if telling in line]
        for line in lines[:2] if telling else []:
            line = line.partition("    #")[0].strip()
            print(f"      {line if len(line) <= 90 else line[:89] + '…'}")
    print(f"  {len(step.kernels)} kernels, {step.workspace_size:,} bytes of workspace")


def train(
    step: nova.Compiled, points: np.ndarray, labels: np.ndarray, state: list[np.ndarray]
) -> list[float]:
    """Run the step; `state` changes in place. Returns the losses."""
    losses = []
    started = time.perf_counter()
    for number in range(STEPS):
        losses.append(float(step.run([points, labels], state)))
        if number % (STEPS // 6) == 0 or number == STEPS - 1:
            print(f"  step {number:4d}   loss {losses[-1]:.4f}")
    seconds = time.perf_counter() - started
    print(f"  {STEPS} steps in {seconds:.2f} s, {seconds / STEPS * 1e6:,.0f} µs a step")
    return losses


def main() -> None:
    rng = np.random.default_rng(7)
    points, labels = make_spirals(rng)
    arrays = make_parameters(rng)

    print("1. Compile one training step (forward, backward, update)")
    # The demo shows the compile itself, so it does not take the program from the disk cache.
    with nova.knobs.override(cache=False):
        started = time.perf_counter()
        step = compile_step(points, labels, arrays)
        seconds = time.perf_counter() - started
    show_stages(step)
    print(f"  compiled for {step.target} in {seconds:.2f} s, MLIR and LLVM loaded on the way")

    print("\n2. Train: every run updates the parameters in place")
    state = [*arrays.values(), *(np.zeros_like(a) for a in arrays.values())]
    losses = train(step, points, labels, state)
    if not losses[-1] < losses[0] / 5:
        raise SystemExit(f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}")

    print("\n3. Save the trained model, load it again")
    X = nova.tensor(points, name="X")
    params = {n: nova.tensor(a, name=n) for n, a in arrays.items()}
    predict = nova.compile(nova.softmax(model(X, params)), inputs=[X], params=list(params.values()))
    OUT.mkdir(exist_ok=True)
    path = OUT / "model.nova"
    predict.save(path)
    loaded = nova.load(path)
    before = predict.run([points], list(arrays.values()))
    after = loaded.run([points], list(arrays.values()))
    if not np.array_equal(before, after):
        raise SystemExit("the loaded model computes something else")
    accuracy = (after.argmax(axis=1) == labels).mean()
    print(f"  {path.parent.name}/{path.name}: {path.stat().st_size:,} bytes")
    print(f"  {accuracy:.1%} of the points are told apart; the numbers are the same, bit for bit")


if __name__ == "__main__":
    main()
