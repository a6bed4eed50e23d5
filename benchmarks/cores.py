"""Speed on one core and on all: `python benchmarks/cores.py [--cores 16] [--only mlp,gpt]`.

Each contender runs each workload in its own process, on one core (by its affinity) and on all. The
processes of a workload import and compile concurrently; then one after the other is told to warm
up, time calls for some time and give the least. Contenders alternate, and the least of the rounds
counts. The table has milliseconds, the speed-ups, and the ratio of Nova's time to that of the best
peer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

Step = Callable[[], Any]
CONTENDERS = ("nova", "torch", "jax")
LAYERS, BATCH, RATE = (1024, 1024, 1024, 1024), 256, 0.01


# --- workloads ------------------------------------------------------------------------------------


def matmul(contender: str, size: int) -> Step:
    """Two square matrices of f32."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size)).astype("f4") for _ in range(2))
    if contender == "torch":
        import torch

        left, right = torch.from_numpy(a), torch.from_numpy(b)
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)
    if contender == "jax":
        import jax

        function = jax.jit(lambda x, y: x @ y)
        left, right = jax.numpy.asarray(a), jax.numpy.asarray(b)
        return lambda: function(left, right).block_until_ready()
    import nova

    x, y = nova.tensor(a, name="x"), nova.tensor(b, name="y")
    program = nova.compile(x @ y, inputs=[x, y])
    return lambda: program(a, b)


