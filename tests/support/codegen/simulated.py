"""Runs one launch of device code in the simulator, on numpy arrays."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.launch import KERNEL
from nova.artifact.cubins.ptxas import find_ptxas
from nova.gpusim import SimMemory, SimModule


def run(
    ptx: str,
    order: Sequence[int],
    arrays: Sequence[np.ndarray[Any, Any]],
    blocks: int,
    threads: int,
    shared: int,
) -> list[np.ndarray[Any, Any]]:
    """What is in the arrays behind a launch; they themselves stay as they are."""
    memory = SimMemory()
    positions = [memory.put(array) for array in arrays]
    arguments = struct.pack(f"<{len(order)}Q", *(positions[i] for i in order))
    SimModule(ptx).launch(KERNEL, (blocks,), (threads,), shared, arguments, memory)
    return [
        memory.array(location, array.shape, array.dtype)
        for location, array in zip(positions, arrays, strict=True)
    ]


def assemble(ptx: str, arch: str, folder: Path) -> str:
    """What the assembler says about registers and spills."""
    ptxas = find_ptxas()
    assert ptxas is not None, "the package nvidia-cuda-nvcc is one of those for tests"
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    command = [str(ptxas), "-v", f"-arch={arch}", str(source), "-o", str(folder / "kernel.cubin")]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    return completed.stdout + completed.stderr
