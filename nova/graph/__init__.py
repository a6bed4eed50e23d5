"""The graph: tensors, op functions, gradients, the numpy interpreter."""

from nova.graph.autodiff import backward, gradients
from nova.graph.checkpoint import checkpoint
from nova.graph.control.functions import cond, fori_loop, scan, switch, while_loop
from nova.graph.dot import dump_dot
from nova.graph.functions import FUNCTIONS
from nova.graph.tensor import Tensor, device, input, no_grad, placeholder, tensor
from nova.graph.transforms import grad, value_and_grad

__all__ = [
    "FUNCTIONS",
    "Tensor",
    "backward",
    "checkpoint",
    "cond",
    "device",
    "dump_dot",
    "fori_loop",
    "grad",
    "gradients",
    "input",
    "no_grad",
    "placeholder",
    "scan",
    "switch",
    "tensor",
    "value_and_grad",
    "while_loop",
]
