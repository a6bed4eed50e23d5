"""Models: modules with named parameters, torch's layers, and the source of their random numbers.

Depends only on the graph; `nova.train_step` compiles the graph of a module. See docs/training.md.
"""

from typing import TYPE_CHECKING, Any

from nova.core.suggest import unknown_name
from nova.nn import init
from nova.nn.activations import GELU, ReLU, SiLU, Tanh
from nova.nn.attention import MultiheadAttention
from nova.nn.containers import ModuleList, Sequential
from nova.nn.layers import Dropout, Embedding, LayerNorm, Linear, RMSNorm
from nova.nn.module import Module, replaced
from nova.nn.parameter import Parameter
from nova.nn.seeds import default_generator, manual_seed, next_seed, seeded
from nova.nn.state import LoadReport

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "LoadReport",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Tanh",
    "default_generator",
    "init",
    "manual_seed",
    "next_seed",
    "replaced",
    "seeded",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise unknown_name("module 'nova.nn'", name, __all__)
