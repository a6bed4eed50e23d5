"""The registers of a persistent kernel: as many as its tasks need, by what ptxas says.

In: the PTX of a program with launch="persistent". Out: PTX whose persistent kernel does not spill,
or a `PersistentLaunchError`. `backend.py` calls `fit_registers`.

The kernel is compiled for two resident blocks per multiprocessor, which gives a thread 128
registers: waits of one block overlap with the work of the other. Where ptxas has to spill, as in
gradients of attention, the kernel gets one block, and 255 registers. The runtime asks the driver
how many blocks are resident. Without a ptxas the bounds stay as they are.
"""

from __future__ import annotations

import re

from nova import knobs
from nova.artifact.cubins.ptxas import KernelUse, find_ptxas
from nova.codegen.gpu.persistent.kernel import PERSISTENT_KERNELS
from nova.compiler.gpu.ptx_check import spilling_kernels
from nova.core.log import log
from nova.errors import PersistentLaunchError

_BOUNDS = re.compile(
    rf"(\.entry (?:{'|'.join(PERSISTENT_KERNELS)})\([^{{]*\.minnctapersm )(\d+)", re.DOTALL
)


def fit_registers(ptx: str, arch: str) -> str:
    """The PTX with launch bounds under which its persistent kernel does not spill."""
    if not knobs.get("check_ptx") or find_ptxas() is None:
        return ptx
    spilling = _spilling_kernel(ptx, arch)
    if spilling is None:
        return ptx
    fewer, count = _BOUNDS.subn(r"\g<1>1", ptx)
    if count and fewer != ptx:
        ptx, spilling = fewer, _spilling_kernel(fewer, arch)
        log("compile", f"the persistent kernel has one block per multiprocessor on {arch}")
    if spilling is None:
        return ptx
    raise PersistentLaunchError(
        f"the registers of {arch} do not suffice for the tasks of a persistent kernel: it spills "
        f"{spilling.spilled} bytes with {spilling.registers} registers",
        hint="compile the program with launch='graph'",
    )


def _spilling_kernel(ptx: str, arch: str) -> KernelUse | None:
    """The use of the persistent kernel, if it spills and the knob `spills` does not allow it."""
    spilling = spilling_kernels(ptx.encode(), arch) or {}
    allowed = knobs.get("spills")
    names = [name for name in PERSISTENT_KERNELS if name in spilling and name not in allowed]
    return spilling[names[0]] if names else None
