"""Functions around modules, with torch's names: `rnn` has sequences of different lengths."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nova.graph.other_names import NN_UTILS, no_attribute
from nova.nn.hooks import gradient_hook
from nova.nn.utils import rnn
from nova.nn.utils.vectors import (
    fuse_conv_bn_eval,
    fuse_linear_bn_eval,
    parameters_to_vector,
    vector_to_parameters,
)

if TYPE_CHECKING:
    from nova.nn.utils import parametrizations, parametrize

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "gradient_hook",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "rnn",
    "vector_to_parameters",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        if name in ("parametrizations", "parametrize"):  # they are made of layers
            return import_module(f"nova.nn.utils.{name}")
        raise no_attribute("module 'nova.nn.utils'", name, __all__, NN_UTILS)
