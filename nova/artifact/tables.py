"""The tables of one code variant: its kernels, their launch order, and their buffers.

The compiler creates `Tables`, `pack_tables` encodes the block of section `.nova.tables` (the
structs of native/include/nova/tables.h), `patch_code` fills in the kernels' addresses after the
link, and `unpack_tables` decodes a block, for people and for tests: programs run from the block
itself. docs/nova-format.md documents the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from struct import Struct

from nova.artifact.check import Buffer, fail, storable
from nova.artifact.container import Container, ControlSpec, pack_container
from nova.artifact.device_launch import (
    DEPENDENT,
    DEVICE,
    MATRIX_CORES,
    TENSOR_MAP,
    DeviceLaunch,
    TensorMapSpec,
    pack_device,
    pack_tensor_maps,
    read_tensor_map,
)
from nova.artifact.tilings import Tiling, pack_tilings, unpack_tilings
from nova.core.records import record

TILED_MAGIC = b"NOVATBL5"
TILED_DEVICE_MAGIC = b"NOVATBL6"
"""Magic of blocks with the tilings of kernels, from which the runtime derives tasks."""
TASKS_MAGIC = b"NOVATBL7"
TASKS_DEVICE_MAGIC = b"NOVATBL8"
"""Magic of blocks whose kernels of a device have tilings and flags, too. Blocks without any are
still those above; the first is reserved."""
MAGIC = b"NOVATBL3"
DEVICE_MAGIC = b"NOVATBL4"
"""Magic of a block with device kernels: the shapes of their launches are an extra array."""
OLD_MAGIC = b"NOVATBL1"
OLD_DEVICE_MAGIC = b"NOVATBL2"
"""Magic of blocks from an older Nova, without the interfaces of kernels."""
MAGICS = (
    OLD_MAGIC,
    OLD_DEVICE_MAGIC,
    MAGIC,
    DEVICE_MAGIC,
    TILED_MAGIC,
    TILED_DEVICE_MAGIC,
    TASKS_MAGIC,
    TASKS_DEVICE_MAGIC,
)
"""In the order of their age; every second one is for devices."""
ALIGN = 64
"""The alignment of blocks, and of the buffers in workspace and constants."""

HEADER = Struct("<8sQQQ8I")
BUFFER = Struct("<IIQQ")
KERNEL = Struct("<QqQQIIII")
LAUNCH = Struct("<IIII")
OPERAND = Struct("<I")
TASK = Struct("<IIqqII")
SUCCESSOR = Struct("<I")
INTERFACE = Struct("<qIIII")
INTERFACE_SIZE = Struct("<Q")
# In the order of the block; device launches and their tensor maps, tilings, the interfaces of
# kernels and the strings follow.
ARRAYS = (BUFFER, KERNEL, LAUNCH, OPERAND, TASK, SUCCESSOR)

BUFFER_KINDS = ("arg", "output", "workspace", "constant", "sizes", "output_part")
CORES = ("matrix", "vector", "host", "device", "to_host", "to_device", "while")
"""The core types of kernels. The last three are not code: a launch of a copy moves its one buffer
from device memory to host memory, or back; and the `grid` launches after one of `while` repeat as
long as its one buffer, a byte on the device, is not 0."""
COPIES = ("to_host", "to_device")
UNLINKED = ("device", *COPIES, "while")
"""Core types of kernels that are not in the linked code of the file."""
REPORTS = 0x100
"""Flag in the core number: the kernel returns an error number."""
TAKES_SCRATCH = 0x200
"""Flag in the core number: the kernel's fourth argument is scratch memory."""
CONTROL = 0x400
"""Flag in the core number: the kernel is a loop or branch, which runs regions."""
_CORE = 0xFF


@record
class BufferSpec:
    """Memory that kernels see: `value` is an index (arg, output) or a byte offset.

    The one of kind `sizes` has the values of symbolic sizes, which the runtime computes. One of
    kind `output_part` is an intermediate in the memory of output number `output`.
    """

    kind: str  # of BUFFER_KINDS
    value: int
    nbytes: int
    output: int = 0

    def overlaps(self, buffer: BufferSpec) -> bool:
        """Whether two buffers that kernels may write have bytes in common."""
        if self._memory != buffer._memory or self.kind == "constant":
            return False
        (low, high), (begin, end) = self._range, buffer._range
        return (low < end and begin < high) or self == buffer

    @property
    def _memory(self) -> tuple[str, int]:
        """What it is a part of: the workspace, or an argument or output."""
        if self.kind == "output_part":
            return "output", self.output
        return self.kind, self.value if self.kind in ("arg", "output") else 0

    @property
    def _range(self) -> tuple[int, int]:
        start = 0 if self.kind in ("arg", "output") else self.value
        return start, start + self.nbytes


