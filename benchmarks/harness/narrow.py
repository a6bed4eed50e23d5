"""A run on a wider machine as if it had AVX2 only: `run.py --avx2`.

`hold_to_avx2` gives the variables of the processes to measure. Libraries choose their kernels by
the CPUID instruction, and `narrow.c`, which is preloaded, takes what goes beyond AVX2 out of its
answer: their own switches hold only some of their kernels.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_TARGETS = {
    "NOVA_TARGET": "x86_64-v3",
    "BENCH_IREE_CPU": "x86-64-v3",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""Of the compilers, which ask the system too."""


def hold_to_avx2(folder: Path) -> dict[str, str]:
    """The variables; `folder` is for the library, and lasts as long as the processes.

    SystemExit on a machine that cannot hide features, or that has no C compiler.
    """
    library = folder / "narrow.so"
    source = Path(__file__).with_suffix(".c")
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    try:
        subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
        subprocess.run(["true"], check=True, env={"LD_PRELOAD": str(library)})
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"--avx2 cannot hold libraries to AVX2 here: {error}") from None
    return {**_TARGETS, "LD_PRELOAD": str(library)}
