"""State dicts: copies values into named parameters, writes and reads safetensors.

`Module` passes every (name, parameter) pair; a tied parameter appears once per name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nova.core.records import record
from nova.errors import NovaError, StateDictError
from nova.frontends.safetensors import read_metadata, read_safetensors, write_safetensors
from nova.graph.tensor import as_array
from nova.nn.parameter import Parameter

Named = Sequence[tuple[str, Parameter]]
_MAX_LISTED = 10


@record
class LoadReport:
    """The names missing from a state dict, and its names that the model does not have."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def copy_into(named: Named, state: Mapping[str, Any], strict: bool) -> LoadReport:
    """Copy the values of `state` into the arrays of the parameters, after all were checked.

    A tied parameter needs a value under one of its names.
    """
    names = dict(named)
    problems: list[str] = []
    values: dict[int, tuple[Parameter, str, np.ndarray]] = {}
    for name, parameter in names.items():
        if name not in state:
            continue
        array, problem = _fitting(name, parameter, state[name])
        first = values.get(id(parameter))
        if problem is None and first is not None and not _same_bits(first[2], array):
            problem = f"{name} and {first[1]} are tied, but their values differ"
        if problem is not None:
            problems.append(problem)
        elif first is None:
            values[id(parameter)] = parameter, name, array
    loaded = {id(p) for n, p in named if n in state}
    missing = tuple(n for n, p in named if id(p) not in loaded)
    unexpected = tuple(n for n in state if n not in names)
    if strict:
        problems = [
            *([f"missing: {_listed(missing)}"] if missing else []),
            *([f"unexpected: {_listed(unexpected)}"] if unexpected else []),
            *problems,
        ]
    if problems:
        more = len(problems) - _MAX_LISTED
        listed = problems[:_MAX_LISTED] + ([f"and {more} more"] if more > 0 else [])
        raise StateDictError(
            "the state does not fit the model:\n    " + "\n    ".join(listed),
            hint="strict=False allows missing and unexpected names"
            if strict and (missing or unexpected)
            else None,
        )
    for parameter, array in _unshared(values):
        parameter.data[...] = array
    return LoadReport(missing, unexpected)


def write_state(path: str | Path, named: Named) -> None:
    """Write the parameters to a safetensors file, a tied one once."""
    tensors: dict[str, np.ndarray] = {}
    first: dict[int, str] = {}
    # Alias -> the name of the stored tensor, as safetensors' own save_model writes it.
    metadata = {"format": "pt"}
    for name, parameter in named:
        if id(parameter) in first:
            metadata[name] = first[id(parameter)]
        else:
            first[id(parameter)] = name
            tensors[name] = parameter.data
    write_safetensors(path, tensors, metadata)


def read_state(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a safetensors file, and a map from each alias to its stored name."""
    state = read_safetensors(path)
    metadata = read_metadata(path)
    return state, {a: n for a, n in metadata.items() if n in state and a not in state}


def _fitting(name: str, parameter: Parameter, value: Any) -> tuple[np.ndarray, str | None]:
    """The value as an array, and its error, if any."""
    try:
        array = as_array(value)
    except NovaError as error:
        return parameter.data, f"{name}: {error.what}"
    if array.shape != parameter.shape:
        return array, f"{name} has shape {array.shape}, the model's is {parameter.shape}"
    if array.dtype != parameter.data.dtype:
        return array, f"{name} has type {array.dtype}, the model's is {parameter.data.dtype}"
    return array, None


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or a.tobytes() == b.tobytes()


def _unshared(
    values: Mapping[int, tuple[Parameter, str, np.ndarray]],
) -> list[tuple[Parameter, np.ndarray]]:
    """Copy values that share memory with another parameter first: it may be written earlier."""
    by_address = {_address(p.data): p for p, _, _ in values.values()}
    result = []
    for parameter, _, array in values.values():
        owner = by_address.get(_address(array), parameter)
        result.append((parameter, array if owner is parameter else array.copy()))
    return result


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
