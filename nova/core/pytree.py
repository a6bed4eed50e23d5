"""Pytrees: nested tuples, lists and dicts, flattened to a list of leaves and unflattened."""

from __future__ import annotations

from typing import Any

from nova.core.records import record


@record
class TreeDef:
    """The structure of a pytree: kind is 'leaf', 'none', 'tuple', 'list' or 'dict'."""

    container: str
    children: tuple[TreeDef, ...] = ()
    keys: tuple[Any, ...] = ()

    def names(self) -> list[str]:
        """A readable name per leaf of `(args, kwargs)`."""
        args, kwargs = self.children
        result = []
        for i, child in enumerate(args.children):
            result += child.leaf_names(f"x{i}")
        for key, child in zip(kwargs.keys, kwargs.children, strict=True):
            result += child.leaf_names(key)
        return result

    def leaf_names(self, prefix: str) -> list[str]:
        """A readable name per leaf."""
        if self.container == "leaf":
            return [prefix]
        keys = self.keys or range(len(self.children))
        return [
            name
            for key, child in zip(keys, self.children, strict=True)
            for name in child.leaf_names(f"{prefix}.{key}")
        ]

    def is_flat_arguments(self) -> bool:
        """Whether `(args, kwargs)` has only positional leaves."""
        args, kwargs = self.children
        return not kwargs.children and all(c.container == "leaf" for c in args.children)

    def is_array_or_tuple(self) -> bool:
        """Whether a native program returns exactly this structure."""
        if self.container == "tuple":
            return len(self.children) > 1 and all(c.container == "leaf" for c in self.children)
        return self.container == "leaf"

    def __str__(self) -> str:
        if self.container in ("leaf", "none"):
            return "*" if self.container == "leaf" else "None"
        if self.container == "dict":
            inner = ", ".join(f"{k}: {c}" for k, c in zip(self.keys, self.children, strict=True))
            return f"{{{inner}}}"
        inner = ", ".join(map(str, self.children))
        return f"({inner})" if self.container == "tuple" else f"[{inner}]"


_LEAF, _NONE = TreeDef("leaf"), TreeDef("none")


def flatten(value: Any, sort_keys: bool = False) -> tuple[list[Any], TreeDef]:
    """The leaves of a pytree in order, and its structure.

    With `sort_keys` dicts that differ only in the order of their keys have the same structure.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, sort_keys)


def _flatten(value: Any, leaves: list[Any], sort_keys: bool) -> TreeDef:
    if value is None:
        return _NONE
    if type(value) in (tuple, list):
        container = "tuple" if type(value) is tuple else "list"
        return TreeDef(container, tuple(_flatten(v, leaves, sort_keys) for v in value))
    if isinstance(value, dict):
        keys = tuple(sorted(value, key=_rank) if sort_keys else value)
        children = tuple(_flatten(value[k], leaves, sort_keys) for k in keys)
        return TreeDef("dict", children, keys)
    leaves.append(value)
    return _LEAF


def _rank(key: Any) -> tuple[str, Any]:
    """Keys of one type in their own order, grouped by type."""
    return type(key).__name__, key


def unflatten(structure: TreeDef, leaves: list[Any]) -> Any:
    """Rebuild the pytree with other leaves."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: TreeDef, leaves: Any) -> Any:
    if structure.container == "leaf":
        return next(leaves)
    if structure.container == "none":
        return None
    items = [_unflatten(child, leaves) for child in structure.children]
    if structure.container == "dict":
        return dict(zip(structure.keys, items, strict=True))
    return tuple(items) if structure.container == "tuple" else items
