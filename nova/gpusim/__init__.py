"""A simulated GPU: runs PTX on the CPU, and reports invalid behaviour of a program.

`SimModule` parses a text, `SimMemory` is the memory of its kernels, `tensor_map` describes tensors
in it for bulk copies; docs/simulator.md shows them.
"""

from nova.gpusim.faults import Fault
from nova.gpusim.memory import SimMemory
from nova.gpusim.module import SimModule
from nova.gpusim.tensor_map import tensor_map

__all__ = ["Fault", "SimMemory", "SimModule", "tensor_map"]
