"""Training steps as a graph of launches, and as tasks of one resident kernel.

    python benchmarks/gpu/persistent.py [--steps N] [--runs N] [--only-runs] [--device DEVICE]
                                        [--peers] [--trace]

Prints microseconds of a step with steps in the queue, batches on the device: by graph, by the
persistent kernel, and by `run_many` with N steps in one launch. The losses of the three are
compared bit by bit for equal kernels. `--runs` repeats one program of about 200 tasks that often,
and compares a checksum of all bits of its result in every run; `--only-runs` does no more.
`--peers` also measures torch.compile in a CUDA graph and jax, `--trace` prints the tasks of the
persistent kernel. `--device sim` checks this script.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from nova import nn, optim
from nova.artifact.tables import unpack_tables

ROUNDS = 9
WORKLOADS = {  # sizes of the layers, rows of a batch
    "MLP 64x[784,512,512,10]": ([784, 512, 512, 10], 64),
    "MLP 256x[256,256,256,16]": ([256, 256, 256, 16], 256),
    "linear 8x16->10": ([16, 10], 8),
}


def make_model(sizes: list[int]) -> Any:
    layers: list[Any] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    generator = np.random.default_rng(0)
    for param in model.parameters():
        param.data[...] = 0.05 * generator.standard_normal(param.shape, np.float32)
    return model


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return nova.cross_entropy(model(x), y)


def make_step(sizes: list[int], launch: str, device: str) -> Any:
    model = make_model(sizes)
    options = {"target": "cuda:sm_90a", "run_mode": "sim"} if device == "sim" else {}
    options = options or {"target": "cuda"}
    return nova.train_step(
        model, loss_of, optim.SGD(model.parameters(), lr=0.05), launch=launch, **options
    )


def per_call(run: Callable[[], Any], count: int) -> float:
    """Microseconds of a call, with all calls in the queue."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            last = run()
        float(np.asarray(last.numpy() if hasattr(last, "numpy") else last).ravel()[0])
        times.append((time.perf_counter() - started) / count * 1e6)
    return statistics.median(times)


PEERS = {"MLP 64x[784,512,512,10]": "train_mlp", "linear 8x16->10": "train_small"}


def measure_peers(name: str) -> None:
    from gpu.training import training_contenders

    for make in training_contenders(PEERS[name])[-2:]:
        peer = make()
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(200):
                peer.call()
            peer.wait()
            times.append((time.perf_counter() - started) / 200 * 1e6)
        print(f"{name:28} {peer.name} {statistics.median(times):8.2f} us a step", flush=True)


def print_tasks(name: str, device: str) -> None:
    sizes, rows = WORKLOADS[name]
    generator = np.random.default_rng(1)
    step = make_step(sizes, "persistent", device)
    batch = generator.standard_normal((rows, sizes[0]), np.float32), np.zeros(rows, np.int64)
    for _ in range(3):
        step(*batch)
    with nova.trace() as trace:
        step(*batch)
    print(name, trace.summary(), flush=True)


def measure(name: str, steps: int, device: str) -> None:
    sizes, rows = WORKLOADS[name]
    generator = np.random.default_rng(1)
    xs = generator.standard_normal((steps, rows, sizes[0]), np.float32)
    ys = generator.integers(0, sizes[-1], (steps, rows)).astype(np.int64)
    put = (lambda a: a) if device == "sim" else nova.to_device
    batch = put(xs[0]), put(ys[0])
    losses, figures = {}, {}
    for launch in ("graph", "persistent"):
        step = make_step(sizes, launch, device)
        losses[launch] = [
            float(np.asarray(step(x, y))) for x, y in zip(xs[:5], ys[:5], strict=True)
        ]
        figures[launch] = per_call(lambda step=step: step(*batch), 3 if device == "sim" else 400)
    many = make_step(sizes, "persistent", device)
    losses["many"] = [float(v) for v in np.asarray(many.run_many(xs[:5], ys[:5]))]
    stacked = put(xs), put(ys)
    figures["many"] = per_call(lambda: many.run_many(*stacked), 2) / steps
    difference = max(abs(a - b) for a, b in zip(losses["graph"], losses["many"], strict=True))
    equal = losses["persistent"] == losses["many"]
    print(
        f"{name:28} graph {figures['graph']:8.2f}  persistent {figures['persistent']:8.2f}  "
        f"{steps} steps a launch {figures['many']:8.2f} us a step; losses differ by "
        f"{difference:.1e}; run_many has the same bits: {equal}",
        flush=True,
    )