@record
class KernelSpec:
    """One function of the code: `grid` is its number of tiles; `flops` and `bytes` are totals.

    Kernels of core `device`, and only they, have a `device`; their `symbol` is the entry's name in
    the device images.
    """

    name: str
    symbol: str
    grid: int
    core: str  # of CORES
    flops: int
    bytes: int
    location: str
    reports: bool = False  # whether it returns an i32, where anything but 0 is an error
    takes_scratch: bool = False  # whether its fourth argument is scratch memory
    device: DeviceLaunch | None = None
    tiling: Tiling | None = None  # of a linked kernel; None in blocks of an older Nova
    control: ControlSpec | None = None

    @property
    def is_linked(self) -> bool:
        """Whether its code is in the file, for the host."""
        return self.core not in UNLINKED and self.control is None


@record
class LaunchSpec:
    """One call of a kernel, in program order; `kernel` and `buffers` index the tables.

    The kernel only reads the first `reads` buffers. 0 if unknown: only tools use it.
    """

    kernel: int
    buffers: tuple[int, ...]
    reads: int = 0


@record
class TaskSpec:
    """Tiles [begin, end) of a launch: runs after `waits` tasks have named it as a successor."""

    launch: int
    waits: int
    begin: int
    end: int
    successors: tuple[int, ...]


@record
class Tables:
    """A whole block. `work` is the scalar operations of a run.

    The runtime derives tasks from the tilings of kernels. `tasks` are fixed ones, of an older Nova;
    without both, launches run in order.

    `scratch_size` is the private memory of each thread while it runs a kernel. `regions` are the
    tables of loop bodies and branches, at any depth, those inside of others first.
    """

    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelSpec, ...]
    launches: tuple[LaunchSpec, ...]
    workspace_size: int
    work: int
    tasks: tuple[TaskSpec, ...] = ()
    scratch_size: int = 0
    regions: tuple[Tables, ...] = ()

    def renamed(self, suffix: str, device_suffix: str = "") -> Tables:
        """The same tables with `suffix` appended to the symbol of every linked kernel, and
        `device_suffix` to that of every kernel with code for a device."""

        def of_kernel(kernel: KernelSpec) -> KernelSpec:
            more = device_suffix if kernel.device is not None else suffix * kernel.is_linked
            return replace(kernel, symbol=kernel.symbol + more) if more else kernel

        kernels = tuple(map(of_kernel, self.kernels))
        regions = tuple(region.renamed(suffix, device_suffix) for region in self.regions)
        return replace(self, kernels=kernels, regions=regions)

    def region(self, number: int) -> Tables:
        """The tables of a region with the regions inside of it, as those of a program."""
        inner: set[int] = set()
        pending = [number]
        while pending:
            nested = {n for k in self.regions[pending.pop()].kernels for n in _regions_of(k)}
            pending += nested - inner
            inner |= nested
        numbers = {old: new for new, old in enumerate(sorted(inner))}
        program, *regions = (
            _renumbered(self.regions[n], numbers) for n in (number, *sorted(inner))
        )
        return replace(program, regions=tuple(regions))

    @property
    def linked_symbols(self) -> list[str]:
        """The symbols of all linked kernels, also those of regions; each once."""
        return list(dict.fromkeys(k.symbol for k in self._every_kernel if k.is_linked))

    @property
    def device_symbols(self) -> list[str]:
        """The symbols of all kernels with code for a device, also those of regions; each once."""
        return list(dict.fromkeys(k.symbol for k in self._every_kernel if k.device is not None))

    @property
    def _every_kernel(self) -> list[KernelSpec]:
        return [k for tables in (*self.regions, self) for k in tables.kernels]

    @property
    def has_device(self) -> bool:
        """Whether any kernel needs a device."""
        return any(k.core in ("device", *COPIES) for k in self.kernels)

    @property
    def has_tilings(self) -> bool:
        """Whether the runtime can derive tasks."""
        on_host = [k for k in self.kernels if k.is_linked or (k.control and k.core != "device")]
        linked = [k.tiling is not None for k in on_host]
        return bool(linked) and all(linked)

    @property
    def has_device_tasks(self) -> bool:
        """Whether kernels of a device have tilings or flags."""
        return any(k.device is not None and (k.tiling or k.device.flags) for k in self.kernels)


