"""What overlapping launches gain: programs of several launches with `device_overlap` off and on.

    python benchmarks/gpu/overlap.py [--calls N] [--json FILE] [NAME ...]

Each row is one program on this machine's GPU; each column one setting of the knob, in microseconds
a call: the best of five rounds of many calls, from the first call to the end of the last. `sum` of
the two branches is the time of the two alone, one after the other. All settings must give the same
bits. `--json` also writes the
measured time of every kernel (a traced run) and what the task table says about it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from calls import microseconds as best_round

import nova
from nova import knobs

MODES = ("off", "dependent", "branches", "auto")
Call = Callable[[], Any]
_SAME = {True: "same bits", False: "DIFFERENT RESULTS"}


def microseconds(call: Call, number: int) -> float:
    """The best round, after calls that make the graph."""
    for _ in range(3):
        call()
    return best_round(call, number, "cuda")


def _bf16(*shape: int) -> Any:
    import ml_dtypes

    values = np.random.default_rng(0).standard_normal(shape, np.float32) * 0.02
    return values.astype(ml_dtypes.bfloat16)


def _f32(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32) * 0.1


def compiled(function: Callable[..., Any], *arrays: Any) -> tuple[Call, Any]:
    """The call of a function on arrays of the device, and its program."""
    data = [nova.tensor(a, name=f"a{i}") for i, a in enumerate(arrays)]
    program = nova.compile(function(*data), inputs=data, target="cuda")
    placed = [nova.to_device(a) for a in arrays]
    return lambda: program(*placed), program


def training(name: str, target: str = "cuda") -> tuple[Call, Any]:
    from importlib import import_module

    module: Any = import_module(f"workloads.{name}")
    step = module.nova_training(module.arrays(), target=target)
    arrays = next(step.load())
    batch = [nova.to_device(a) for a in arrays]
    return lambda: step.program(*batch), step.program.lower(*arrays)


def gpt_block() -> tuple[Call, Any]:
    import ml_dtypes
    from workloads import gpt_block as block

    arrays = [a.astype(ml_dtypes.bfloat16) for a in block.arrays()]
    return compiled(lambda *values: block._block(block._Nova(), *values), *arrays)


def products(number: int) -> tuple[Call, Any]:
    """Independent chains of four products of 64 tiles each: half of an H200."""

    def chains(*values: Any) -> Any:
        results = []
        for i in range(number):
            x = values[2 * i]
            for _ in range(4):
                x = x @ values[2 * i + 1]
            results.append(x)
        return tuple(results) if number > 1 else results[0]

    with knobs.override(gpu_gemm="wgmma-128x128x1x1"):
        return compiled(chains, *(a for _ in range(number) for a in (_bf16(1024, 1024),) * 2))


def _softmax(x: Any) -> Any:
    return nova.softmax(x)


PROGRAMS: dict[str, Callable[[], tuple[Call, Any]]] = {
    "train_small": lambda: training("train_small"),
    "train_mlp": lambda: training("train_mlp"),
    "gpt_block": gpt_block,
    "train_gpt": lambda: training("train_gpt"),
    "one_branch": lambda: products(1),
    "two_branches": lambda: products(2),
    "matmul_bf16_4096": lambda: compiled(lambda a, b: a @ b, _bf16(4096, 4096), _bf16(4096, 4096)),
    "matmul_f32_1024": lambda: compiled(lambda a, b: a @ b, _f32(1024, 1024), _f32(1024, 1024)),
    "softmax_8192": lambda: compiled(_softmax, _f32(8192, 8192)),
    "gelu_16m": lambda: compiled(lambda a, b: nova.gelu(a * b + a), _f32(1 << 24), _f32(1 << 24)),
    "layer_norm": lambda: compiled(nova.layer_norm, _f32(4096, 1024), _f32(1024), _f32(1024)),
}


def _many(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def kernel_times(call: Call) -> list[dict[str, Any]]:
    """The kernels of a traced run, with their times and their rows of the task table."""
    with nova.trace() as trace:
        for _ in range(3):
            call()
    rows = []
    for span in trace.runs[-1].spans:
        if span.activity != "kernel" or not span.kernels:
            continue
        kernel = span.kernels[0]
        assert kernel.device is not None
        row = {"launch": span.launch, "ns": span.duration, "core": kernel.device.core}
        row |= {"grid": kernel.device.grid[0], "block": kernel.device.block[0]}
        row |= {"shared": kernel.device.shared, "flops": kernel.flops, "bytes": kernel.bytes}
        rows.append(row)
    return rows


def measure(name: str, calls: int) -> dict[str, Any]:
    """All columns of a program."""
    times: dict[str, float] = {}
    shapes: dict[str, Any] = {}
    kernels: list[dict[str, Any]] = []
    results: list[list[bytes]] = []
    for mode in MODES:
        with knobs.override(device_overlap=mode):
            call, program = PROGRAMS[name]()
            times[mode] = microseconds(call, calls)
            shapes[mode] = program._executable.program.graph_shape()
            results.append([np.asarray(r.numpy()).tobytes() for r in _many(call())])
            kernels = kernels or kernel_times(call)
    same = all(result == results[0] for result in results)
    return {"name": name, "same": same, "us": times, "graph": shapes, "kernels": kernels}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--calls", type=int, default=300, help="in a round (300)")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    options = parser.parse_args(arguments)
    print(f"{'program':<18}" + "".join(f"{mode:>12}" for mode in MODES) + "  launches, edges, ...")
    rows = []
    for name in options.names or PROGRAMS:
        row = measure(name, options.calls)
        rows.append(row)
        figures = "".join(f"{row['us'][mode]:12.2f}" for mode in MODES)
        print(f"{name:<18}{figures}  {row['graph']['auto']} {_SAME[row['same']]}", flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
