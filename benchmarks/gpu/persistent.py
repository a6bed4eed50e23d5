"""Training steps as a graph of launches, and as tasks of one resident kernel.

    python benchmarks/gpu/persistent.py [--steps N] [--runs N] [--device DEVICE] [--peers] [--trace]

Prints microseconds of a step with steps in the queue, batches on the device: by graph, by the
persistent kernel, and by `run_many` with N steps in one launch. The losses of the three are
compared bit by bit for equal kernels. `--runs` repeats one program that often and compares its
result with that of the first run. `--peers` also measures torch.compile in a CUDA graph and jax,
`--trace` prints the tasks of the persistent kernel. `--device sim` checks this script.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from nova import nn, optim

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


def repeat(runs: int, device: str) -> None:
    """Run one program often: a chain and branches of matmuls, reductions and elementwise ops."""
    generator = np.random.default_rng(2)
    x = nova.input((192, 160), "f32")
    weights = [generator.standard_normal((160, 160), np.float32) / 13 for _ in range(6)]
    h = x
    for w in weights:
        a, b = nova.tanh(h @ nova.tensor(w)), nova.softmax(h * 0.5, -1)
        h = a + b * (h - h.mean(-1, keepdims=True))
    options = {"run_mode": "sim"} if device == "sim" else {}
    target = "cuda:sm_90a" if device == "sim" else "cuda"
    program = nova.compile(h, inputs=[x], target=target, launch="persistent", **options)
    value = generator.standard_normal((192, 160), np.float32)
    on_device = value if device == "sim" else nova.to_device(value)
    first = np.asarray(program(value))
    wrong, started = 0, time.perf_counter()
    for i in range(runs):
        result = program(on_device)
        if i % 1000 == 999 or i == runs - 1:
            array = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
            wrong += not np.array_equal(array, first)
    seconds = time.perf_counter() - started
    print(f"{runs} runs of a program in {seconds:.1f} s, {wrong} samples with a wrong bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--device", default="cuda", choices=["cuda", "sim"])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    for name in list(WORKLOADS)[-1:] if args.device == "sim" else WORKLOADS:
        measure(name, args.steps, args.device)
        if args.peers and name in PEERS:
            measure_peers(name)
        if args.trace:
            print_tasks(name, args.device)
    repeat(args.runs, args.device)


if __name__ == "__main__":
    main()
