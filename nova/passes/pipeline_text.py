"""Pipeline text to a list of passes.

Input: `builtin.module(nova-canonicalize,convert-nova-to-linalg{opt=1 flag},func.func(cse))`, with
or without the outer `builtin.module(...)`. Output: `Pass` objects in order: Nova's with typed
options, named pipelines expanded, everything else an `UpstreamPass` that MLIR has parsed once. An
error is a `PipelineError` with a caret under it. Called by `nova-opt`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nova.errors import PipelineError
from nova.ir.bindings import ir
from nova.passes.base import Pass, UpstreamPass
from nova.passes.options import OptionError, build
from nova.passes.registry import is_pass, known_names, load_pass, named_pipelines

_NAME = re.compile(r"[A-Za-z_][\w.$-]*")
_SPACE = re.compile(r"\s*")
_OPTION = re.compile(r"\S+")


@dataclass(frozen=True)
class Element:
    """A pass or an anchor op in the text: `name{options}(children)` at `start:end`."""

    name: str
    start: int
    end: int
    options: str = ""
    options_start: int = 0
    children: tuple[Element, ...] | None = None

    def walk(self) -> Iterator[Element]:
        """This element and all nested elements, outermost first."""
        yield self
        for child in self.children or ():
            yield from child.walk()


def parse_pipeline(text: str, context: ir.Context) -> list[Pass]:
    """The passes that `text` names, in order; MLIR checks its own names in `context`."""
    elements = _Reader(text).read_all()
    if len(elements) == 1 and elements[0].name == "builtin.module":
        elements = elements[0].children or ()
    passes: list[Pass] = []
    for element in elements:
        passes += _make_passes(element, text, context)
    return passes


def _make_passes(element: Element, text: str, context: ir.Context) -> list[Pass]:
    names = known_names()
    if element.name not in names:
        for inner in element.walk():
            if inner.name in names:
                raise _error(
                    f"`{inner.name}` runs on the whole module, not inside of `{element.name}`",
                    text,
                    inner.start,
                    "move it out of the parentheses",
                )
        return [_check_upstream(element, text, context)]
    if element.children is not None:
        raise _error(f"`{element.name}` takes no nested passes", text, element.end - 1)
    own_pass = is_pass(element.name)
    make = load_pass(element.name) if own_pass else named_pipelines()[element.name]
    options = [
        (match.group(), element.options_start + match.start())
        for match in _OPTION.finditer(element.options)
    ]
    try:
        result = build(make, options)
    except OptionError as error:
        message = f"`{element.name}`: {error}"
        at = element.start if error.position is None else error.position
        raise _error(message, text, at, error.hint) from None
    return [result] if isinstance(result, Pass) else result


def _check_upstream(element: Element, text: str, context: ir.Context) -> UpstreamPass:
    upstream = UpstreamPass(text[element.start : element.end])
    try:
        upstream.parse(context)
    except PipelineError as error:
        unknown = re.search(r"'([^']+)' does not refer to a registered pass", error.what)
        for inner in element.walk():
            if unknown and inner.name == unknown.group(1):
                close = difflib.get_close_matches(inner.name, known_names(), n=1)
                raise _error(
                    f"there is no pass `{inner.name}`, neither in Nova nor in MLIR",
                    text,
                    inner.start,
                    f"did you mean `{close[0]}`?" if close else "see nova-opt --list-passes",
                ) from None
        lines = error.what.split(": ", 1)[-1].strip().splitlines()
        raise _error(f"MLIR does not take `{upstream}`: {lines[0]}", text, element.start) from None
    return upstream


def _error(message: str, text: str, position: int, hint: str | None = None) -> PipelineError:
    start = text.rfind("\n", 0, position) + 1
    line = text[start:].split("\n", 1)[0]
    caret = " " * (position - start) + "^"
    return PipelineError(f"{message}\n  {line}\n  {caret}", hint=hint)


class _Reader:
    """Splits pipeline text into elements; knows brackets, but not passes."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def read_all(self) -> tuple[Element, ...]:
        elements = self.read_list(closing="")
        if self.at < len(self.text):
            raise _error(f"unexpected `{self.text[self.at]}`", self.text, self.at)
        return elements

    def read_list(self, closing: str) -> tuple[Element, ...]:
        """Elements up to `closing` (the end of the text if empty), which is left unread."""
        elements: list[Element] = []
        while True:
            self.skip_space()
            if not elements and self.text[self.at : self.at + 1] == closing:
                return ()
            elements.append(self.read_element())
            if self.text[self.at : self.at + 1] != ",":
                return tuple(elements)
            self.at += 1

    def read_element(self) -> Element:
        match = _NAME.match(self.text, self.at)
        if not match:
            raise _error("expected the name of a pass", self.text, self.at)
        start, self.at = self.at, match.end()
        end = self.at
        options, options_start, children = "", 0, None
        if self.text[self.at : self.at + 1] == "{":
            options_start = self.at + 1
            end = self.at = self.find_closing_brace()
            options = self.text[options_start : self.at - 1]
        self.skip_space()
        if self.text[self.at : self.at + 1] == "(":
            opened, self.at = self.at, self.at + 1
            children = self.read_list(closing=")")
            if self.text[self.at : self.at + 1] != ")":
                raise _error("this `(` is not closed", self.text, opened)
            self.at += 1
            end = self.at
        self.skip_space()
        return Element(match.group(), start, end, options, options_start, children)

    def find_closing_brace(self) -> int:
        """The position after the `}` that closes the `{` here."""
        depth = 0
        for position in range(self.at, len(self.text)):
            depth += {"{": 1, "}": -1}.get(self.text[position], 0)
            if depth == 0:
                return position + 1
        raise _error("this `{` is not closed", self.text, self.at)

    def skip_space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
