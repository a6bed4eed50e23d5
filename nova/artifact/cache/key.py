"""Cache keys: the named parts that determine the result of a compile, and the hash over them.

The compile driver builds the parts (text, target, options, versions, ...), stores them in the
manifest's `key`, and asks `explain` why a second compile did not hit the entry of the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from nova.artifact.manifest import canonical_json

_MAX_CHARACTERS = 60
_SEPARATOR = re.compile(r"[, ]")


def cache_key(parts: Mapping[str, str]) -> str:
    """SHA-256 over the parts, in hexadecimal; independent of the order of the parts."""
    return sha256(canonical_json(dict(parts))).hexdigest()


def explain(old_parts: Mapping[str, str], new_parts: Mapping[str, str]) -> str:
    """The differences between two keys, one line per part."""
    lines = []
    for name in sorted(old_parts.keys() | new_parts.keys()):
        if name not in old_parts:
            lines.append(f"{name} is new: {_short(new_parts[name])}")
        elif name not in new_parts:
            lines.append(f"{name} is gone, it was {_short(old_parts[name])}")
        elif old_parts[name] != new_parts[name]:
            lines.append(f"{name} differs: {_difference(old_parts[name], new_parts[name])}")
    return "\n".join(lines) or "nothing differs: the keys are equal"


def _difference(old: str, new: str) -> str:
    if "\n" not in old + new:
        return _word_difference(old, new)
    before, after = old.splitlines(), new.splitlines()
    for number, (a, b) in enumerate(zip(before, after, strict=False), start=1):
        if a != b:
            return f"line {number}: {_short(a.strip())} became {_short(b.strip())}"
    return f"{len(before)} lines became {len(after)}"


def _word_difference(old: str, new: str) -> str:
    """For long lists such as `a=1,b=2` of equal length: the items that differ."""
    before, after = _SEPARATOR.split(old), _SEPARATOR.split(new)
    if len(before) != len(after):
        return f"{_short(old)} became {_short(new)}"
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    return ", ".join(f"{_short(a)} became {_short(b)}" for a, b in pairs)


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "...")
