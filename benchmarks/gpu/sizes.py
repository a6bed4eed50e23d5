"""Device programs with symbolic sizes against static ones of the same sizes, on a GPU.

`python benchmarks/gpu/sizes.py` prints a table: for each program and size the time of the static
program on the device, the ratio of the symbolic one to it, the ratio of a file with code for all
sizes and for these ones (`specialize=`), and how much longer the first call of the symbolic program
with this size takes than a later one. A time is the least of some turns of many calls that are
enqueued together, with all arrays on the device.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nova
from nova.core.dtypes import dtype as as_dtype

CALLS, TURNS = 50, 5
DEVICE = "cuda"
OPTIONS: dict[str, Any] = {"target": "cuda"}
B = nova.dim("B", min=1, max=65536)

# Name -> function, the shapes of its arguments, their dtype, and the sizes of B.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], str, tuple[int, ...]]] = {
    "gelu": (nova.gelu, [(B, 4096)], "f32", (4096, 4093)),
    "softmax": (nova.softmax, [(B, 1024)], "f32", (8192, 8191)),
    "layer norm": (nova.layer_norm, [(B, 4096)], "f32", (4096, 4093)),
    "sum of columns": (lambda x: x.sum(axis=0), [(B, 1024)], "f32", (4096, 4093)),
    "matmul f32": (lambda x, y: x @ y, [(B, 1024), (1024, 1024)], "f32", (16, 256, 4096, 4093)),
    "matmul bf16": (lambda x, y: x @ y, [(B, 4096), (4096, 4096)], "bf16", (16, 256, 4096, 4093)),
    "attention bf16": (
        nova.scaled_dot_product_attention,
        [(4, 8, B, 64)] * 3,
        "bf16",
        (256, 2048, 2047),
    ),
    "MLP f32": (
        lambda x, w, b, v: nova.gelu(x @ w + b) @ v,
        [(B, 1024), (1024, 1024), (1024,), (1024, 256)],
        "f32",
        (1, 256),
    ),
}


def compiled(
    function: Callable[..., Any],
    shapes: list[tuple[Any, ...]],
    dtype: str,
    specialize: list[int] | None = None,
) -> Any:
    inputs = [nova.input(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]
    return nova.compile(function(*inputs), inputs=inputs, specialize=specialize, **OPTIONS)


def from_file(program: Any) -> Any:
    """The program, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.nova"
        program.save(path)
        return nova.load(path, device=DEVICE)


def seconds(program: Any, arrays: list[Any], calls: int) -> float:
    """The time of each of some calls that are enqueued together."""
    started = time.perf_counter()
    for _ in range(calls):
        result = program(*arrays)
    result.native_device.synchronize()
    return (time.perf_counter() - started) / calls


def main() -> None:
    titles = f"{'static us':>10} {'ratio':>6} {'specialized':>12} {'first call +us':>15}"
    print(f"{'program':16} {'B':>5} {titles}")
    rng = np.random.default_rng(0)
    for name, (function, shapes, dtype, sizes) in CASES.items():
        symbolic = compiled(function, shapes, dtype)
        specialized = from_file(compiled(function, shapes, dtype, list(sizes)))
        for size in sizes:
            static_shapes = [tuple(size if n is B else n for n in shape) for shape in shapes]
            static = compiled(function, static_shapes, dtype)
            arrays = [
                nova.to_device(
                    rng.standard_normal(shape, np.float32).astype(as_dtype(dtype).numpy),
                    DEVICE,
                )
                for shape in static_shapes
            ]
            first = seconds(symbolic, arrays, 1)
            programs = (static, symbolic, specialized)
            for program in programs:
                seconds(program, arrays, 3)
            again = seconds(symbolic, arrays, 1)
            times = [min(seconds(p, arrays, CALLS) for _ in range(TURNS)) for p in programs]
            row = f"{name:16} {size:5} {times[0] * 1e6:10.1f} {times[1] / times[0]:6.3f}"
            row += f" {times[2] / times[0]:12.3f}"
            print(f"{row} {(first - again) * 1e6:15.0f}", flush=True)


if __name__ == "__main__":
    main()
