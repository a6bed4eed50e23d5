"""Diagnostics compared with the ones a test file expects.

In: MLIR text with comments like `// expected-error @+1 {{message}}` and the diagnostics that were
emitted. Out: a diagnostic for each expectation without a match and each unexpected message; none
when the file is right. Called by `nova-opt --verify-diagnostics`.

The kinds are error, warning, remark and note. The place is the comment's own line, `@+n`, `@-n`,
`@above` or `@below` (the nearest line without an expectation) or `@unknown` (no place in this
file). The text is a part of the message; `expected-error-re` takes regular expressions in `{{}}`
inside of it. Notes need not be expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nova.ir.diagnostics import Diagnostic

_EXPECTED = re.compile(
    r"expected-(?P<severity>error|warning|remark|note)(?P<regex>-re)? *"
    r"(?:@(?P<place>[+-]\d+|above|below|unknown))? *\{\{(?P<text>.*)\}\}\s*$"
)
# Anything that looks like an expectation: one with a typing mistake must not be skipped.
_ATTEMPT = re.compile(r"//.*\bexpected-(error|warning|remark|note)\b")


@dataclass(frozen=True)
class Expectation:
    """A diagnostic that must come: `line` is where it points, 0 for no place in the file."""

    severity: str
    line: int
    pattern: re.Pattern[str]
    text: str
    written_at: tuple[int, int]

    def matches(self, diagnostic: Diagnostic, filename: str) -> bool:
        line = diagnostic.line if diagnostic.file == filename else 0
        return (
            diagnostic.severity == self.severity
            and line == self.line
            and self.pattern.search(diagnostic.message) is not None
        )


def check_diagnostics(text: str, filename: str, emitted: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The mismatches between `emitted` and the expectations written in `text`."""
    entries = list(_read_expectations(text, filename))
    waiting = [entry for entry in entries if isinstance(entry, Expectation)]
    problems = [entry for entry in entries if isinstance(entry, Diagnostic)]
    for diagnostic in _flatten(emitted):
        match = next((e for e in waiting if e.matches(diagnostic, filename)), None)
        if match:
            waiting.remove(match)
        elif diagnostic.severity != "note":
            message = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            problems.append(
                Diagnostic("error", message, diagnostic.file, diagnostic.line, diagnostic.col)
            )
    for expectation in waiting:
        message = f'expected {expectation.severity} "{expectation.text}" was not produced'
        problems.append(Diagnostic("error", message, filename, *expectation.written_at))
    return problems


def _read_expectations(text: str, filename: str) -> Iterator[Expectation | Diagnostic]:
    lines = text.splitlines()
    marked = [_ATTEMPT.search(line) is not None for line in lines]
    for index, line in enumerate(lines):
        if not marked[index]:
            continue
        number = index + 1
        match = _EXPECTED.search(line)
        column = line.index("expected-") + 1
        if not match:
            yield Diagnostic("error", "malformed expectation", filename, number, column)
            continue
        yield Expectation(
            severity=match["severity"],
            line=_target_line(match["place"], number, marked),
            pattern=_compile(match["text"], is_regex=bool(match["regex"])),
            text=match["text"],
            written_at=(number, column),
        )


def _target_line(marker: str | None, number: int, marked: list[bool]) -> int:
    if marker == "unknown":
        return 0
    if marker in ("above", "below"):
        step = 1 if marker == "below" else -1
        number += step
        while 1 <= number <= len(marked) and marked[number - 1]:
            number += step
        return number
    return number + int(marker or 0)


def _compile(text: str, is_regex: bool) -> re.Pattern[str]:
    if not is_regex:
        return re.compile(re.escape(text))
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    return re.compile("".join(p if i % 2 else re.escape(p) for i, p in enumerate(pieces)))


def _flatten(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from _flatten(diagnostic.notes)
