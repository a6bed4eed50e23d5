"""Decoding with a Llama of 12 layers, bf16, one sequence: Nova, torch.compile, jax and IREE.

    python benchmarks/llama.py [--iree PYTHON] [--threads 2] [--rounds 5] [--out FILE]

All have the same weights, a static cache of 256 positions and greedy tokens. Nova runs
examples/llama.py: one program with the loop. The others run a step per token from Python, without
the prompt. Every round measures all of them, one after the other, and the table has the best and
the median round. PYTHON is an interpreter with `iree-base-compiler` and `iree-base-runtime`: IREE
runs in its process, on the StableHLO of the step in jax.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from llama_peers import jax_step, jax_weights, load_example, torch_step

import nova

CONTEXT, TOKENS = 256, 32
PROMPT = list(range(1, 17))

Run = Callable[[], float]
"""Writes TOKENS tokens; returns the milliseconds of one."""


def nova_run(
    example: Any, config: Any, weights: dict[str, np.ndarray], target: str | None = None
) -> Run:
    """The time of a longer run less that of a shorter one, which has the same prompt."""
    model = example.Llama(config, weights, nova.bf16)
    program = example.compile_generator(model, CONTEXT, target=target)

    def elapsed(count: int) -> float:
        start = time.perf_counter()
        example.generate(program, PROMPT, count)
        return time.perf_counter() - start

    elapsed(2)

    def run() -> float:
        short = elapsed(4)
        return (elapsed(4 + TOKENS) - short) / TOKENS * 1e3

    return run


def torch_run(config: Any, weights: dict[str, np.ndarray], threads: int) -> Run:
    import torch

    step, caches = torch_step(config, weights, CONTEXT)
    compiled = torch.compile(step)

    def run(count: int = TOKENS) -> float:
        torch.set_num_threads(threads)
        token = torch.tensor([1])
        with torch.inference_mode():
            start = time.perf_counter()
            for position in range(len(PROMPT), len(PROMPT) + count):
                token = compiled(token, torch.tensor([position]), caches)
            return (time.perf_counter() - start) / count * 1e3

    run(3)
    return run


def jax_run(config: Any, weights: dict[str, np.ndarray]) -> Run:
    import jax
    import jax.numpy as jnp

    params = jax_weights(config, weights)
    step = jax.jit(jax_step(config), donate_argnums=3)
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, CONTEXT, config.head_dim)
    caches = [jnp.zeros(shape, jnp.bfloat16)]

    def run(count: int = TOKENS) -> float:
        token = jnp.array([1])
        start = time.perf_counter()
        for position in range(len(PROMPT), len(PROMPT) + count):
            token, caches[0] = step(params, token, jnp.int32(position), caches[0])
        token.block_until_ready()
        return (time.perf_counter() - start) / count * 1e3

    run(3)
    return run


def iree_run(config: Any, weights: dict[str, np.ndarray], python: str, folder: Path) -> Run:
    """A process that writes tokens at every line that it gets."""
    import jax
    import jax.numpy as jnp

    params = jax_weights(config, weights)
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, CONTEXT, config.head_dim)
    arguments = (params, jnp.array([1]), jnp.int32(0), jnp.zeros(shape, jnp.bfloat16))
    text = jax.jit(jax_step(config)).lower(*arguments).as_text()
    (folder / "step.mlir").write_text(text)
    leaves = [np.asarray(a) for a in jax.tree.leaves(params)]
    np.savez(folder / "weights.npz", *[a.view(np.uint16) for a in leaves])
    script = Path(__file__).parent / "llama_iree.py"
    command = [python, str(script), str(folder), ",".join(map(str, shape)), str(TOKENS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def run() -> float:
        requests.write("run\n")
        requests.flush()
        return float(answers.readline())

    run()
    return run


def table(times: dict[str, list[float]], nbytes: int) -> str:
    best = {name: min(values) for name, values in times.items()}
    lines = [
        "| | best, ms a token | median | weights, GB/s | best of Nova's |",
        "|---|---|---|---|---|",
    ]
    for name, values in times.items():
        rate = nbytes / best[name] / 1e6
        lines.append(
            f"| {name} | {best[name]:.2f} | {median(values):.2f} | {rate:.1f} | "
            f"{best[name] / best['Nova']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iree", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    example = load_example()
    config = example.Config(32000, 768, 2048, 12, 12, 4, 64)
    weights = example.random_weights(config)
    runs = {
        "Nova": nova_run(example, config, weights),
        "Nova, AVX2 only": nova_run(example, config, weights, "x86_64-v3"),
        "torch.compile": torch_run(config, weights, options.threads),
        "torch.compile, one thread": torch_run(config, weights, 1),
        "jax.jit": jax_run(config, weights),
    }
    with tempfile.TemporaryDirectory() as folder:
        if options.iree:
            runs["IREE"] = iree_run(config, weights, options.iree, Path(folder))
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                times[name].append(run())
                print(f"{name}: {times[name][-1]:.2f} ms a token", flush=True)
    nbytes = 2 * sum(w.size for n, w in weights.items() if n != "model.embed_tokens.weight")
    text = table(times, nbytes)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
