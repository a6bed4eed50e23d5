"""Did you mean: the known name closest to a misspelt one.

In: a word and the known words. Out: a hint for an error, or the error itself for a module
or class without that attribute. Called by the knobs, the op table and the packages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nova.errors import UnknownNameError


def find_close(word: str, names: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known word most similar to `word`; None if no word is close."""
    import difflib  # only for a message: it would double the import time of this file

    close = difflib.get_close_matches(word, list(names), n=1, cutoff=cutoff)
    return close[0] if close else None


def did_you_mean(word: str, names: Collection[str], otherwise: str) -> str:
    """A hint; if no word is close it is `otherwise`, with all known words in place of `{}`."""
    close = find_close(word, names, cutoff=0.7)
    return f"did you mean {close}?" if close else otherwise.format(", ".join(names))


def unknown_name(
    owner: str, name: str, names: Iterable[str], hint: str | None = None
) -> UnknownNameError:
    """The error for `owner.name`; without a `hint` it has the public name that is close, if any."""
    public = [word for word in names if not word.startswith("_")]
    # A different case counts as close: `nova.Softmax`, `nn.linear`.
    by_lower = {word.lower(): word for word in public}
    # Private names are requested by programs that inspect an object.
    close = None if name.startswith("_") else find_close(name.lower(), by_lower)
    if hint is None and close:
        hint = f"did you mean {by_lower[close]!r}?"
    error = UnknownNameError(f"{owner} has no attribute {name!r}", hint=hint)
    error.name = name
    return error
