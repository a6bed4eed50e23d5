"""docs/absent-names.md against the installed torch and jax: no name more, and no name less."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from page_blocks import ROOT

import nova

PAGE = (ROOT / "docs" / "absent-names.md").read_text()
# Namespace -> where Nova has its names.
HOMES: dict[str, tuple[Any, ...]] = {
    "torch": (nova,),
    "torch.linalg": (nova.linalg,),
    "torch.fft": (nova.fft,),
    "torch.special": (nova,),
    "torch.nn.functional": (nova,),
    "torch.nn": (nova.nn,),
    "torch.nn.utils": (nova.nn.utils,),
    "torch.nn.utils.rnn": (nova.nn.utils.rnn,),
    "torch.nn.init": (nova.nn.init,),
    "torch.optim": (nova.optim,),
    "torch.optim.lr_scheduler": (nova.optim,),
    "jax.nn": (nova,),
    "jax.numpy": (nova, nova.linalg),
}
# What modules of these libraries import for themselves.
IMPORTED = (
    "typing",
    "collections",
    "functools",
    "weakref",
    "_bisect",
    "builtins",
    "typing_extensions",
)
HELPERS = {"boolean_dispatch", "assert_int_or_pair", "ScalingType", "SwizzleType"}


def rows() -> list[tuple[str, list[str]]]:
    """Each row of the tables: the namespace, and its names or patterns."""
    found = re.findall(r"^\| `([\w.]+)` \| (.*?) \| .* \|$", PAGE, re.M)
    return [(space, re.findall(r"`([\w*]+)`", names)) for space, names in found]


def public_names(space: str) -> set[str]:
    """The functions and classes of a namespace, without those of other libraries."""
    module = import_module(space)
    names = set()
    for name in dir(module):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        is_type = isinstance(value, type) and space == "torch"  # storages, types of graphs
        if name.startswith("_") or not callable(value) or isinstance(value, ModuleType) or is_type:
            continue
        if home.split(".")[0] in IMPORTED or name in HELPERS or "torch_function" in name:
            continue
        names.add(name)
    return names - {"Tensor", "Any", "ParamSpec"}


@pytest.mark.parametrize("space", HOMES)
def test_the_tables_name_what_is_absent(space: str) -> None:
    have = {name for home in HOMES[space] for name in home.__all__}
    absent = public_names(space) - have
    patterns = [p for of, names in rows() if of == space for p in names]
    unnamed = {n for n in absent if not any(fnmatchcase(n, p) for p in patterns)}
    assert not unnamed, f"{space}: add them to Nova or to docs/absent-names.md: {sorted(unnamed)}"
    stale = [p for p in patterns if not any(fnmatchcase(n, p) for n in absent)]
    assert not stale, f"{space}: docs/absent-names.md lists what is not absent: {stale}"


def test_every_row_is_of_a_known_namespace() -> None:
    assert {space for space, _ in rows()} <= HOMES.keys()
