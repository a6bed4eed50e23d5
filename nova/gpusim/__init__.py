"""A simulated GPU: runs PTX on the CPU, and reports invalid behaviour of a program.

`SimModule` parses a text, `SimMemory` is the memory of its kernels; docs/simulator.md shows both.
"""

from nova.gpusim.faults import Fault
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule

__all__ = ["Fault", "SimMemory", "SimModule"]
