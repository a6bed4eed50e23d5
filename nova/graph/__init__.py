"""The graph: tensors, op functions, gradients, the numpy interpreter."""

from nova.graph.autodiff import backward, gradients
from nova.graph.checkpoint import checkpoint
from nova.graph.dot import dump_dot
from nova.graph.functions import FUNCTIONS
from nova.graph.tensor import Tensor, device, input, no_grad, placeholder, tensor
from nova.graph.transforms import grad, value_and_grad

__all__ = [
    "FUNCTIONS",
    "Tensor",
    "backward",
    "checkpoint",
    "device",
    "dump_dot",
    "grad",
    "gradients",
    "input",
    "no_grad",
    "placeholder",
    "tensor",
    "value_and_grad",
]
