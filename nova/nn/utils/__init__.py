"""Functions around modules, with torch's names: `rnn` has sequences of different lengths."""

from typing import TYPE_CHECKING, Any

from nova.graph.other_names import NN_UTILS, no_attribute
from nova.nn.utils import rnn

__all__ = ["rnn"]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.nn.utils'", name, __all__, NN_UTILS)
