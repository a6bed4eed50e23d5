"""The greatest common divisor and the least common multiple: Euclid's algorithm as a loop."""

from __future__ import annotations

from typing import Any

from nova.core.user_facing import user_facing
from nova.errors import DTypeError
from nova.graph.control.functions import while_loop
from nova.graph.tensor import Tensor
from nova.graph.transforms import as_tensor
from nova.ops import F
from nova.ops.functional.common import as_common
from nova.ops.rules import broadcast_shapes


def _operands(name: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    x, y = as_common(F, as_tensor(x), as_tensor(y))
    if not x.dtype.is_integer:
        raise DTypeError(f"{name} of {x.dtype}", hint="it is a function of integers")
    shape = broadcast_shapes(x.shape, y.shape)
    return F.expand(x, shape), F.expand(y, shape)


@user_facing
def gcd(x: Any, y: Any) -> Tensor:
    """The greatest common divisor of integers, 0 of two zeros."""
    x, y = _operands("gcd", x, y)

    def step(state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a, b = state
        return F.where(F.eq(b, 0), a, b), F.where(F.eq(b, 0), b, F.mod(a, b))

    state = (F.abs(x), F.abs(y))
    result: Tensor = while_loop(lambda state: F.any(F.ne(state[1], 0)), step, state)[0]
    return result


@user_facing
def lcm(x: Any, y: Any) -> Tensor:
    """The least common multiple of integers, 0 if one of them is 0."""
    x, y = _operands("lcm", x, y)
    divisor = gcd(x, y)
    result: Tensor = F.abs(F.floor_div(x, F.maximum(divisor, 1)) * y)
    return result
