"""Square bf16 matmuls with bf16 results.

The operands are small whole numbers: every sum is exact in f32, whatever its order, so a contender
that accumulates in f32 and rounds once gives the oracle's bits, and no other is accepted. No share
of the peak is given: the one that is measured is of f32, and bf16 instructions are far beyond it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
from harness.case import THREADS as CORES
from harness.case import Case, read_all
from harness.peers import jax_case

TITLE = "Matmul, bf16"
MODE = "loop"
UNIT = "ms"
SIZES = {str(n): {"n": n} for n in (512, 1024, 2048)}
THREADS = (1, 2)
TOLERANCE = 1e-6

Arrays = list[np.ndarray]

_TRIAL = "import torch; x = torch.ones(256, 256, dtype=torch.bfloat16); x @ x"


def arrays(n: int) -> Arrays:
    generator = np.random.default_rng(0)
    return [generator.integers(-3, 4, (n, n)).astype(ml_dtypes.bfloat16) for _ in range(2)]


def oracle(data: Arrays) -> Arrays:
    exact = data[0].astype(np.float32) @ data[1].astype(np.float32)
    return [exact.astype(ml_dtypes.bfloat16).astype(np.float32)]


def _read(result: Any) -> Arrays:
    return [array.astype(np.float32) for array in read_all(result)]


def nova_call(data: Arrays) -> Case:
    import nova

    x, y = (nova.tensor(a) for a in data)
    return Case(nova.compile(x @ y, inputs=[x, y]), data, read=_read)


def torch_eager(data: Arrays) -> Case:
    """torch's library ends the process where a virtual machine has AMX but hides its palettes."""
    if subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True).returncode:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    import torch

    torch.set_num_threads(CORES)
    tensors = [torch.tensor(a.view(np.int16)).view(torch.bfloat16) for a in data]

    def call(x: Any, y: Any) -> Any:
        with torch.inference_mode():
            return x @ y

    return Case(call, tensors, read=lambda result: read_all(result.float()))


def jax_jit(data: Arrays) -> Case:
    case = jax_case(lambda x, y: x @ y, data)
    return Case(case.function, case.args, read=_read)


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "torch": ("torch", torch_eager),
    "jax.jit": ("jax", jax_jit),
}
