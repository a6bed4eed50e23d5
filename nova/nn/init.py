"""Initial values of parameters, with the distributions of torch's initializers.

`xavier_uniform(shape)` and the like return an array; `xavier_uniform_(parameter)` and the others
with torch's names set a parameter in place.
"""

from typing import TYPE_CHECKING, Any

from nova.graph.other_names import no_attribute
from nova.nn.initializers.arrays import fans, kaiming_uniform, normal, uniform, xavier_uniform
from nova.nn.initializers.in_place import (
    calculate_gain,
    constant_,
    dirac_,
    eye_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    orthogonal_,
    sparse_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "fans",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.nn.init'", name, __all__, {})
