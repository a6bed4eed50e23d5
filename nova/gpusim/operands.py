"""Converts PTX operands to those of the simulator's records.

`Operands` belongs to one kernel and follows its statements with the decoder: it knows the registers
and their widths, collects the constants, and refuses operands that PTX would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nova.errors import PtxError
from nova.gpusim.ptx_parser import PtxKernel, Statement, split_operands
from nova.gpusim.records import CONSTANT, NONE, REGISTER, SINK, SPECIALS, Operand

_ADDRESS = re.compile(r"\[\s*(?P<base>[^\]+]+?)\s*(?:\+\s*(?P<offset>-?\w+))?\s*\]")
_FLOAT = re.compile(r"0[fF](?P<f32>[0-9a-fA-F]{8})|0[dD](?P<f64>[0-9a-fA-F]{16})")
_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")


class Operands:
    """Registers, constants and addresses of a kernel; `statement` is the one being decoded."""

    def __init__(self, kernel: PtxKernel, addresses: Mapping[str, int]):
        self.kernel, self.addresses = kernel, addresses
        self.word_offsets: dict[str, int] = dict(SPECIALS)
        words = len(SPECIALS)
        for name, width in kernel.registers.items():
            words += words % 2 if width == 64 else 0
            self.word_offsets[name] = words
            words += 2 if width == 64 else 1
        self.words = words
        self.constants: dict[int, int] = {}
        self.statement = Statement("", (), None, False, kernel.line)

    # --- errors ---------------------------------------------------------------------------------

    def error(self, message: str) -> PtxError:
        return PtxError(f"{self.kernel.name}: {message}", line=self.statement.line)

    def unknown(self) -> PtxError:
        return PtxError(
            f"{self.kernel.name}: the simulator does not know the instruction "
            f"{self.statement.opcode}",
            line=self.statement.line,
        )

    def expect(self, *counts: int) -> None:
        """Check that the number of operands is one of `counts`."""
        if len(self.statement.operands) not in counts:
            raise self.error(
                f"{self.statement.opcode} with {len(self.statement.operands)} operands"
            )

    # --- operands -------------------------------------------------------------------------------

    def constant(self, value: int, width: int) -> Operand:
        value %= 1 << width
        return (CONSTANT, width, 0, self.constants.setdefault(value, len(self.constants)), 0)

    def number(self, text: str, width: int) -> int | None:
        """The value of a literal, or the address of a variable; None if neither."""
        if literal := _FLOAT.fullmatch(text):
            if (literal["f32"] is None) != (width == 64):
                raise self.error(f"{text} where {width} bits are expected")
            return int(literal["f32"] or literal["f64"], 16)
        if _INTEGER.fullmatch(text):
            return int(text.rstrip("U"), 0)
        for variables in (self.kernel.variables, self.kernel.params):
            if text in variables:
                return variables[text].offset
        return self.addresses.get(text)

    def value(self, text: str, *widths: int) -> Operand:
        """A register of one of `widths`, or a constant of the first."""
        if text == "WARP_SZ":
            return self.constant(32, widths[0])
        if text in self.word_offsets:
            width = self.kernel.registers.get(text, 32)
            if width not in widths:
                expected = " or ".join(map(str, widths))
                raise self.error(f"{text} has {width} bits where {expected} are expected")
            return (REGISTER, width, 0, self.word_offsets[text], 0)
        if (number := self.number(text, widths[0])) is None:
            raise self.error(f"what is {text!r}?")
        return self.constant(number, widths[0])

    def result(self, text: str, *widths: int) -> Operand:
        """A register to write, or `_`."""
        if text == "_":
            return (SINK, widths[0], 0, 0, 0)
        if text not in self.kernel.registers:
            raise self.error(f"{text!r} cannot be written")
        return self.value(text, *widths)

    def predicate(self, text: str) -> Operand:
        """A predicate, possibly negated, or a constant predicate."""
        storage, width, _, at, offset = self.value(text.lstrip("! "), 1)
        return (storage, width, int(text.startswith("!")), at, offset)

    def address(self, text: str) -> Operand:
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise self.error(f"not an address: {text}")
        base, offset = match["base"], int(match["offset"] or "0", 0)
        if not -(1 << 31) <= offset < 1 << 32:
            raise self.error(f"not an offset of an address: {offset}")
        if base in self.word_offsets:
            storage, width, _, at, _ = self.value(base, 64, 32)
            return (storage, width, 0, at, offset)
        if (number := self.number(base, 64)) is None:
            raise self.error(f"what is {base!r}?")
        return (NONE, 64, 0, 0, number + offset)

    def integer(self, text: str) -> int:
        """A literal, for operands that must be one."""
        if not _INTEGER.fullmatch(text):
            raise self.error(f"{text!r} where a number is expected")
        return int(text.rstrip("U"), 0)

    def count(self, text: str) -> int:
        """A literal number of groups, copies or the like."""
        if not 0 <= (number := self.integer(text)) < 1 << 31:
            raise self.error(f"{number} where a count is expected")
        return number

    def vector(self, text: str) -> list[str]:
        """The elements of a vector, or the one operand."""
        return split_operands(text[1:-1]) if text.startswith("{") else [text]

    def pair(self, text: str) -> list[str]:
        """Results of the form `d|p`."""
        return [part.strip() for part in text.split("|")]