def _regions_of(kernel: KernelSpec) -> tuple[int, ...]:
    return () if kernel.control is None else tuple(kernel.control.regions)


def _renumbered(tables: Tables, numbers: Mapping[int, int]) -> Tables:
    def moved(kernel: KernelSpec) -> KernelSpec:
        if kernel.control is None:
            return kernel
        regions = tuple(numbers[n] for n in kernel.control.regions)
        return replace(kernel, control=replace(kernel.control, regions=regions))

    kernels = tuple(map(moved, tables.kernels))
    return replace(tables, kernels=kernels)


def pack_tables(tables: Tables, code: Mapping[str, int] | None = None) -> bytes:
    """Encode the block; `code` has the kernel addresses by symbol, which are 0 until the link."""
    if not tables.regions and not any(kernel.control for kernel in tables.kernels):
        return _pack_one(tables, code)
    every = (*tables.regions, tables)
    controls = {
        (number, index): kernel.control
        for number, block in enumerate(every)
        for index, kernel in enumerate(block.kernels)
        if kernel.control is not None
    }
    return pack_container([_pack_one(block, code) for block in every], controls)


def _pack_one(tables: Tables, code: Mapping[str, int] | None) -> bytes:
    strings = _Strings()
    operand_at = _starts([len(launch.buffers) for launch in tables.launches])
    successor_at = _starts([len(task.successors) for task in tables.tasks])
    rows: tuple[list[tuple[int, ...]], ...] = (
        [(BUFFER_KINDS.index(b.kind), b.output, b.value, b.nbytes) for b in tables.buffers],
        [
            (
                code[k.symbol] if code is not None and k.is_linked else 0,
                k.grid,
                k.flops,
                k.bytes,
                _core_number(k),
                strings.offset(k.name),
                strings.offset(k.symbol),
                strings.offset(k.location),
            )
            for k in tables.kernels
        ],
        [
            (launch.kernel, at, len(launch.buffers), launch.reads)
            for launch, at in zip(tables.launches, operand_at, strict=True)
        ],
        [(buffer,) for launch in tables.launches for buffer in launch.buffers],
        [
            (task.launch, task.waits, task.begin, task.end, at, len(task.successors))
            for task, at in zip(tables.tasks, successor_at, strict=True)
        ],
        [(successor,) for task in tables.tasks for successor in task.successors],
    )
    try:
        return _pack_rows(tables, rows, strings)
    except struct.error:  # the values are from the text of a stage, which may be hand-written
        fail("tables-number", "a size, a grid or an amount of work is negative or too large")


def _pack_rows(
    tables: Tables, rows: Sequence[Sequence[tuple[int, ...]]], strings: _Strings
) -> bytes:
    body = bytearray(HEADER.size)
    for row_format, table in zip(ARRAYS, rows, strict=True):
        body += b"".join([row_format.pack(*row) for row in table])
        body += bytes(-len(body) % 8)
    if tables.has_device:
        body += b"".join([pack_device(kernel.device) for kernel in tables.kernels])
        body += b"".join([pack_tensor_maps(kernel.device) for kernel in tables.kernels])
    if tables.has_tilings or tables.has_device_tasks:
        body += pack_tilings(_checkable_tilings(tables))
    body += _pack_interfaces(tables, strings)
    body += strings.data
    counts = (*map(len, rows), len(strings.data))
    sizes = (len(body), tables.workspace_size, tables.work)
    magics = (TILED_MAGIC, TILED_DEVICE_MAGIC) if tables.has_tilings else (MAGIC, DEVICE_MAGIC)
    magic = TASKS_DEVICE_MAGIC if tables.has_device_tasks else magics[tables.has_device]
    HEADER.pack_into(body, 0, magic, *sizes, *counts, tables.scratch_size)
    return bytes(body)


def _core_number(kernel: KernelSpec) -> int:
    flags = (REPORTS if kernel.reports else 0) | (TAKES_SCRATCH if kernel.takes_scratch else 0)
    flags |= CONTROL if kernel.control is not None else 0
    flags |= 0 if kernel.device is None else kernel.device.flags
    return CORES.index(kernel.core) | flags


def _checkable_tilings(tables: Tables) -> list[Tiling | None]:
    """The tilings; a kernel without a launch has no operands to touch."""
    launched = {launch.kernel for launch in tables.launches}
    return [
        replace(kernel.tiling, ranges=())
        if kernel.tiling is not None and number not in launched
        else kernel.tiling
        for number, kernel in enumerate(tables.kernels)
    ]


