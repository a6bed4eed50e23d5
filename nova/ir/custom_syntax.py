"""The custom syntax of the nova dialect, on top of MLIR's generic syntax.

    %0 = nova.matmul %a, %b : (tensor<8x16xf32>, tensor<16x10xf32>) -> tensor<8x10xf32>
    %1 = nova.sum %0 {axis = 1} : tensor<8x10xf32>
    %2 = nova.constant dense<1.0> : tensor<10xf32>

Ops of dialects that are defined in Python have no custom parser or printer in MLIR. So text is
rewritten: `to_generic` before MLIR parses it, `to_pretty` after MLIR has printed it. Both work on
tokens and change only nova ops: not strings, comments, regions or other dialects. An edit never
adds or removes a newline, so line numbers stay the same, and `Rewritten` maps a column of an MLIR
error to the column in the original text.

If the types after the colon are those of the operands alone (or one for all of them), the rules of
the op table give the result types; an op without operands has its result type there. Called by
`nova.ir.context` and the tools; this file does not need MLIR.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from nova.core.suggest import find_close
from nova.errors import MLIRSyntaxError, NovaError
from nova.ops import OPS

Infer = Callable[[str, Sequence[str], str, str], str]
"""(op, operand types, attributes, aliases of the text) -> result type."""

SEGMENTS = "operandSegmentSizes"

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*")
    |(?P<value>%[\w$.-]+(?:\#\d+)?)
    |(?P<symbol>@[\w$.]+)
    |(?P<sigil>[!\#^][\w$.]+)
    |(?P<word>[A-Za-z_][\w$.]*)
    |(?P<number>\d[\w.]*)
    |(?P<mark>->|::|[<>=]=|.)""",
    re.VERBOSE | re.DOTALL,
)
# Whether the text may contain an op in the custom syntax: an attribute is followed by `=`, `,`,
# `}`.
_CANDIDATE = re.compile(r"""(?<![\w"@#!%$.-])nova\.\w++(?![.$])(?:\s|//[^\n]*+\n)*+(?![=,})\]>])""")
_OP = re.compile(r"nova\.(\w+)")
_AFTER_ATTRIBUTE = frozenset("=,})]>") | {""}
_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSING = frozenset(_OPENING.values())


class _Token(NamedTuple):
    category: str
    text: str
    start: int
    end: int


class _Edit(NamedTuple):
    """Replace the range between two offsets, which has no newline, by `text`."""

    start: int
    end: int
    text: str


class Rewritten:
    """A text after edits; `original` has positions of the text before them."""

    def __init__(self, before: str, edits: Sequence[_Edit]):
        pieces, position = [], 0
        for edit in edits:
            pieces += [before[position : edit.start], edit.text]
            position = edit.end
        self.text = "".join((*pieces, before[position:]))
        self._before = before
        self._edits = edits

    def original_column(self, line: int, column: int) -> int:
        """The column, 1-based and in bytes as in MLIR, before the edits of its line."""
        if not self._edits or line < 1 or column < 1:
            return column
        moved = 0  # growth of the line so far
        for start, removed, added in self._by_line.get(line, ()):
            if column - 1 < start + moved:
                break
            if column - 1 < start + moved + added:  # inside inserted text
                return start + 1 + min(removed, column - 1 - start - moved)
            moved += added - removed
        return column - moved

    @property
    def _by_line(self) -> dict[int, list[tuple[int, int, int]]]:
        """Per line: start, removed and added bytes of its edits. Only messages need it."""
        ends = [match.end() for match in re.finditer("\n", self._before)]
        lines: dict[int, list[tuple[int, int, int]]] = {}
        for edit in self._edits:
            line = bisect_right(ends, edit.start)
            first = ends[line - 1] if line else 0
            spans = (self._before[first : edit.start], self._before[edit.start : edit.end])
            start, removed = (len(span.encode()) for span in spans)
            lines.setdefault(line + 1, []).append((start, removed, len(edit.text.encode())))
        return lines