REPEATS = 1000
"""Runs in one launch of `repeat`."""
ALONE = 10
"""One in so many runs of `repeat` has a launch and a copy of its own, which take longest."""


def repeat(runs: int, device: str) -> None:
    """Run one program often, and compare a checksum of all bits of its result in every run.

    It is a chain with branches of matmuls, reductions and elementwise ops. Most of the runs are
    repetitions inside of a launch, and the others have a launch each.
    """
    generator = np.random.default_rng(2)
    x = nova.input((128, 64), "f32")
    weights = [generator.standard_normal((64, 64), np.float32) / 8 for _ in range(4)]
    h = x
    for w in weights:
        a, b = nova.tanh(h @ nova.tensor(w)), nova.softmax(h * 0.5, -1)
        h = a + b * (h - h.mean(-1, keepdims=True))
    bits = nova.cast(nova.bitcast(h, "i32"), "i64")
    positions = nova.tensor(np.arange(1, 8193, dtype=np.int64).reshape(128, 64))
    checksum = (bits * positions).sum(-1)
    options = {"run_mode": "sim"} if device == "sim" else {}
    target = "cuda:sm_90a" if device == "sim" else "cuda"
    program = nova.compile(checksum, inputs=[x], target=target, launch="persistent", **options)
    value = generator.standard_normal((128, 64), np.float32)
    first = np.asarray(program(value))
    executable = program._executable
    tables = unpack_tables(executable.artifact.file.tables(executable.variant))
    tasks = sum(prod(tables.kernels[launch.kernel].device.grid) for launch in tables.launches)
    repeated = runs - runs // ALONE
    per_launch = min(REPEATS, max(repeated, 1))
    native = executable.repeated(per_launch)
    put = (lambda a: a) if device == "sim" else nova.to_device
    stacked = put(np.ascontiguousarray(np.broadcast_to(value, (per_launch, *value.shape))))
    single, wrong, done, started = put(value), 0, 0, time.perf_counter()
    while done < repeated:
        sums = native(stacked, *program._values.get())
        sums = sums.numpy() if hasattr(sums, "numpy") else np.asarray(sums)
        wrong += int((sums != first).any(-1).sum())
        done += per_launch
    inside, middle = done, time.perf_counter()
    while done < runs:
        results = [program(single) for _ in range(min(REPEATS, runs - done))]
        for result in results:
            array = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
            wrong += not np.array_equal(array, first)
        done += len(results)
    ended = time.perf_counter()
    print(
        f"{done} runs of a program of {tasks} tasks, {wrong} with a wrong bit: "
        f"{inside} in launches of {per_launch}, {(middle - started) / inside * 1e6:.1f} us each; "
        f"{done - inside} alone, {(ended - middle) / max(done - inside, 1) * 1e6:.1f} us each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--device", default="cuda", choices=["cuda", "sim"])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--only-runs", action="store_true")
    args = parser.parse_args()
    names = list(WORKLOADS)[-1:] if args.device == "sim" else list(WORKLOADS)
    for name in [] if args.only_runs else names:
        measure(name, args.steps, args.device)
        if args.peers and name in PEERS:
            measure_peers(name)
        if args.trace:
            print_tasks(name, args.device)
    repeat(args.runs, args.device)


if __name__ == "__main__":
    main()
