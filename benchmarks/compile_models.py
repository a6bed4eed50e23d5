"""Cold compiles of models: Nova next to jax.jit, from the same StableHLO, in one run.

In: the forward passes of BERT-base (one sentence of 128 tokens) and ResNet-50 (one image of 224 by
224), written with jax, f32, random weights as arguments. Each compile runs in a new process without
disk caches; contenders are interleaved. Out: per model the median wall and CPU seconds of a
compile, and Nova's over jax's.

What is measured is the compile alone: for jax `lowered.compile()`, for Nova `nova.translate` of
the text of the same `lowered` and `load`, to a program in memory. Both after tracing, and after the
compile of a small function, which loads the compilers. Results are compared before times are
reported.

    python benchmarks/compile_models.py [--only bert] [--rounds 5] [--stages]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 2e-3
now = time.perf_counter

# --- the models in jax ----------------------------------------------------------------------------

WIDTH, HEADS, HIDDEN, LAYERS, VOCABULARY, TOKENS = 768, 12, 3072, 12, 30522, 128


def bert_weights(rng: np.random.Generator) -> dict[str, Any]:
    def array(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape)).astype(np.float32)

    def norm() -> dict[str, np.ndarray]:
        return {"scale": 1 + array(WIDTH), "bias": array(WIDTH)}

    def dense(rows: int, columns: int) -> dict[str, np.ndarray]:
        return {"kernel": array(rows, columns), "bias": array(columns)}

    layers = [
        {
            **{name: dense(WIDTH, WIDTH) for name in ("query", "key", "value", "out")},
            "attention_norm": norm(),
            "up": dense(WIDTH, HIDDEN),
            "down": dense(HIDDEN, WIDTH),
            "norm": norm(),
        }
        for _ in range(LAYERS)
    ]
    tables = {"words": array(VOCABULARY, WIDTH), "positions": array(512, WIDTH)}
    return {**tables, "types": array(2, WIDTH), "norm": norm(), "layers": layers}


def bert(weights: dict[str, Any], ids: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def dense(w: Any, x: Any) -> Any:
        return x @ w["kernel"] + w["bias"]

    def norm(w: Any, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * w["scale"] + w["bias"]

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    x = weights["words"][ids] + weights["positions"][: ids.shape[1]] + weights["types"][0]
    x = norm(weights["norm"], x)
    for layer in weights["layers"]:
        query, key, value = (heads(dense(layer[name], x)) for name in ("query", "key", "value"))
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / (WIDTH // HEADS) ** 0.5
        context = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), value)
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(layer["attention_norm"], x + dense(layer["out"], context))
        x = norm(
            layer["norm"],
            x + dense(layer["down"], jax.nn.gelu(dense(layer["up"], x), approximate=False)),
        )
    return x


STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride


def resnet50_weights(rng: np.random.Generator) -> dict[str, Any]:
    def convolution(size: int, inputs: int, outputs: int) -> dict[str, np.ndarray]:
        scale = (2 / (size * size * inputs)) ** 0.5
        kernel = scale * rng.standard_normal((size, size, inputs, outputs))
        statistics = 1 + 0.1 * rng.random((4, outputs))
        statistics[1:3] -= 1
        names = ("scale", "bias", "mean", "variance")
        arrays = dict(zip(names, statistics.astype(np.float32), strict=True))
        return {"kernel": kernel.astype(np.float32), **arrays}

    blocks, inputs = [], 64
    for width, count, _ in STAGES:
        for number in range(count):
            block = {
                "a": convolution(1, inputs, width),
                "b": convolution(3, width, width),
                "c": convolution(1, width, 4 * width),
            }
            if number == 0:
                block["shortcut"] = convolution(1, inputs, 4 * width)
            blocks.append(block)
            inputs = 4 * width
    head = (0.02 * rng.standard_normal((2048, 1000))).astype(np.float32)
    stem = convolution(7, 3, 64)
    return {"stem": stem, "blocks": blocks, "head": head, "bias": np.zeros(1000, np.float32)}


def resnet50(weights: dict[str, Any], image: Any) -> Any:
    import jax

    def convolution(w: Any, x: Any, stride: int = 1) -> Any:
        edge = w["kernel"].shape[0] // 2
        y = jax.lax.conv_general_dilated(
            x,
            w["kernel"],
            (stride, stride),
            ((edge, edge), (edge, edge)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        scale = w["scale"] * jax.lax.rsqrt(w["variance"] + 1e-5)
        return (y - w["mean"]) * scale + w["bias"]

    x = jax.nn.relu(convolution(weights["stem"], image, 2))
    x = jax.lax.reduce_window(
        x, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    blocks = iter(weights["blocks"])
    for _, count, first_stride in STAGES:
        for number in range(count):
            w, stride = next(blocks), 1 if number else first_stride
            y = jax.nn.relu(convolution(w["a"], x))
            y = jax.nn.relu(convolution(w["b"], y, stride))
            y = convolution(w["c"], y)
            x = jax.nn.relu(y + (convolution(w["shortcut"], x, stride) if number == 0 else x))
    return x.mean((1, 2)) @ weights["head"] + weights["bias"]


def inputs_of(model: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    if model == "bert":
        ids = rng.integers(0, VOCABULARY, (1, TOKENS)).astype(np.int32)
        return bert, (bert_weights(rng), ids)
    return resnet50, (resnet50_weights(rng), rng.random((1, 224, 224, 3)).astype(np.float32))


# --- one compile, in a process of its own ---------------------------------------------------------


def cpu_seconds() -> float:
    """CPU time of this process and its children: Nova compiles texts in a child process."""
    children = Path("/proc/self/task").glob("*/children")
    fields = [
        Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2].split()
        for listing in children
        for child in listing.read_text().split()
    ]
    ticks = sum(int(user) + int(system) for *_, user, system in (row[:13] for row in fields))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def compile_once(model: str, contender: str, result_file: str) -> dict[str, Any]:
    """Seconds of one compile; the result of the program goes to `result_file`."""
    import jax

    function, args = inputs_of(model)
    lowered = jax.jit(function).lower(*args)
    text = lowered.as_text()
    stages: dict[str, float] = {}
    if contender == "jax":
        jax.jit(lambda x: x @ x + 1).lower(np.ones((8, 8), np.float32)).compile()
        wall, cpu = now(), cpu_seconds()
        compiled = lowered.compile()
        wall, cpu = now() - wall, cpu_seconds() - cpu
        result = np.asarray(compiled(*args))
    else:
        import nova

        nova.knobs.cache = False
        small = jax.jit(lambda x: x @ x + 1).lower(np.ones((8, 8), np.float32)).as_text()
        nova.translate(small).load()
        wall, cpu = now(), cpu_seconds()
        translation = nova.translate(text)
        program = translation.load()
        wall, cpu = now() - wall, cpu_seconds() - cpu
        stages = {name: row["seconds"] for name, row in translation.metrics.items()}
        result = program(*jax.tree.leaves(args))
    np.save(result_file, result)
    return {"wall": wall, "cpu": cpu, "stages": stages}


def run_child(model: str, contender: str, result_file: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", model, contender, result_file]
    environment = {**os.environ, "NOVA_CACHE": "off", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each run would compile Python anew
    process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(process.stdout.splitlines()[-1]))


def compare(model: str, rounds: int, show_stages: bool) -> None:
    """Measure a model, and print its row."""
    runs: dict[str, list[dict[str, Any]]] = {"nova": [], "jax": []}
    with tempfile.TemporaryDirectory() as folder:
        files = {contender: f"{folder}/{contender}.npy" for contender in runs}
        for number in range(rounds):
            for contender in list(runs)[:: -1 if number % 2 else 1]:
                runs[contender].append(run_child(model, contender, files[contender]))
        result, expected = (np.load(files[contender]).astype(np.float64) for contender in runs)
    error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
    if not error < TOLERANCE:
        sys.exit(f"{model}: the results differ by {error:.1e}")
    cells = [model]
    for clock in ("wall", "cpu"):
        nova, jax = (statistics.median(run[clock] for run in runs[c]) for c in ("nova", "jax"))
        cells += [f"{nova:.2f}", f"{jax:.2f}", f"{nova / jax:.2f}"]
    print("| " + " | ".join([*cells, f"{error:.0e}"]) + " |", flush=True)
    if show_stages:
        for name in runs["nova"][0]["stages"]:
            seconds = statistics.median(run["stages"][name] for run in runs["nova"])
            print(f"    {name} {seconds:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="bert,resnet50", help="names of models, with commas")
    parser.add_argument("--rounds", type=int, default=5, help="compiles of each contender")
    parser.add_argument("--stages", action="store_true", help="print the seconds of Nova's stages")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(compile_once(*options.child)))
        return
    print("| model | Nova, s | jax.jit, s | ratio | Nova, CPU s | jax.jit, CPU s | ratio | error |")
    print("|---|---|---|---|---|---|---|---|")
    for model in options.only.split(","):
        compare(model, options.rounds, options.stages)


if __name__ == "__main__":
    main()
