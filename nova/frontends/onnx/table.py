"""The table of ONNX ops: a row per op with the function that builds Nova's ops.

`@row("Add")` registers a function of a `Node`. One function serves all versions of an op and asks
`node.version` where they differ; `since` is the first version of the op's domain that it knows. A
refused op has a row too, with the reason. An op without a row is expanded by the function body that
its ONNX schema has (`importer.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.core.records import record

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


@record
class Row:
    """One ONNX op.

    build     (node) -> a value, or a tuple of them; NotImplemented for a form that the body of
              the op's schema expands. None if the op is refused.
    since     the first version of the domain's operator set that the row knows.
    random    draws random numbers, so results are never folded.
    lazy      inputs may be other than tensors (sequences, optionals, narrow types).
    refused   why Nova has no such op.
    """

    name: str
    domain: str = ""
    build: Callable[[Any], Any] | None = None
    since: int = 1
    random: bool = False
    lazy: bool = False
    refused: str = ""


ROWS: dict[tuple[str, str], Row] = {}


def row(
    *names: str, domain: str = "", since: int = 1, random: bool = False, lazy: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a function as the row of the ops `names`."""

    def register(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for name in names:
            add(Row(name, domain, build, since, random, lazy))
        return build

    return register


def refuse(reason: str, *names: str, domain: str = "") -> None:
    """Register ops that Nova refuses, with the reason."""
    for name in names:
        add(Row(name, domain, refused=reason))


def add(entry: Row) -> None:
    """Register a row; names are unique within a domain."""
    key = (entry.domain, entry.name)
    if key in ROWS:
        raise ValueError(f"the ONNX op {entry.name!r} has two rows")
    ROWS[key] = entry
