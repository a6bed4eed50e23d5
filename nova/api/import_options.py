"""The keywords of `nova.compile` that `from_torch`, `from_onnx` and `from_jax` take as well.

`from_torch` and `from_jax` take the keywords of the imported function, too: a keyword that is the
name of one of its parameters is that parameter, and so is a tensor for its `**kwargs`; any other
one of `OPTIONS` is an option.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

OPTIONS = (
    *("target", "fast_math", "tune", "run_mode", "launch", "precision", "matmul_precision"),
    "max_workspace",
)
FILE_OPTIONS = ("target", "run_mode", "launch")
"""Those of programs that are compiled to a file first, besides the keywords of `from_jax`."""


def split_options(
    function: Callable[..., Any], keywords: Mapping[str, Any], names: Sequence[str] = OPTIONS
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options among keywords, and those of the function."""
    parameters = _parameters(function)
    has_others = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())

    def is_option(name: str, value: Any) -> bool:
        is_argument = name in parameters or (has_others and _has_tensors(value))
        return name in names and not is_argument

    options = {k: v for k, v in keywords.items() if is_option(k, v)}
    return options, {k: v for k, v in keywords.items() if k not in options}


def _has_tensors(value: Any) -> bool:
    """Whether a value is an array, or a container of arrays; numbers of numpy are not."""
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of C, without a signature
        return {}
