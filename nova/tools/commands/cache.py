"""nova cache: list, show, check, explain and clear the compiled programs on disk.

In: the cache folder of the settings, or `--folder`. Out: text or JSON; exit 1 when `verify` finds
a damaged entry. A key may be given by its first digits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from nova import knobs
from nova.artifact.cache.disk import CacheEntry, DiskCache, default_folder
from nova.artifact.cache.explain import Recipe, compare_recipes, find_nearest, recipe_of
from nova.artifact.format import Artifact
from nova.errors import ArtifactError, CacheFolderError, CacheKeyError
from nova.tools.commands import inspect
from nova.tools.describe import describe, describe_variants, signature_text
from nova.tools.report import Table, format_age, format_bytes, print_json, print_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova cache`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, action in _ACTIONS.items():
        sub = actions.add_parser(name, help=action.summary, description=f"{action.summary}.")
        if action.keys:
            sub.add_argument("keys", nargs=action.keys, metavar="KEY", help="its first digits")
        sub.add_argument("--folder", metavar="DIR", help="another cache than the settings' one")
        sub.add_argument("--json", action="store_true", help="answer as JSON")
        sub.set_defaults(act=action.run)


def run(args: argparse.Namespace) -> int:
    """Run the requested action, in a folder that Nova would use."""
    # An error of `default_folder` says why a user has none.
    folder = Path(args.folder or knobs.get("cache_dir") or default_folder())
    cache = DiskCache(folder, knobs.get("cache_size"))
    problem = cache.problem()
    if problem is not None:
        raise CacheFolderError(
            f"the cache folder {problem}",
            where=str(cache.folder),
            hint="Nova compiles without it; set NOVA_CACHE_DIR to another folder",
        )
    status: int = args.act(cache, args)
    return status


def list_entries(cache: DiskCache, args: argparse.Namespace) -> int:
    """All entries, the last used first, and their total against the bound."""
    entries = cache.entries()[::-1]
    total = sum(entry.nbytes for entry in entries)
    listing = {
        "folder": str(cache.folder),
        "on": knobs.get("cache"),
        "nbytes": total,
        "most_bytes": cache.max_bytes,
        "entries": [_describe_entry(cache, entry) for entry in entries],
    }
    if args.json:
        print_json(listing)
        return 0
    share = f"{format_bytes(total)} of {format_bytes(cache.max_bytes)}"
    state = "" if listing["on"] else ", switched off by NOVA_CACHE"
    rows = [
        (
            entry["key"][:12],
            format_bytes(entry["nbytes"]),
            format_age(entry["age"]),
            entry["target"],
            entry["signature"],
        )
        for entry in listing["entries"]
    ]
    summary = [("entries", len(entries)), ("size", share)]
    print_tables(
        [
            Table(f"{cache.folder}{state}", (), summary),
            Table("entries", ("key", "size", "used", "target", "signature"), rows),
        ]
    )
    return 0


def show(cache: DiskCache, args: argparse.Namespace) -> int:
    """One entry, as `nova inspect` shows a file."""
    entry, artifact = _open(cache, args.keys[0])
    description = {"file": str(entry.path), **describe(artifact)}
    if args.json:
        print_json(description)
    else:
        print_tables(inspect.make_tables(description))
    return 0


def clear(cache: DiskCache, args: argparse.Namespace) -> int:
    """Remove the named entries, or all."""
    entries = [_find(cache, key) for key in args.keys] if args.keys else cache.entries()
    removed = [entry for entry in entries if cache.remove(entry)]
    nbytes = sum(entry.nbytes for entry in removed)
    if args.json:
        print_json({"removed": [entry.key for entry in removed], "nbytes": nbytes})
    else:
        print(f"removed {_count(len(removed))}, {format_bytes(nbytes)}")
    return 0


def verify(cache: DiskCache, args: argparse.Namespace) -> int:
    """Check every entry as a load does; damaged ones are named, and stay."""
    count = len(cache.entries())
    damaged = {path.stem: problem for path, problem in cache.verify().items()}
    if args.json:
        print_json({"entries": count, "damaged": damaged})
    elif damaged:
        rows = [(key[:12], problem) for key, problem in damaged.items()]
        print_tables([Table(f"{len(damaged)} of {_count(count)} damaged", ("key", "why"), rows)])
    else:
        print(f"{_count(count)}, none damaged")
    return 1 if damaged else 0


def explain(cache: DiskCache, args: argparse.Namespace) -> int:
    """Why two entries differ; with one key, why it is not the entry nearest to it."""
    if len(args.keys) > 2:
        raise CacheKeyError(f"{len(args.keys)} keys given", hint="explain takes one or two")
    first = recipe_of(_open(cache, args.keys[0])[1])
    if len(args.keys) == 2:
        old, new = first, recipe_of(_open(cache, args.keys[1])[1])
    else:
        old, new = _nearest(cache, first), first
    lines = compare_recipes(old, new).splitlines()
    if args.json:
        print_json({"old": old.key, "new": new.key, "differences": lines})
    else:
        print_tables([Table(f"from {old.key[:12]} to {new.key[:12]}", (), [[x] for x in lines])])
    return 0


class Action(NamedTuple):
    """A row of the table: the action, its line of help, and how many keys it takes."""

    run: Callable[[DiskCache, argparse.Namespace], int]
    summary: str
    keys: int | str | None = None


_ACTIONS = {
    "list": Action(list_entries, "what is there: sizes, ages, signatures, and the bound"),
    "show": Action(show, "one entry, as nova inspect shows a file", 1),
    "clear": Action(clear, "remove the named entries, or all", "*"),
    "verify": Action(verify, "check every entry; exit 1 if one is damaged"),
    "explain": Action(explain, "why two entries differ, or one from the nearest other", "+"),
}


def _describe_entry(cache: DiskCache, entry: CacheEntry) -> dict[str, Any]:
    description = {
        "key": entry.key,
        "nbytes": entry.nbytes,
        "age": round(time.time() - entry.used / 1e9, 3),
    }
    try:
        artifact = cache.read(entry)
    except (ArtifactError, OSError) as error:
        problem = error.what if isinstance(error, ArtifactError) else str(error.strerror)
        return {**description, "target": "?", "signature": f"damaged: {problem}"}
    targets = " ".join(variant["target"] for variant in describe_variants(artifact))
    return {**description, "target": targets, "signature": signature_text(artifact)}


def _find(cache: DiskCache, start: str) -> CacheEntry:
    entries = [e for e in cache.entries() if e.key.startswith(start.lower())]
    if len(entries) != 1:
        raise CacheKeyError(
            f"{len(entries) or 'no'} entries have a key that starts with {start!r}",
            where=str(cache.folder),
            hint="nova cache list shows all keys" if not entries else "give more digits",
        )
    return entries[0]


def _open(cache: DiskCache, start: str) -> tuple[CacheEntry, Artifact]:
    entry = _find(cache, start)
    try:
        return entry, cache.read(entry)
    except ArtifactError as error:
        raise error.located(str(entry.path)) from None


def _nearest(cache: DiskCache, recipe: Recipe) -> Recipe:
    nearest = find_nearest(cache, recipe)
    if nearest is None:
        raise CacheKeyError(
            f"{recipe.key[:12]} is the only entry: there is nothing to compare it with",
            where=str(cache.folder),
        )
    return nearest


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
