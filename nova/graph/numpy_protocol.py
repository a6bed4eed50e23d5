"""numpy functions on tensors: `np.exp(t)` and `np.sum(t, axis=0)` give tensors (NEP 13, NEP 18).

Functions that Nova does not have are applied to the values, as `np.asarray(t)` gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nova.core.location import user_location
from nova.errors import ArgumentTypeError
from nova.ops.table import OPS, F

# numpy's name -> the name of the row, where they differ.
UFUNCS = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "divide": "div",
    "equal": "eq",
    "fabs": "abs",
    "floor_divide": "floor_div",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "remainder": "mod",
    "rint": "round",
    "subtract": "sub",
    "true_divide": "div",
}
# Operators that are logical on tensors.
_LOGICAL = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}

# Functions of numpy that a function of Nova replaces, under the same name and keywords.
FUNCTIONS = (
    *("sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin"),
    *("reshape", "transpose", "squeeze", "swapaxes", "concatenate", "stack", "where"),
    *("einsum", "tensordot", "dot", "inner", "outer", "kron", "cross", "diag", "diagonal"),
    *("tile", "flip", "roll", "cumsum", "vstack", "hstack", "dstack", "atleast_1d", "atleast_2d"),
    *("zeros_like", "ones_like", "full_like", "nan_to_num", "isclose", "take", "split", "tril"),
    *("triu", "moveaxis", "expand_dims", "broadcast_to", "round", "clip", "amax", "amin"),
)
_NAMES = {
    "amax": "max",
    "amin": "min",
    "broadcast_to": "expand",
    "clip": "clamp",
    "concatenate": "concat",
    "expand_dims": "unsqueeze",
    "moveaxis": "movedim",
}
_CORRECTED = ("std", "var")


class NumpyProtocol:
    """What numpy calls when a tensor is an argument of one of its functions."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        name = UFUNCS.get(ufunc.__name__, _LOGICAL.get(ufunc.__name__, ufunc.__name__))
        if method != "__call__" or kwargs or name not in OPS:
            option = f".{method}" if method != "__call__" else ""
            raise ArgumentTypeError(
                f"numpy.{ufunc.__name__}{option} does not take tensors"
                + (f" with {', '.join(kwargs)}" if kwargs else ""),
                where=str(user_location()),
                hint="use the function of nova, or np.asarray(t) for the values",
            )
        return getattr(F, name)(*args)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        name = function.__name__
        if function.__module__ == "numpy" and name in FUNCTIONS:
            given = dict(kwargs)
            if name in _CORRECTED:
                given = {"correction": given.pop("ddof", 0), **given}
            return getattr(F, _NAMES.get(name, name))(*args, **given)
        return function(*_values(args), **{k: _values(v) for k, v in kwargs.items()})


def _values(value: Any) -> Any:
    """Tensors in an argument as arrays."""
    if isinstance(value, NumpyProtocol):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_values(v) for v in value)
    return value
