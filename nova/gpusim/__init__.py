"""A simulated GPU: runs PTX on the CPU, and reports what a program may not do.

`SimModule` reads a text, `SimMemory` is what its kernels may use; docs/simulator.md shows both.
"""

from nova.gpusim.faults import Fault
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule

__all__ = ["Fault", "SimMemory", "SimModule"]
