"""A while loop over a matmul against the same loop in C: `python benchmarks/while_loop.py`.

Compiles `nova.while_loop` of 1,000 matmuls of 256x256 and the matmul alone, saves both, and builds
`while_loop.c`, which opens the first and calls the kernel of the second in a loop of its own, in
alternation, on one core. Prints the least time of each and their ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import nova

SIZE = 256
ROOT = Path(__file__).resolve().parent


def save_programs(folder: Path, iterations: int) -> int:
    """Write `loop.nova` and `matmul.nova`; the tiles of the matmul's kernel."""
    x, a = (nova.input((SIZE, SIZE), name=name) for name in "xa")

    def body(state: Any) -> Any:
        return state[0] + 1, state[1] @ a

    loop = nova.while_loop(lambda state: state[0] < iterations, body, (0, x))[1]
    nova.compile(loop, inputs=[x, a]).save(str(folder / "loop.nova"))
    matmul = nova.compile(x @ a, inputs=[x, a])
    matmul.save(str(folder / "matmul.nova"))
    (kernel,) = matmul.kernels
    assert kernel.takes_scratch, "while_loop.c passes scratch memory"
    return int(kernel.grid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiles = save_programs(folder, options.iterations)
        program = folder / "while_loop"
        include = ROOT.parent / "native" / "include"
        source = str(ROOT / "while_loop.c")
        subprocess.run(
            ["cc", "-O2", "-std=c11", "-D_GNU_SOURCE", f"-I{include}", source, "-o", str(program),
             "-ldl", "-lpthread"],
            check=True,
        )  # fmt: skip
        core = str(max(os.sched_getaffinity(0)))
        numbers = [str(n) for n in (tiles, options.iterations, options.rounds)]
        command = ["taskset", "-c", core, str(program), f"{folder}/loop.nova"]
        output = subprocess.run(
            [*command, f"{folder}/matmul.nova", *numbers],
            check=True, capture_output=True, text=True, env={**os.environ, "NOVA_THREADS": "1"},
        ).stdout  # fmt: skip
    loop, reference = map(float, output.split())
    print(f"{'ms':>26} {'us an iteration':>18}")
    for title, time in (("nova.while_loop", loop), ("loop in C", reference)):
        print(f"{title:16}{time:>10.2f} {1e3 * time / options.iterations:>18.3f}")
    print(f"ratio {loop / reference:.4f}")


if __name__ == "__main__":
    main()