def _pack_interfaces(tables: Tables, strings: _Strings) -> bytes:
    """The interface that each kernel was compiled for; the reader checks launches against it."""
    launched: dict[int, LaunchSpec] = {}
    for launch in tables.launches:
        launched.setdefault(launch.kernel, launch)
    rows, sizes = [], []
    for number, kernel in enumerate(tables.kernels):
        first = launched.get(number)
        runs_code = kernel.is_linked or kernel.core == "device" or kernel.control is not None
        example = first if runs_code and first is not None else LaunchSpec(number, ())
        symbol = strings.offset(kernel.symbol)
        buffers = [tables.buffers[i] for i in example.buffers if i < len(tables.buffers)]
        interface = (kernel.grid, symbol, example.reads, len(buffers), _core_number(kernel))
        rows.append(INTERFACE.pack(*interface))
        sizes += [INTERFACE_SIZE.pack(buffer.nbytes) for buffer in buffers]
    return b"".join(rows + sizes)


def patch_code(block: bytearray | memoryview, addresses: Mapping[str, int]) -> None:
    """Write the address of every linked kernel, by its symbol, into a block in place."""
    for part in Container(block).blocks:
        view = _View(part)
        for number, row in enumerate(view.rows(1)):
            if _is_linked(row):
                offset = view.starts[1] + number * KERNEL.size
                Struct("<Q").pack_into(part, offset, addresses[view.string(row[6])])


def kernel_addresses(block: Buffer) -> dict[str, int]:
    """Virtual address of every linked kernel of a block, by symbol."""
    addresses: dict[str, int] = {}
    for part in Container(block).blocks:
        view = _View(part)
        addresses |= {view.string(row[6]): row[0] for row in view.rows(1) if _is_linked(row)}
    return addresses


def _is_device(kernel: tuple[int, ...]) -> bool:
    return kernel[4] & _CORE == CORES.index("device")


def _is_linked(kernel: tuple[int, ...]) -> bool:
    return kernel[4] & _CORE < CORES.index("device") and not kernel[4] & CONTROL


def read_header(block: Buffer) -> tuple[int, int]:
    """The workspace size of a run in bytes, and its scalar operations."""
    _, _, workspace_size, work, *_ = HEADER.unpack_from(Container(block).blocks[-1])
    return workspace_size, work


def unpack_tables(block: Buffer) -> Tables:
    """Decode a block of `pack_tables`; ArtifactError for an invalid block.

    The native reader checks that all indices are within their tables; this does not.
    """
    container = Container(block)
    *regions, tables = (
        _unpack_one(part, number, container.controls)
        for number, part in enumerate(container.blocks)
    )
    return replace(tables, regions=tuple(regions))


def _unpack_one(
    block: Buffer, number: int, controls: Mapping[tuple[int, int], ControlSpec]
) -> Tables:
    view = _View(block)
    operands = [value for (value,) in view.rows(3)]
    successors = [value for (value,) in view.rows(5)]
    return Tables(
        buffers=tuple(
            BufferSpec(_word(BUFFER_KINDS, space, "buffer-kind"), value, nbytes, output)
            for space, output, value, nbytes in view.rows(0)
        ),
        kernels=tuple(
            KernelSpec(
                view.string(name),
                view.string(symbol),
                grid,
                _word(CORES, core & _CORE, "kernel-core"),
                flops,
                moved,
                view.string(location),
                bool(core & REPORTS),
                bool(core & TAKES_SCRATCH),
                device,
                tiling,
                controls.get((number, index)) if core & CONTROL else None,
            )
            for index, (
                (_, grid, flops, moved, core, name, symbol, location),
                device,
                tiling,
            ) in enumerate(zip(view.rows(1), view.devices(), view.tilings, strict=True))
        ),
        launches=tuple(
            LaunchSpec(kernel, tuple(operands[first : first + count]), reads)
            for kernel, first, count, reads in view.rows(2)
        ),
        workspace_size=view.workspace_size,
        work=view.work,
        tasks=tuple(
            TaskSpec(launch, waits, begin, end, tuple(successors[first : first + count]))
            for launch, waits, begin, end, first, count in view.rows(4)
        ),
        scratch_size=view.scratch_size,
    )


class _Strings:
    """The string table: each string once, in the order of its first use."""

    def __init__(self) -> None:
        self.data = bytearray(1)
        self._at = {"": 0}

    def offset(self, text: str) -> int:
        if text not in self._at:
            self._at[text] = len(self.data)
            self.data += storable(text).encode() + b"\0"
        return self._at[text]


