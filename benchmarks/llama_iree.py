"""The process of `llama.py` that runs IREE: compiles step.mlir, and writes tokens at every line.

    python llama_iree.py FOLDER SHAPE_OF_CACHES TOKENS

FOLDER has step.mlir and weights.npz. Prints the milliseconds of a token for every line of input.
Needs IREE and numpy, and not Nova.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np


def load_step(folder: Path) -> tuple[Any, Any]:
    """The compiled function `main`, and the device."""
    flatbuffer = compiler.compile_str(
        (folder / "step.mlir").read_text(),
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
    )
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    module = runtime.VmModule.copy_buffer(context.instance, flatbuffer)
    context.add_vm_module(module)
    return context.modules[module.name].main, config.device


def bf16_array(device: Any, bits: np.ndarray) -> Any:
    """An array of the device with the bits of bf16 numbers."""
    view = device.allocator.allocate_buffer_copy(
        memory_type=runtime.MemoryType.DEVICE_LOCAL,
        allowed_usage=runtime.BufferUsage.DEFAULT,
        device=device,
        buffer=np.ascontiguousarray(bits),
        element_type=runtime.HalElementType.BFLOAT_16,
    )
    return runtime.DeviceArray(device, view)


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[3])
    shape = tuple(map(int, sys.argv[2].split(",")))
    step, device = load_step(folder)
    stored = np.load(folder / "weights.npz")
    weights = [bf16_array(device, stored[name]) for name in stored.files]
    caches = bf16_array(device, np.zeros(shape, np.uint16))
    for _ in sys.stdin:
        token: Any = np.array([1], np.int32)
        start = time.perf_counter()
        for position in range(16, 16 + count):
            token, caches = step(*weights, token, np.int32(position), caches)
        np.asarray(token)
        print((time.perf_counter() - start) / count * 1e3, flush=True)


if __name__ == "__main__":
    main()
