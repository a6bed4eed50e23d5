"""Explains a cache miss: the differences from the most similar entry.

In: a `Recipe`, the inputs of a compile. Out: text for a person. Called by the compile driver for
`NOVA_LOG=cache`, and by `nova cache explain`. Works across processes: entries on disk contain the
parts of their keys, and the text of their program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nova.artifact.cache.disk import CacheEntry, DiskCache
from nova.artifact.cache.key import cache_key, explain
from nova.artifact.format import Artifact
from nova.core.constants import compact_plan
from nova.core.records import record
from nova.errors import ArtifactError

_COMMENT = re.compile(r" +# .*$", re.MULTILINE)  # the user's line, which is not part of the key
# Reading an entry checks all its hashes, so only recently used entries are compared.
_MOST_ENTRIES, _MOST_BYTES = 200, 64 << 20


@record
class Recipe:
    """The inputs of a compile: the parts of its key, and its text without comments.

    The text is that of `stage`; the part of the key with this name is its digest.
    """

    parts: Mapping[str, str]
    text: str
    stage: str = "plan"

    @property
    def key(self) -> str:
        return cache_key(self.parts)


def make_recipe(parts: Mapping[str, str], text: str, stage: str = "plan") -> Recipe:
    """The recipe of a program that is about to be compiled."""
    # Most texts here have no comments, and those with large constants are long.
    return Recipe(parts, _COMMENT.sub("", text) if " # " in text else text, stage)


def recipe_of(artifact: Artifact) -> Recipe:
    """The recipe of an entry."""
    stage = artifact.manifest.source
    text = artifact.stages().get(stage, "")
    return make_recipe(artifact.manifest.key, compact_plan(text), stage)


def compare_recipes(old: Recipe, new: Recipe) -> str:
    """The differences, one line per part; the program line by line, not by its digest."""
    stage = new.stage
    if old.stage != stage or old.parts.get(stage) == new.parts.get(stage):
        return explain(old.parts, new.parts)
    return explain({**old.parts, stage: old.text}, {**new.parts, stage: new.text})


def find_nearest(cache: DiskCache, missed: Recipe) -> Recipe | None:
    """The entry, other than its own, that has most in common with `missed`; None without any.

    The same program comes before any other; ties go to the last used one.
    """
    others = (recipe for recipe in _recent_recipes(cache) if recipe.key != missed.key)
    return max(others, key=lambda recipe: _likeness(recipe, missed), default=None)


def explain_miss(cache: DiskCache | None, missed: Recipe, last: Recipe | None) -> str:
    """Why `missed` missed; `last` is the previous compile in this process, if any."""
    nearest = (find_nearest(cache, missed) if cache is not None else None) or last
    if nearest is None:
        return "nothing to compare with: the cache is empty"
    return f"the nearest entry is {nearest.key[:12]}\n{compare_recipes(nearest, missed)}"


def _recent_recipes(cache: DiskCache) -> Iterator[Recipe]:
    for entry in _recent_entries(cache):
        try:
            yield recipe_of(cache.read(entry))
        except (ArtifactError, OSError):  # damaged or evicted: skip it
            continue


def _recent_entries(cache: DiskCache) -> Iterator[CacheEntry]:
    nbytes = 0
    for entry in cache.entries()[: -_MOST_ENTRIES - 1 : -1]:
        nbytes += entry.nbytes
        if nbytes > _MOST_BYTES:
            return
        yield entry


def _likeness(recipe: Recipe, missed: Recipe) -> tuple[float, int]:
    equal = sum(recipe.parts.get(name) == part for name, part in missed.parts.items())
    lines, others = set(recipe.text.splitlines()), set(missed.text.splitlines())
    return len(lines & others) / (len(lines | others) or 1), equal
