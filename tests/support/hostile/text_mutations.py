"""Texts of plans and of PTX, damaged by number: the same number gives the same text."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_NUMBERS = [
    *("0", "-1", "7", "08", "0b2", "0x", "0fZZ", "1e400", "nan", "-inf", "4294967296"),
    *("9223372036854775807", "18446744073709551616", "99999999999999999999", "9" * 30, "9" * 5000),
    *("0x" + "f" * 40, "(" * 2000, "-" * 3000 + "1", "'a'", "()", "(1,)", "1j", "{}", "[1]"),
    *("true", "none", "f32", "\u00b2", "\u0663", "\u00e9"),
]
_LETTERS = "\0\t\n\"#'()[]{}<>%.,;:@$\u0085\u2028\ud800\uff11\u00e9\u00b2"


def damage(seeds: Sequence[str], number: int) -> str:
    """The damaged text of a number."""
    rng = random.Random(number)
    text = rng.choice(seeds)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text = rng.choice([_letter, _cut, _number, _number, _line, _word, _word])(rng, text)
    return text


def _letter(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_LETTERS) + text[at + 1 :]


def _cut(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.randrange(1, 30) :]


def _number(rng: random.Random, text: str) -> str:
    return _replace(rng, text, r"\d+|(?<==)[^,}]+", _NUMBERS)


def _word(rng: random.Random, text: str) -> str:
    pattern = r"[%.]?\w+"
    return _replace(rng, text, pattern, re.findall(pattern, text) or [""])


def _replace(rng: random.Random, text: str, pattern: str, others: Sequence[str]) -> str:
    positions = list(re.finditer(pattern, text))
    if not positions:
        return text
    location = rng.choice(positions)
    return text[: location.start()] + rng.choice(others) + text[location.end() :]


def _line(rng: random.Random, text: str) -> str:
    """A line is there twice, is gone, or two have changed places."""
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(3)
    if how == 0:
        lines.insert(a, lines[b])
    elif how == 1:
        del lines[a]
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)