def mlp(contender: str) -> Step:
    """A step of SGD of an MLP with relu and cross entropy."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((BATCH, LAYERS[0])).astype("f4")
    y = generator.integers(0, LAYERS[-1], BATCH)
    weights = [(generator.standard_normal((n, m)) * 0.02).astype("f4") for n, m in pairwise(LAYERS)]
    biases = [np.zeros(n, "f4") for n in LAYERS[1:]]
    if contender == "torch":
        return _torch_mlp(x, y, weights, biases)
    if contender == "jax":
        return _jax_mlp(x, y, weights, biases)
    import nova
    from nova.graph.autodiff import gradients

    inputs = nova.tensor(x, name="x"), nova.tensor(y, name="y")
    params = [
        nova.tensor(a, requires_grad=True, name=f"p{i}") for i, a in enumerate([*weights, *biases])
    ]
    hidden = inputs[0]
    for i in range(len(weights)):
        hidden = hidden @ params[i] + params[len(weights) + i]
        hidden = nova.relu(hidden) if i + 1 < len(weights) else hidden
    loss = nova.cross_entropy(hidden, inputs[1])
    slopes = gradients(loss, params)
    updates = {p: p - RATE * g for p, g in zip(params, slopes, strict=True)}
    program = nova.compile(loss, inputs=inputs, params=params, updates=updates)
    values = [*weights, *biases]
    return lambda: program.run([x, y], values)


def _torch_mlp(x: Any, y: Any, weights: list[Any], biases: list[Any]) -> Step:
    import torch
    from torch.nn import functional

    params = [torch.from_numpy(a).requires_grad_() for a in (*weights, *biases)]
    optimizer = torch.optim.SGD(params, RATE)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)

    def step() -> Any:
        optimizer.zero_grad()
        hidden = inputs
        for i in range(len(weights)):
            hidden = hidden @ params[i] + params[len(weights) + i]
            hidden = functional.relu(hidden) if i + 1 < len(weights) else hidden
        loss = functional.cross_entropy(hidden, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _jax_mlp(x: Any, y: Any, weights: list[Any], biases: list[Any]) -> Step:
    import jax
    import jax.numpy as jnp

    def loss(params: list[Any]) -> Any:
        hidden = x
        for i in range(len(weights)):
            hidden = hidden @ params[i] + params[len(weights) + i]
            hidden = jax.nn.relu(hidden) if i + 1 < len(weights) else hidden
        rows = jax.nn.log_softmax(hidden)
        return -jnp.take_along_axis(rows, jnp.asarray(y)[:, None], 1).mean()

    @jax.jit
    def update(params: list[Any]) -> list[Any]:
        return [p - RATE * g for p, g in zip(params, jax.grad(loss)(params), strict=True)]

    state = {"params": [jnp.asarray(a) for a in (*weights, *biases)]}

    def step() -> None:
        state["params"] = update(state["params"])
        jax.block_until_ready(state["params"])

    return step


def gpt(contender: str) -> Step:
    """A step of AdamW of a GPT: 6 layers, width 384, 8 sequences of 256 tokens."""
    from workloads import train_gpt as workload

    workload.BATCH, workload.CONTEXT, workload.WIDTH = 8, 256, 384
    workload.HEADS, workload.LAYERS = 6, 6
    make = {
        "nova": workload.nova_training,
        "torch": workload.torch_training,
        "jax": workload.jax_training,
    }[contender]
    training = make(workload.arrays())
    return lambda: float(training.step())


WORKLOADS: dict[str, Callable[[str], Step]] = {
    "matmul_1024": lambda contender: matmul(contender, 1024),
    "matmul_4096": lambda contender: matmul(contender, 4096),
    "mlp": mlp,
    "gpt": gpt,
}


# --- processes ------------------------------------------------------------------------------------


_WARM_UP, _LEAST_CALLS = 2, 3
"""Calls before the first that counts, and calls that count at least, in a round."""


def measure(workload: str, contender: str, cores: int, seconds: float) -> None:
    """Print the least milliseconds of a call for each line of the standard input."""
    if contender == "torch":
        import torch

        torch.set_num_threads(cores)
    step = WORKLOADS[workload](contender)
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(_WARM_UP):
            step()
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < _LEAST_CALLS:
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps(min(times)), flush=True)


class Measurement:
    """A process that runs `measure` on so many cores, from core `first` on."""

    def __init__(self, workload: str, contender: str, cores: int, seconds: float, first: int):
        self.title = f"{workload} by {contender} on {cores}"
        available = sorted(os.sched_getaffinity(0))
        chosen = ",".join(str(available[(first + i) % len(available)]) for i in range(cores))
        variables = {
            "OMP_NUM_THREADS": str(cores),
            "NOVA_THREADS": str(cores),
            "BENCH_THREADS": str(cores),
            "JAX_PLATFORMS": "cpu",
        }
        self.process = subprocess.Popen(
            ["taskset", "-c", chosen, sys.executable, __file__, "--measure", workload, contender,
             str(cores), str(seconds)],
            env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def await_ready(self) -> None:
        """Wait until the process has compiled its workload."""
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def milliseconds(self) -> float:
        """The least time of a round; not a number if the process has failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            return float(json.loads(self.process.stdout.readline()))
        except (OSError, json.JSONDecodeError):
            print(f"{self.title} has failed", file=sys.stderr)
            return float("nan")

    def end(self) -> None:
        """Let the process end."""
        self.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--all-cores-only", action="store_true", help="not on one core")
    parser.add_argument("--measure", nargs=4)
    options = parser.parse_args()
    if options.measure:
        workload, contender, cores, seconds = options.measure
        measure(workload, contender, int(cores), float(seconds))
        return
    contenders = options.contenders.split(",")
    print("| workload | " + " | ".join(f"{c} 1 -> {options.cores}" for c in contenders), end="")
    print(" | speed-ups | nova / best peer |")
    print("|---|" + "---|" * (len(contenders) + 2), flush=True)
    counts = (options.cores,) if options.all_cores_only else (1, options.cores)
    for workload in options.only.split(","):
        measurements = {
            (c, n): Measurement(workload, c, n, options.seconds, i)
            for i, c in enumerate(contenders)
            for n in counts
        }
        for measurement in measurements.values():
            measurement.await_ready()
        least = dict.fromkeys(measurements, float("nan"))
        for _ in range(options.rounds):
            for key, measurement in measurements.items():
                least[key] = float(np.fmin(least[key], measurement.milliseconds()))
        for measurement in measurements.values():
            measurement.end()
        rows = [(least.get((c, 1), float("nan")), least[c, options.cores]) for c in contenders]
        peers = [row[1] for c, row in zip(contenders, rows, strict=True) if c != "nova"]
        ratio = least.get(("nova", options.cores), float("nan")) / min(peers, default=float("nan"))
        cells = [f"{one:.2f} -> {many:.2f}" for one, many in rows]
        speedups = ", ".join(f"{one / many:.1f}" for one, many in rows)
        print(f"| {workload} | {' | '.join(cells)} | {speedups} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