class _View:
    """The offsets of the arrays of a block."""

    def __init__(self, block: Buffer):
        if len(block) < HEADER.size:
            fail("tables-size", f"a block of {len(block)} bytes")
        magic, size, self.workspace_size, self.work, *counts, self.scratch_size = (
            HEADER.unpack_from(block)
        )
        if magic not in MAGICS or size != len(block):
            fail("tables-header", f"magic {magic!r}, {size} bytes in a block of {len(block)}")
        self.block = block
        self.counts: list[int] = counts
        self.starts = []
        position = HEADER.size
        for row_format, count in zip(ARRAYS, counts[:-1], strict=True):
            self.starts.append(position)
            position += row_format.size * count
            position += -position % 8
        age = MAGICS.index(magic)
        has_devices = age % 2 == 1
        self._devices_at = position if has_devices else None
        if has_devices:
            position += DEVICE.size * counts[1]
            if position > size:
                fail("tables-size", f"the device launches end at {position} of {size}")
            self._maps_at = position
            position += TENSOR_MAP.size * sum(self._map_counts())
        self.tilings: list[Tiling | None] = [None] * counts[1]
        if age >= MAGICS.index(TILED_MAGIC):
            self.tilings, position = unpack_tilings(block, position, counts[1])
        if age >= MAGICS.index(MAGIC):
            position = self._after_interfaces(position)
        if position + counts[-1] != size:
            fail("tables-size", f"the arrays end at {position + counts[-1]} of {size}")
        self.strings = bytes(memoryview(block)[position:])
        # A string that many records name is decoded once, and kept once.
        self._texts: dict[int, str] = {}

    def _after_interfaces(self, position: int) -> int:
        end = position + INTERFACE.size * self.counts[1]
        if end > len(self.block):
            fail("tables-size", f"the interfaces end at {end} of {len(self.block)}")
        rows = INTERFACE.iter_unpack(memoryview(self.block)[position:end])
        return end + sum(count for *_, count, _ in rows) * INTERFACE_SIZE.size

    def rows(self, array: int) -> list[tuple[int, ...]]:
        record, start = ARRAYS[array], self.starts[array]
        end = start + record.size * self.counts[array]
        return list(record.iter_unpack(memoryview(self.block)[start:end]))

    def devices(self) -> list[DeviceLaunch | None]:
        """The device launch of each kernel; None for those of a CPU."""
        every: list[DeviceLaunch | None] = []
        if self._devices_at is None:
            return [None] * self.counts[1]
        first_maps = _starts([*self._map_counts(), 0])
        for number, kernel in enumerate(self.rows(1)):
            if not _is_device(kernel):
                every.append(None)
                continue
            words = DEVICE.unpack_from(self.block, self._devices_at + number * DEVICE.size)
            maps = tuple(map(self._tensor_map, range(*first_maps[number : number + 2])))
            core = "matrix" if kernel[4] & MATRIX_CORES else "vector"
            dependent = bool(kernel[4] & DEPENDENT)
            every.append(DeviceLaunch(words[:3], words[3:6], words[6], maps, core, dependent))
        return every

    def _map_counts(self) -> list[int]:
        """The number of tensor maps of each kernel."""
        start = self._devices_at or 0
        rows = memoryview(self.block)[start : start + DEVICE.size * self.counts[1]]
        return [words[7] for words in DEVICE.iter_unpack(rows)]

    def _tensor_map(self, number: int) -> TensorMapSpec:
        offset = self._maps_at + number * TENSOR_MAP.size
        return read_tensor_map(TENSOR_MAP.unpack_from(self.block, offset))

    def string(self, offset: int) -> str:
        text = self._texts.get(offset)
        if text is None:
            text = self._texts[offset] = self._decode(offset)
        return text

    def _decode(self, offset: int) -> str:
        end = self.strings.find(b"\0", offset)
        if end < 0:
            fail("tables-string", f"no string at {offset} of {len(self.strings)}")
        return self.strings[offset:end].decode("utf-8", "replace")


def _starts(lengths: list[int]) -> list[int]:
    """The start offset of each entry's part in one concatenated list."""
    return list(accumulate(lengths, initial=0))[:-1]


def _word(words: tuple[str, ...], number: int, check: str) -> str:
    if number >= len(words):
        fail(f"tables-{check}", f"number {number} is not one of {', '.join(words)}")
    return words[number]
