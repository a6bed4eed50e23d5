"""The table of ONNX ops that the host computes in numpy, between compiled parts of a model.

A row takes a `Node` whose inputs are arrays (None for one that was left out) and returns an array,
or a tuple of them. Arrays of strings have the dtype object and elements of `str`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from nova.errors import DTypeError, NovaError, OnnxError, UnsupportedOpError
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.table import ROWS

FAMILIES = ("selection", "strings", "labels")
HOST_ROWS: dict[tuple[str, str], Callable[[Node], Any]] = {}


def host_row(
    *names: str, domain: str = ""
) -> Callable[[Callable[[Node], Any]], Callable[[Node], Any]]:
    """Register a function as the host's row of the ops `names`."""

    def register(compute: Callable[[Node], Any]) -> Callable[[Node], Any]:
        for name in names:
            HOST_ROWS[domain, name] = compute
        return compute

    return register


@cache
def load_host_rows() -> None:
    """Import every family once, which registers its rows."""
    for family in FAMILIES:
        import_module(f"nova.frontends.onnx.host.{family}")


def compute_on_host(node: Node, domain: str) -> tuple[Any, ...]:
    """The results of a node from the values of its inputs."""
    load_host_rows()
    compute = HOST_ROWS.get((domain, node.op))
    if compute is None:
        entry = ROWS.get((domain, node.op))
        reason = entry.refused if entry is not None else ""
        raise UnsupportedOpError(
            f"{node.op}: {reason or 'Nova does not compute it for strings'}",
            where=node.title,
            hint="docs/onnx-ops.md lists the ops that the host computes",
        )
    try:
        results = compute(node)
    except NovaError as error:
        raise error.located(node.title) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OnnxError(
            f"{node.op} is malformed: {type(error).__name__}: {error}", where=node.title
        ) from error
    return results if isinstance(results, tuple) else (results,)


def is_string_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "OUST"


def string_array(value: Any, title: str) -> np.ndarray:
    """An array of `str` from strings or UTF-8 bytes, of any nesting."""
    array = np.asarray(value)
    array = array.astype(object) if array.dtype.kind in "UST" else np.asarray(value, object)
    flat = [
        item.decode("utf-8", "replace") if isinstance(item, bytes) else item
        for item in array.reshape(-1)
    ]
    for item in flat:
        if not isinstance(item, str):
            raise DTypeError(f"{title} takes strings, and has a {type(item).__name__}")
    return object_array(flat, array.shape)


def object_array(items: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Items as an array of objects; numpy would look into sequences among them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)