def to_generic(text: str, filename: str, op_names: Collection[str], infer: Infer) -> Rewritten:
    """The text with every nova op in MLIR's generic form; MLIRSyntaxError at an invalid op.

    `op_names` are the names of the ops; `infer` computes the type of a result that is not written.
    """
    # A text without the name of the dialect is found much faster than by the pattern.
    if "nova." not in text or not _CANDIDATE.search(text):
        return Rewritten(text, ())
    return Rewritten(text, _Reader(text, filename, op_names, infer).read())


def to_pretty(text: str) -> str:
    """MLIR's output with nova ops in the custom syntax, except those with regions."""
    if '"nova.' not in text:
        return text
    try:
        return Rewritten(text, list(_Writer(text).write())).text
    except MLIRSyntaxError:  # a file can contain any text; this one is not from MLIR's printer
        return text


class _Tokens:
    """The tokens of a text without whitespace and comments, and the matching brackets."""

    def __init__(self, text: str, filename: str = "-"):
        self.source, self.filename = text, filename
        self.tokens = [
            _Token(match.lastgroup or "", match.group(), match.start(), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "skip"
        ]
        self.tokens.append(_Token("end", "", len(text), len(text)))

    def text(self, first: int, last: int) -> str:
        """The text from one token to another, both included, in one line."""
        text = self.source[self.tokens[first].start : self.tokens[last].end]
        if "\n" in text:
            return " ".join(token.text for token in self.tokens[first : last + 1])
        return text

    def is_mark(self, index: int, mark: str) -> bool:
        token = self.tokens[index]
        return token.category == "mark" and token.text == mark

    def fail(self, index: int, message: str, hint: str | None = None) -> MLIRSyntaxError:
        """The error at a token."""
        before = self.source[: self.tokens[index].start]
        line, last = before.count("\n") + 1, before.rfind("\n")
        column = len(before[last + 1 :].encode()) + 1
        return MLIRSyntaxError(message, where=f"{self.filename}:{line}:{column}", hint=hint)

    def skip_brackets(self, index: int) -> int:
        """The token after the bracket that closes the one at `index`."""
        closing: list[str] = []
        for position in range(index, len(self.tokens)):
            token = self.tokens[position]
            if token.category != "mark":
                continue
            if token.text in _OPENING:
                closing.append(_OPENING[token.text])
            elif token.text in _CLOSING:
                if closing.pop() != token.text:
                    break
                if not closing:
                    return position + 1
        raise self.fail(index, f"`{self.tokens[index].text}` is never closed")

    def skip_values(self, index: int) -> int:
        """The token after a comma-separated list of values, which may be empty."""
        if self.tokens[index].category != "value":
            return index
        while self.is_mark(index + 1, ","):
            index += 2
            if self.tokens[index].category != "value":
                raise self.fail(index, "expected an operand after the comma")
        return index + 1

    def skip_type(self, index: int) -> int:
        """The token after one type."""
        token = self.tokens[index]
        if token.category == "word" or (token.category == "sigil" and token.text.startswith("!")):
            return self.skip_brackets(index + 1) if self.is_mark(index + 1, "<") else index + 1
        if self.is_mark(index, "("):
            return self.skip_function_type(index)
        raise self.fail(index, "expected a type")

    def skip_function_type(self, index: int) -> int:
        """The token after `(operands) -> results`."""
        index = self.skip_brackets(index)
        if not self.is_mark(index, "->"):
            raise self.fail(index, "expected `->` and the types of the results")
        if not self.is_mark(index + 1, "("):
            return self.skip_type(index + 1)
        after = self.skip_brackets(index + 1)
        return self.skip_type(after + 1) if self.is_mark(after, "->") else after

    def split(self, opening: int) -> list[tuple[int, int]]:
        """First and last token of each comma-separated item between a bracket and its end."""
        items, first = [], opening + 1
        index, end = first, self.skip_brackets(opening) - 1
        while index < end:
            if self.is_mark(index, ","):
                items.append((first, index - 1))
                first = index = index + 1
            elif self.tokens[index].category == "mark" and self.tokens[index].text in _OPENING:
                index = self.skip_brackets(index)
            else:
                index += 1
        return [*items, (first, end - 1)] if first < end else items


class _Reader(_Tokens):
    """Custom syntax to generic."""

    def __init__(self, text: str, filename: str, op_names: Collection[str], infer: Infer):
        super().__init__(text, filename)
        self.op_names, self.infer = op_names, infer
        self.edits: list[_Edit] = []
        self._aliases: str | None = None

    def read(self) -> list[_Edit]:
        index = 0
        while self.tokens[index].category != "end":
            index = self._op(index) if self._is_op(index) else index + 1
        return sorted(self.edits, key=lambda edit: edit.start)  # stable: in creation order

    def _is_op(self, index: int) -> bool:
        token, after = self.tokens[index], self.tokens[index + 1]
        return (
            token.category == "word"
            and _OP.fullmatch(token.text) is not None
            and (after.category not in ("mark", "end") or after.text not in _AFTER_ATTRIBUTE)
        )

    def _op(self, index: int) -> int:
        """Rewrite the op whose name is at `index`; returns the token after it."""
        name = self.tokens[index].text.removeprefix("nova.")
        if name not in self.op_names:
            close = find_close(name, self.op_names)
            hint = f"did you mean `nova.{close}`?" if close else "docs/ops.md lists every op"
            raise self.fail(index, f"there is no op `nova.{name}`", hint)
        if name == "constant":
            return self._constant(index)
        after = self.skip_values(index + 1)
        operands = (after - index) // 2
        if after == index + 1:
            self._replace(index, f'"nova.{name}"()')
        else:
            self._replace(index, f'"nova.{name}"(')
            self._insert_after(after - 1, ")")
        colon = self.skip_brackets(after) if self.is_mark(after, "{") else after
        attributes = self.text(after, colon - 1) if colon > after else "{}"
        self._write_segments(name, operands, after, attributes)
        if not self.is_mark(colon, ":"):
            raise self.fail(
                colon,
                f"expected `:` and the types of `nova.{name}`",
                "write nova.NAME %operands {attributes} : (types) -> type",
            )
        if self.is_mark(colon + 1, "("):
            return self.skip_function_type(colon + 1)
        return self._types_of_operands(name, index, operands, attributes, colon + 1)

    def _types_of_operands(
        self, name: str, op: int, operands: int, attributes: str, first: int
    ) -> int:
        """Build a function type from the types at `first`, one for each operand or one for all."""
        index = self.skip_type(first)
        types = [self.text(first, index - 1)]
        while self.is_mark(index, ","):
            start = index + 1
            index = self.skip_type(start)
            types.append(self.text(start, index - 1))
        if operands == 0 and len(types) == 1:
            self._insert_before(first, "() -> ")
            return index
        if len(types) not in (1, operands):
            raise self.fail(
                first, f"{len(types)} types for the {operands} operands of `nova.{name}`"
            )
        repeated = types * operands if len(types) == 1 else types
        try:
            result = self.infer(name, repeated, attributes, self._find_aliases())
        except NovaError as error:
            raise self.fail(op, f"'nova.{name}' op {error.what}", error.hint) from None
        self._insert_before(first, "(")
        self._insert_after(index - 1, "".join(f", {t}" for t in repeated[len(types) :]))
        self._insert_after(index - 1, f") -> {result}")
        return index

    def _constant(self, index: int) -> int:
        """`nova.constant {attributes} value : type`."""
        name, index = index, index + 1
        if self.is_mark(index, "{"):
            last = self.skip_brackets(index)
            self._replace(name, '"nova.constant"()')
            self._replace(last - 1, f"{', ' * bool(self.split(index))}value = ")
            index = last
        else:
            self._replace(name, '"nova.constant"() {value =')
        value = index
        if self.tokens[index].category not in ("word", "sigil"):
            raise self.fail(index, "expected a value such as dense<1.0>")
        index += 1
        if self.is_mark(index, "<"):
            index = self.skip_brackets(index)
        if not self.is_mark(index, ":"):
            raise self.fail(index, "expected `:` and the type of the constant")
        end = self.skip_type(index + 1)
        type_ = self.text(index + 1, end - 1)
        # An alias stands for a value with its type.
        typed = "" if self.tokens[value].category == "sigil" else f" : {type_}"
        self._insert_after(index - 1, f"{typed}}}")
        self._insert_before(index + 1, "() -> ")
        return end

    def _write_segments(self, name: str, operands: int, after: int, attributes: str) -> None:
        """The operand segment sizes attribute, if MLIR needs it."""
        segments = segment_sizes(name, operands)
        if segments is None or SEGMENTS in attributes:
            return
        written = f"{SEGMENTS} = {segments}"
        if not self.is_mark(after, "{"):
            self._insert_after(after - 1, f" {{{written}}}")
        else:
            self._insert_after(after, written + ", " * bool(self.split(after)))

    def _find_aliases(self) -> str:
        """The lines that define aliases of types and attributes, `!t = ...` and `#a = ...`."""
        if self._aliases is None:
            starts = re.finditer(r"^[ \t]*[!#][\w$.]+\s*=[^\n]*$", self.source, re.MULTILINE)
            self._aliases = "\n".join(match.group() for match in starts)
        return self._aliases

    def _replace(self, index: int, text: str) -> None:
        token = self.tokens[index]
        self.edits.append(_Edit(token.start, token.end, text))

    def _insert_before(self, index: int, text: str) -> None:
        start = self.tokens[index].start
        self.edits.append(_Edit(start, start, text))

    def _insert_after(self, index: int, text: str) -> None:
        end = self.tokens[index].end
        self.edits.append(_Edit(end, end, text))


class _Writer(_Tokens):
    """Generic form, as MLIR prints it, to custom syntax."""

    def write(self) -> Iterator[_Edit]:
        for index, token in enumerate(self.tokens):
            if (
                token.category == "string"
                and _OP.fullmatch(token.text[1:-1]) is not None
                and self.is_mark(index + 1, "(")
            ):
                yield from self._op(index, token.text[6:-1])

    def _op(self, index: int, name: str) -> Iterator[_Edit]:
        closing = self.skip_values(index + 2)
        if not self.is_mark(closing, ")"):
            return
        colon = closing + 1
        if self.is_mark(colon, "{"):
            colon = self.skip_brackets(colon)
        if not self.is_mark(colon, ":"):
            return  # regions, successors or properties have no custom syntax
        items = self.split(closing + 1) if colon > closing + 1 else []
        entries = {self.tokens[first].text: (first, last) for first, last in items}
        if name == "constant":
            yield from self._constant(index, entries, colon)
            return
        operands = (closing - index - 1) // 2
        yield _Edit(self.tokens[index].start, self.tokens[index + 1].end, f"nova.{name}")
        start = self.tokens[closing].start
        if operands:
            before = self.tokens[index + 2].start
            yield _Edit(before, before, " ")
        segments = segment_sizes(name, operands)
        remaining = [
            text
            for entry, text in self._texts(entries)
            if entry != SEGMENTS or text != f"{SEGMENTS} = {segments}"
        ]
        if len(remaining) == len(entries):
            yield _Edit(start, self.tokens[closing].end, "")
        else:
            written = f" {{{', '.join(remaining)}}}" if remaining else ""
            yield _Edit(start, self.tokens[colon - 1].end, written)

    def _constant(
        self, index: int, entries: dict[str, tuple[int, int]], colon: int
    ) -> Iterator[_Edit]:
        after = self.skip_function_type(colon + 1)
        # The result type follows `: () ->`.
        type_ = self.text(colon + 4, after - 1)
        value = dict(self._texts(entries)).get("value", "").removeprefix("value = ")
        if not value.endswith(f" : {type_}"):
            return  # an alias, or not a constant
        others = [text for entry, text in self._texts(entries) if entry != "value"]
        attributes = f"{{{', '.join(others)}}} " if others else ""
        yield _Edit(
            self.tokens[index].start,
            self.tokens[after - 1].end,
            f"nova.constant {attributes}{value}",
        )

    def _texts(self, entries: dict[str, tuple[int, int]]) -> Iterator[tuple[str, str]]:
        for name, (first, last) in entries.items():
            yield name, self.text(first, last)


def segment_sizes(name: str, operands: int) -> str | None:
    """The operand segment sizes of an op with several optional operands."""
    row = OPS.get(name)
    if row is None or sum(operand.endswith("?") for operand in row.operands) < 2:
        return None
    sizes = [1] * operands + [0] * (len(row.operands) - operands)
    return f"array<i32: {', '.join(map(str, sizes))}>"
