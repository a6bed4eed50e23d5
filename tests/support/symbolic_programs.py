"""Programs with symbolic sizes for tests: a graph at representative sizes becomes symbolic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nova

B, S, N = 1009, 1013, 1019
"""Representatives of the dims B, S and N."""

NAMES = {B: "B", S: "S", N: "N"}
_MAIN = re.compile(r"func\.func @main\(.*?\) -> .*?attributes \{", re.S)


def make_symbolic(text: str, dims: Mapping[str, tuple[int, int, int]], sizes: Sequence[str]) -> str:
    """The text of the stage `linalg` with the dims (representative, min, max) of its sizes."""
    rows = ", ".join(f'"{n}={r} {low} {high}"' for n, (r, low, high) in dims.items())
    listed = ", ".join(f'"{size}"' for size in sizes)
    head = _MAIN.search(text)
    assert head is not None
    attributes = f"nova.dims = [{rows}], nova.sizes = [{listed}], "
    return text[: head.end()] + attributes + text[head.end() :]


def symbolic_program(
    function: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    folder: Path,
    *,
    sizes: Sequence[str] = (),
    dtypes: Mapping[int, str] | None = None,
    bounds: tuple[int, int] = (0, 8192),
) -> tuple[Any, Any]:
    """`function` of tensors of these shapes: loaded with symbolic sizes, and the static program."""
    leaves = [
        nova.tensor(np.zeros(shape, (dtypes or {}).get(i, "f4")), name=f"a{i}")
        for i, shape in enumerate(shapes)
    ]
    static = nova.compile(function(*leaves), inputs=leaves)
    used = dict.fromkeys(n for shape in shapes for n in shape if n in NAMES)
    dims = {NAMES[n]: (n, *bounds) for n in used}
    text = make_symbolic(static.stages["linalg"], dims, sizes)
    path = folder / "symbolic.nova"
    nova.translate(text, start_from="linalg").save(path)
    return nova.load(path), static


def arrays_of(
    shapes: Sequence[tuple[int, ...]],
    values: Mapping[str, int],
    dtypes: Mapping[int, str] | None = None,
) -> list[Any]:
    """Random arrays of the shapes with these sizes of the dims; integers are below 5."""
    rng = np.random.default_rng(0)
    arrays = []
    for i, shape in enumerate(shapes):
        static = tuple(values[NAMES[n]] if n in NAMES else n for n in shape)
        dtype = (dtypes or {}).get(i)
        if dtype is None:
            arrays.append(rng.standard_normal(static).astype("f4"))
        else:
            arrays.append(rng.integers(0, 5, static).astype(dtype))
    return arrays
