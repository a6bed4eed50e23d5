"""Containers: the block of a program with loops and branches.

In: the blocks of tables (`nova/artifact/tables.py`) of all regions and, last, of the program, and
the control kernels among their kernels. Out: one block with all of them, in the layout of
native/include/nova/tables.h; and back. docs/nova-format.md documents the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from nova.artifact.check import Buffer, fail
from nova.core.records import record

MAGIC = b"NOVACTL2"
OLD_MAGIC = b"NOVACTL1"
"""Regions of such a container do not update carries in place."""
HEADER = Struct("<8sQIIII")
CONTROL = Struct("<8Iq")
REGION = Struct("<I")
BLOCK = Struct("<QQ")

CONSTRUCTS = ("switch", "while", "for", "call")
"""What a control kernel does; nova/ir/control_flow/functions.py has the operands of each."""


@record
class ControlSpec:
    """A loop or branch: `regions` are the numbers of blocks of the container."""

    construct: str  # of CONSTRUCTS
    regions: tuple[int, ...]
    consts: int = 0
    carries: int = 0
    length: int = 0
    reverse: bool = False


def pack_container(
    blocks: Sequence[bytes], controls: Mapping[tuple[int, int], ControlSpec]
) -> bytes:
    """Encode a container; the keys of `controls` are numbers of a block and of its kernel."""
    records: list[bytes] = []
    regions: list[int] = []
    for (block, kernel), control in controls.items():
        construct = CONSTRUCTS.index(control.construct)
        counts = (len(control.regions), control.consts, control.carries)
        words = (block, kernel, construct, len(regions), *counts, int(control.reverse))
        records.append(CONTROL.pack(*words, control.length))
        regions += control.regions
    head = b"".join(records) + b"".join(map(REGION.pack, regions))
    head += bytes(-len(head) % 8)
    position = HEADER.size + len(head) + BLOCK.size * len(blocks)
    spans, body = b"", b""
    for packed in blocks:
        spans += BLOCK.pack(position + len(body), len(packed))
        body += packed + bytes(-len(packed) % 8)
    counts_of_arrays = (len(blocks), len(records), len(regions), 0)
    start = HEADER.pack(MAGIC, position + len(body), *counts_of_arrays)
    return start + head + spans + body


class Container:
    """The blocks and control kernels of a container; of another block, the block itself."""

    def __init__(self, block: Buffer):
        view = memoryview(block)
        self.blocks = [view]
        self.controls: dict[tuple[int, int], ControlSpec] = {}
        if bytes(view[:8]) in (MAGIC, OLD_MAGIC):
            self._read(view)

    def _read(self, view: memoryview) -> None:
        if len(view) < HEADER.size:
            fail("tables-size", f"a container of {len(view)} bytes")
        _, size, blocks, records, regions, _ = HEADER.unpack_from(view)
        region_at = HEADER.size + records * CONTROL.size
        block_at = region_at + regions * REGION.size
        end, block_at = block_at, block_at + -block_at % 8
        if size != len(view) or block_at + blocks * BLOCK.size > size or not blocks:
            fail("tables-control", f"{blocks} blocks in a container of {len(view)} bytes")
        numbers = [number for (number,) in REGION.iter_unpack(view[region_at:end])]
        for row in CONTROL.iter_unpack(view[HEADER.size : region_at]):
            block, kernel, construct, first, count, consts, carries, reverse, length = row
            if construct >= len(CONSTRUCTS):
                fail("tables-control", f"construct {construct} is not one of {CONSTRUCTS}")
            self.controls[block, kernel] = ControlSpec(
                CONSTRUCTS[construct],
                tuple(numbers[first : first + count]),
                consts,
                carries,
                length,
                bool(reverse),
            )
        spans = BLOCK.iter_unpack(view[block_at : block_at + blocks * BLOCK.size])
        self.blocks = [view[at : at + length] for at, length in spans]
