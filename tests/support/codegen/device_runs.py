"""Programs for a device, run by the simulator launch by launch, straight from the tables.

What the schedules of `nova/codegen/gpu` write is tested with it: the PTX itself runs, and
mistakes such as races and accesses out of bounds are errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nova
from nova.artifact.tables import KernelSpec, Tables
from nova.compiler.gpu.device_tables import read_device_tables
from nova.compiler.gpu.emit_ptx import compile_ptx, device_ir
from nova.compiler.recorder import Recorder
from nova.compiler.stages import run_stages, start_from_plan
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule
from nova.graph.interpret import evaluate
from nova.plan import Plan
from nova.plan.build import build_plan


@dataclass(frozen=True)
class DeviceProgram:
    """A compiled program, with the texts of its stages."""

    plan: Plan
    tables: Tables
    constants: bytes
    ptx: str
    stages: dict[str, str]

    @property
    def kernels(self) -> list[KernelSpec]:
        """The kernels in the order of the launches."""
        return [self.tables.kernels[launch.kernel] for launch in self.tables.launches]

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results; updated params are changed in `arrays`."""
        memory, module = SimMemory(), SimModule(self.ptx)
        types = [self.plan.type_of(result) for result in self.plan.results]
        outputs = [np.zeros(t.shape, t.dtype.numpy) for t in types]
        addresses = {
            "arg": [memory.share(a) if a.size else 0 for a in arrays],
            "output": [memory.share(a) if a.size else 0 for a in outputs],
        }
        workspace = memory.alloc(max(1, self.tables.workspace_size))
        constants = memory.put(np.frombuffer(self.constants or b"\0", np.uint8))

        def address(buffer: Any) -> int:
            if buffer.kind in addresses:
                return addresses[buffer.kind][buffer.value]
            return (workspace if buffer.kind == "workspace" else constants) + buffer.value

        for launch in self.tables.launches:
            kernel = self.tables.kernels[launch.kernel]
            shape = kernel.device
            assert shape is not None
            positions = [address(self.tables.buffers[i]) for i in launch.buffers]
            arguments = struct.pack(f"<{len(positions)}Q", *positions)
            module.launch(kernel.symbol, shape.grid, shape.block, shape.shared, arguments, memory)
        return outputs


def compile_plan(plan: Plan, target: str = "cuda:sm_90a", **settings: Any) -> DeviceProgram:
    recorder = Recorder()
    module = start_from_plan(plan, recorder)
    options = Settings(target=target, **settings)
    run_stages(module, options, recorder, until="outlined")
    program = read_device_tables(module)
    tables, constants = program.tables, program.constants
    run_stages(module, options, recorder, after="outlined")
    ptx = compile_ptx(device_ir(module), parse_target(target))
    return DeviceProgram(plan, tables, constants, ptx, recorder.texts)


def compile_function(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], **settings: Any
) -> tuple[DeviceProgram, list[np.ndarray]]:
    """A function of tensors for a device, and what the interpreter says of it."""
    tensors = [nova.tensor(a) for a in arrays]
    created = function(*tensors)
    outputs = list(created) if isinstance(created, (list, tuple)) else [created]
    expected = evaluate(outputs, dict(zip(tensors, arrays, strict=True)))
    return compile_plan(build_plan(outputs, tensors, []), **settings), expected


def check(
    function: Callable[..., Any],
    *arrays: np.ndarray,
    tolerance: float = 2e-5,
    **settings: Any,
) -> DeviceProgram:
    """Run a function on the simulated device, and compare with the interpreter."""
    program, expected = compile_function(function, arrays, **settings)
    for inputs, right in zip(program.run([a.copy() for a in arrays]), expected, strict=True):
        scale = max(1.0, float(np.abs(right.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(inputs, right, rtol=tolerance, atol=tolerance * scale)
    return program
