"""Which values a checkpointed function saves: `nova.checkpoint_policies`, with jax's names.

A policy is a function from a node to whether its value is saved for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import OptionTypeError
from nova.graph.tensor import Tensor

Policy = Callable[[Tensor], bool]

_PRODUCTS = frozenset({"matmul", "linear", "quantized_matmul"})


def nothing_saveable(node: Tensor) -> bool:
    """Save nothing: recompute all from the arguments."""
    return False


def everything_saveable(node: Tensor) -> bool:
    """Save everything: as without checkpoint."""
    return True


def dots_saveable(node: Tensor) -> bool:
    """Save the results of matmuls, which are expensive to compute again."""
    return node.op is not None and node.op.name in _PRODUCTS


def dots_with_no_batch_dims_saveable(node: Tensor) -> bool:
    """Save the results of matmuls whose second operand is a matrix, such as weights."""
    return dots_saveable(node) and len(node.inputs[1].shape) <= 2


def save_only_these_names(*names: str) -> Policy:
    """Save the values that `nova.checkpoint_name` gave one of these names."""
    return lambda node: node.name in names


def save_any_names_but_these(*names: str) -> Policy:
    """Save the values that have a name, unless it is one of these."""
    return lambda node: node.name is not None and node.name not in names


@user_facing
def checkpoint_name(x: Tensor, name: str) -> Tensor:
    """x, under a name that policies of `nova.checkpoint` know."""
    if not isinstance(x, Tensor) or x.op is None:
        raise OptionTypeError(
            f"checkpoint_name of a {type(x).__name__}",
            where=str(user_location()),
            hint="it names the result of an op inside of a checkpointed function",
        )
    x.name = name
    return x
