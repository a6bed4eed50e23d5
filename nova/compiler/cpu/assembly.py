"""The assembly of a program: the listings of its units as one text that an assembler takes.

In: the assembly that LLVM prints for each unit. Out: the text of the stage `asm`. Units may define
the same local names: labels of blocks and constants, and private functions such as those of the
math library. In the joined text the local names of each unit after the first have its number as a
suffix; instructions and data do not change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABEL = re.compile(r"^([\w.$]+):", re.MULTILINE)
_GLOBAL = re.compile(r"^\s*\.(?:globl|weak)\s+([\w.$]+)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.$@%])[A-Za-z_.$][\w.$]*")


def join_assembly(listings: Sequence[str]) -> str:
    """One assembly text of several units."""
    return "\n".join(
        [*listings[:1], *(_rename_locals(text, i) for i, text in enumerate(listings[1:], 1))]
    )


def _rename_locals(text: str, number: int) -> str:
    """Give the local names of a listing a suffix."""
    names = {*_LABEL.findall(text)} - {*_GLOBAL.findall(text)}
    return _NAME.sub(lambda name: f"{name[0]}.{number}" if name[0] in names else name[0], text)
