"""Training steps that take batches while they run, and calls that a resident program answers.

    python benchmarks/gpu/ring.py [--steps N] [--calls N] [--device DEVICE]

Prints microseconds of a step of `run_many` with a generator of host arrays, beside steps one by one
with the same arrays and `run_many` with all of them stacked; and of a call of `program.serve()`,
beside a call of the program, from one thread and from four. Results are compared bit by bit.
`--device sim` checks this script.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import nova
from gpu.persistent import WORKLOADS, make_step

ROUNDS = 5


def measure_steps(name: str, steps: int, device: str) -> None:
    sizes, rows = WORKLOADS[name]
    generator = np.random.default_rng(1)
    xs = generator.standard_normal((steps, rows, sizes[0]), np.float32)
    ys = generator.integers(0, sizes[-1], (steps, rows)).astype(np.int64)
    ways: dict[str, Any] = {
        "one by one": lambda step: [step(x, y) for x, y in zip(xs, ys, strict=True)],
        "stacked": lambda step: step.run_many(xs, ys),
        "generator": lambda step: step.run_many((x, y) for x, y in zip(xs, ys, strict=True)),
    }
    texts, losses = [], []
    for way, run in ways.items():
        step = make_step(sizes, "persistent", device)
        losses.append(np.asarray(run(step)))
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            run(step)
            times.append((time.perf_counter() - started) / steps * 1e6)
        texts.append(f"{way} {statistics.median(times):8.2f}")
    same = all(np.array_equal(losses[0], other) for other in losses)
    print(f"{name:28} {', '.join(texts)} us a step; same bits: {same}", flush=True)


def measure_calls(size: int, calls: int, device: str) -> None:
    generator = np.random.default_rng(2)
    x = nova.input((8, size), "f32")
    weights = [generator.standard_normal((size, size), np.float32) / size**0.5 for _ in range(3)]
    h = x
    for w in weights:
        h = nova.tanh(h @ nova.tensor(w))
    options = {"target": "cuda:sm_90a", "run_mode": "sim"} if device == "sim" else {}
    options = options or {"target": "cuda"}
    values = [generator.standard_normal((8, size), np.float32) for _ in range(16)]
    texts, wrong = [], 0
    for launch in ("graph", "persistent"):
        program = nova.compile(h, inputs=[x], launch=launch, **options)
        expected = [program(value) for value in values]
        times = []
        for i in range(calls):
            started = time.perf_counter()
            program(values[i % 16])
            times.append((time.perf_counter() - started) * 1e6)
        texts.append(f"{launch} {statistics.median(times):8.2f}")
    with program.serve() as server:
        times = []
        for i in range(calls):
            started = time.perf_counter()
            result = server(values[i % 16])
            times.append((time.perf_counter() - started) * 1e6)
            wrong += not np.array_equal(result, expected[i % 16])
        texts.append(f"server {statistics.median(times):8.2f}")
        with ThreadPoolExecutor(4) as pool:
            started = time.perf_counter()
            for i, result in enumerate(pool.map(server, [values[i % 16] for i in range(calls)])):
                wrong += not np.array_equal(result, expected[i % 16])
            seconds = time.perf_counter() - started
        texts.append(f"four threads {seconds / calls * 1e6:8.2f}")
    print(f"8x{size}, 3 layers: {', '.join(texts)} us a call; {wrong} wrong", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--device", default="cuda", choices=["cuda", "sim"])
    args = parser.parse_args()
    for name in list(WORKLOADS)[-1:] if args.device == "sim" else WORKLOADS:
        measure_steps(name, args.steps, args.device)
    for size in (32,) if args.device == "sim" else (32, 512):
        measure_calls(size, args.calls, args.device)


if __name__ == "__main__":
    main()
