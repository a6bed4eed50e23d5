"""`SimModule`: all kernels of a PTX text, ready to launch on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nova import _native
from nova.errors import PtxError, SimulationError
from nova.gpusim.decode import Decoded, decode
from nova.gpusim.faults import fault_error, read_fault
from nova.gpusim.memory import SimMemory
from nova.gpusim.ptx_parser import MAX_BLOCK_THREADS, MAX_CLUSTER_BLOCKS, parse_ptx

MOST_SHARED = 227 << 10
"""The limit on shared memory of a block, in bytes."""
MOST_STEPS = 200_000_000
"""The limit on instructions of a warp; beyond it a loop counts as infinite."""
_MOST_RESIDENT = 16
_MOST_BLOCKS = 1 << 25


class SimModule:
    """The kernels of a PTX text. Unknown constructs raise a `PtxError` here."""

    def __init__(self, text: str):
        module = parse_ptx(text)
        self.target = module.target
        self.lines = module.lines
        self._globals = SimMemory()
        addresses: dict[str, int] = {}
        for name, variable in module.globals.items():
            addresses[name] = self._globals.alloc(variable.size)
            initial = variable.initial or bytes(variable.size)
            self._globals.write(addresses[name], initial)
        self.addresses = addresses
        self.kernels: dict[str, Decoded] = {
            name: decode(kernel, addresses) for name, kernel in module.kernels.items()
        }

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: bytes,
        memory: SimMemory,
        *,
        cluster: Sequence[int] | None = None,
        most_steps: int = MOST_STEPS,
        check_races: bool = True,
        schedule: int = 0,
        cooperative: bool = False,
    ) -> int:
        """Run a kernel to its end; returns the number of instructions of all warps.

        `shared_bytes` is the size of dynamic shared memory; `arguments` are the parameters, packed
        in PTX layout; `cluster` are the blocks of a cluster, unless the kernel has a
        `.reqnctapercluster`. `schedule` says when asynchronous operations happen: 0 as late as
        allowed, 1 as early, another number picks for each of them pseudo-randomly. With
        `cooperative` all blocks run at once, in an order that `schedule` chooses too, and may wait
        for each other; their memory is ordered by release and acquire. The first error of the
        kernel is a `SimulationError`; its writes until then stay.
        """
        kernel = self.kernel(name)
        sizes = _three(grid), _three(block), _three(cluster or kernel.cluster or (1,))
        _check_launch(kernel, *sizes, shared_bytes, arguments, cooperative)
        ranges = memory.ranges
        if self.addresses:
            ranges = np.sort(np.concatenate([ranges, self._globals.ranges]), order="start")
        steps, record = _native.sim_run(
            kernel.code.data,
            kernel.operands.data,
            kernel.constants.data,
            (
                kernel.register_words,
                kernel.shared_bytes,
                kernel.local_bytes,
                kernel.thread_registers,
            ),
            ranges.data,
            arguments,
            *sizes,
            shared_bytes,
            most_steps,
            check_races,
            schedule,
            cooperative,
        )
        if record is not None:
            raise fault_error(read_fault(record, name, self.lines), memory)
        return steps

    def kernel(self, name: str) -> Decoded:
        if name not in self.kernels:
            names = ", ".join(sorted(self.kernels)) or "none"
            raise PtxError(f"there is no kernel {name}", hint=f"kernels of this PTX: {names}")
        return self.kernels[name]


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def _check_launch(
    kernel: Decoded,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    shared_bytes: int,
    arguments: bytes,
    cooperative: bool,
) -> None:
    """Refuse launches that the driver would refuse."""
    threads, blocks = math.prod(block), math.prod(grid)
    wrong = None
    if min(block) < 1 or threads > MAX_BLOCK_THREADS:
        wrong = f"a block of {block} threads"
    elif min(grid) < 1 or blocks >= _MOST_BLOCKS or max(grid[1:]) > 65535:
        wrong = f"a grid of {grid} blocks"
    elif cooperative and blocks > _MOST_RESIDENT:
        wrong = f"a cooperative grid of {grid} blocks"
    elif kernel.required is not None and kernel.required != block:
        wrong = f"a block of {block} threads where {kernel.required} are required"
    elif kernel.most_threads is not None and threads > kernel.most_threads:
        wrong = f"a block of {threads} threads where {kernel.most_threads} are the most"
    elif min(cluster) < 1 or math.prod(cluster) > MAX_CLUSTER_BLOCKS:
        wrong = f"a cluster of {cluster} blocks"
    elif kernel.cluster is not None and kernel.cluster != cluster:
        wrong = f"a cluster of {cluster} blocks where {kernel.cluster} are required"
    elif any(n % c for n, c in zip(grid, cluster, strict=True)):
        wrong = f"a grid of {grid} blocks, which is not a multiple of the cluster {cluster}"
    elif not 0 <= shared_bytes <= MOST_SHARED - kernel.shared_bytes:
        wrong = f"{kernel.shared_bytes} + {shared_bytes} bytes of shared memory"
    elif len(arguments) != kernel.param_bytes:
        wrong = f"{len(arguments)} bytes of arguments where {kernel.param_bytes} are expected"
    if wrong is not None:
        raise SimulationError(f"{kernel.name} cannot be launched: {wrong}")
