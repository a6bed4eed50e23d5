"""Attention of a few rows to many keys: a token of a decoder and its cache (Flash-Decoding).

Input: a kernel that is an attention of up to 8 rows. Output: the strategy `DECODE_ATTENTION`. A
tile of a tensor core would be mostly empty, and one block for each head would leave the device
idle. So the keys are split: over the blocks of a cluster, their warps, and groups of lanes, each of
which has whole keys in registers. Every warp keeps the maximum, the sum and the result of its keys
(online softmax). Those of a block are merged in its shared memory, and those of the blocks of a
cluster by writing to that of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from math import inf, prod
from typing import Any

from nova.codegen.common.match_attention import Attention, Matrix
from nova.codegen.gpu.attention.kernel import match_attention
from nova.codegen.gpu.attention.operands import batch_counters, matrices_at
from nova.codegen.gpu.attention.plan import AttentionSizes
from nova.codegen.gpu.attention.scores import AttentionScores
from nova.codegen.gpu.attention.updates import CacheUpdates
from nova.codegen.gpu.block_ops import (
    WARP,
    ThreadPosition,
    barrier,
    butterfly,
    element_bytes,
    is_equal,
    is_less,
    shuffle_xor,
    when,
)
from nova.codegen.gpu.cluster_ops import (
    cluster_arrive,
    cluster_barrier,
    cluster_wait,
    map_shared,
    store_remote,
)
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.memory import load_run, store_run, widest
from nova.codegen.gpu.ptx_ops import issue_loads, prefetch, wait_for_launches, word
from nova.codegen.gpu.slice_writes import NewRow
from nova.codegen.gpu.strategy import Strategy
from nova.ir.bindings import arith, ir, math, memref, scf
from nova.ir.index import add, divide, index, modulo, mul

_MOST_ROWS, _FEWEST_KEYS = 8, 128
_WARPS = (8, 4)
"""Warps of a block: as many as have several keys for each group of lanes."""
_LEAST_KEYS = 4
_IN_FLIGHT = 8
"""Keys of a group of lanes whose loads are issued before the first is used."""
_PREFETCHED = 2
"""Iterations whose keys and values are prefetched."""
_CLUSTERS = ((32, 8), (64, 4), (128, 2))
"""Points of the batch up to which a cluster has so many blocks."""


@dataclass(frozen=True)
class DecodePlan:
    """The keys of an attention, split over blocks, warps and groups of `lanes`."""

    attention: Attention
    sizes: AttentionSizes
    rows: int
    keys: int
    features: int
    width: int
    cluster: int
    warps: int
    is_early: bool = False
    """Whether the code waits by itself for earlier launches, after it asked for keys and values."""

    @property
    def lanes(self) -> int:
        """Lanes that share a key: each has 16 bytes of it."""
        return self.features // self.width

    @property
    def groups(self) -> int:
        """Groups of lanes of a block."""
        return self.warps * WARP // self.lanes

    @property
    def steps(self) -> int:
        """Keys of a group that it has in flight."""
        return min(_IN_FLIGHT if self.rows <= 4 else _IN_FLIGHT // 2, self._keys_of_group)

    @property
    def iterations(self) -> int:
        return -(-self._keys_of_group // self.steps)

    @property
    def _keys_of_group(self) -> int:
        return -(-self.keys // (self.cluster * self.groups))

    @property
    def blocks(self) -> int:
        return int(self.sizes.batch) * self.cluster

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def min_blocks_per_sm(self) -> int:
        return 1


def decode_width(attention: Attention) -> int | None:
    """Features of a lane, if there are few rows and many keys; None for other attentions."""
    nest, spec = attention.nest, attention.spec
    batch = prod(nest.loops[i].size for i in attention.batch)
    i, j, e, f = (attention.size(role) for role in "ijef")
    numbers = [batch, i, j, e, f, *nest.offsets, *(s for loop in nest.loops for s in loop.strides)]
    if not all(isinstance(number, int) for number in numbers):
        return None
    if spec.has_dropout or spec.has_segments:
        return None
    if spec.op != "attend" or tuple(spec.results) != ("out",) or attention.type != "f32":
        return None
    operands = dict(zip(attention.names, nest.generic.op.operands, strict=True))
    types = {str(operands[name].type.element_type) for name in "qkv"}
    element = operands["k"].type.element_type
    if len(types) != 1 or not types <= {"bf16", "f16", "f32"} or e != f:
        return None
    width = widest([element])
    lanes = e // width
    if e % width or lanes & (lanes - 1) or not 1 <= lanes <= WARP:
        return None
    if i > _MOST_ROWS or j < _FEWEST_KEYS or not _is_aligned(attention, width):
        return None
    return width


def plan_decode(kernel: DeviceKernel, attention: Attention) -> DecodePlan | None:
    """Split the keys, if there are few rows and many keys; None for other attentions."""
    width = decode_width(attention)
    if width is None:
        return None
    nest = attention.nest
    batch = prod(nest.loops[i].size for i in attention.batch)
    i, j, e = (int(attention.size(role)) for role in "ije")
    lanes = e // width
    fitting = [size for most, size in _CLUSTERS if batch <= most]
    cluster = fitting[0] if fitting and kernel.has_clusters else 1
    while cluster > 1 and j < cluster * (_WARPS[-1] * WARP // lanes):
        cluster //= 2
    keys = j // (cluster * WARP // lanes)
    warps = next((warps for warps in _WARPS if keys >= _LEAST_KEYS * warps), _WARPS[-1])
    sizes = AttentionSizes(batch, i, j, e, e)
    is_early = kernel.target.has_clusters
    return DecodePlan(attention, sizes, i, j, e, width, cluster, warps, is_early)


def _is_aligned(
    attention: Attention, width: int, names: Sequence[tuple[str, str]] = (("k", "e"), ("v", "f"))
) -> bool:
    """Whether the features of every row of these operands are aligned vectors."""
    nest = attention.nest
    for name, feature in names:
        number = attention.names.index(name)
        along = attention.roles[feature]
        steps = [loop.strides[number] for k, loop in enumerate(nest.loops) if k != along]
        if nest.loops[along].strides[number] != 1 or nest.offsets[number] % width:
            return False
        if any(step % width for step in steps):
            return False
    return True


@dataclass(frozen=True)
class _Partial:
    """The softmax over some keys: the maximum and the sum of each row, and the weighted values."""

    row_max: list[Any]
    total: list[Any]
    out: list[list[Any]]

    def flat(self) -> list[Any]:
        return [*self.row_max, *self.total, *(value for row in self.out for value in row)]

    @staticmethod
    def of(values: Sequence[Any], rows: int) -> _Partial:
        width = (len(values) - 2 * rows) // rows
        out = values[2 * rows :]
        return _Partial(
            list(values[:rows]),
            list(values[rows : 2 * rows]),
            [list(out[r * width : (r + 1) * width]) for r in range(rows)],
        )


@dataclass(frozen=True)
class _Keys:
    """Keys of a group of lanes: their positions, whether they exist, and their loaded features.

    `masks` has the mask of each row.
    """

    positions: list[Any]
    inside: list[Any]
    clamped: list[Any]
    features: dict[str, list[list[Any]]]
    masks: list[list[Any]]


@dataclass(frozen=True)
class _LoadedRow:
    """The features of this lane of a new row of keys or values, and the number of the key."""

    position: Any
    features: list[Any]


class _DecodeCode:
    """The code of a thread at one point of the batch."""

    def __init__(
        self, plan: DecodePlan, matrices: dict[str, Matrix], rank: Any, position: ThreadPosition
    ):
        self.plan = plan
        self.matrices = matrices
        self.rank = rank
        self.position = position
        self.scores = AttentionScores(plan, plan.attention, matrices)
        self.lane = modulo(position.thread, plan.lanes)
        self.feature = mul(self.lane, plan.width)
        group = divide(position.thread, plan.lanes)
        self.first_key = add(mul(rank, plan.groups), group)
        self.unit = self.scores.number(plan.attention.spec.scale * self.scores.unit)
        self.least, self.zero = self.scores.number(-inf), self.scores.number(0.0)
        self.positions: dict[str, Any] = {}
        """The keys that are new rows."""
        self.new_rows: dict[str, _LoadedRow] = {}

    # --- the keys of a thread ---------------------------------------------------------------------

    def prefetch(self) -> None:
        """Bring the keys and values of the first iterations to the L2 cache."""
        plan = self.plan
        stride = plan.cluster * plan.groups
        for step in range(plan.steps * min(plan.iterations, _PREFETCHED)):
            key = arith.minui(index(add(self.first_key, step * stride)), index(plan.keys - 1))
            for matrix in (self.matrices["k"], self.matrices["v"]):
                nbytes = element_bytes(matrix.buffer.type.element_type)
                prefetch(matrix.buffer, matrix.at(key, self.feature), nbytes)

    def attend(self, first: _Keys | None) -> _Partial:
        """The softmax over the keys of this group of lanes; this lane's features of the result.

        `first` are the keys, if they are loaded already.
        """
        plan = self.plan
        queries = [_as_f32(self._vector("q", r)) for r in range(plan.rows)]
        empty = [self.least] * plan.rows + [self.zero] * plan.rows * (1 + plan.width)
        if first is not None or plan.iterations == 1:
            keys = first or self.load_keys(index(0))
            return self._add_keys(queries, keys, _Partial.of(empty, plan.rows))
        loop = scf.ForOp(index(0), index(plan.iterations), index(1), empty)
        with ir.InsertionPoint(loop.body):
            held = _Partial.of(list(loop.inner_iter_args), plan.rows)
            keys = self.load_keys(loop.induction_variable)
            scf.YieldOp(self._add_keys(queries, keys, held).flat())
        return _Partial.of(list(loop.results), plan.rows)

    def load_keys(self, iteration: Any) -> _Keys:
        """Load the keys, values and masks of an iteration."""
        plan = self.plan
        stride = plan.cluster * plan.groups
        start = add(self.first_key, mul(iteration, plan.steps * stride))
        positions = [index(add(start, step * stride)) for step in range(plan.steps)]
        inside = [self._inside(key) for key in positions]
        clamped = [arith.minui(key, index(plan.keys - 1)) for key in positions]
        features = {
            name: [self._vector(name, key) for key in self._readable(name, positions, inside)]
            for name in "kv"
        }
        masks: list[list[Any]] = []
        if "mask" in self.matrices:
            load = self.scores.load_mask
            masks = [[load(r, key) for key in clamped] for r in range(plan.rows)]
        return _Keys(positions, inside, clamped, features, masks)

    def _readable(self, name: str, keys: list[Any], inside: list[Any]) -> list[Any]:
        """Keys that exist and that no other lane writes: after the last key, the last old one."""
        if inside[0] is None:
            return keys
        last = index(self.plan.keys - 1)
        if name in self.positions:
            is_new = is_equal(self.positions[name], last)
            last = arith.select(is_new, index(self.plan.keys - 2), last)
        return [arith.select(exists, key, last) for key, exists in zip(keys, inside, strict=True)]

    def load_row(self, name: str, row: NewRow, point: Any) -> None:
        """Load this lane's features of a new row of keys or values."""
        plan = self.plan
        base = index(add(mul(point, plan.features), self.feature))
        features = load_run(row.source, base, plan.width, 1, True)
        self.new_rows[name] = _LoadedRow(row.position, features)

    def _take_new_row(self, name: str, keys: _Keys) -> list[list[Any]]:
        """The keys or values, the new row instead of what it replaces; it is stored, too."""
        row, loaded = self.new_rows.get(name), keys.features[name]
        if row is None:
            return loaded
        matrix = self.matrices[name]
        are_new = [is_equal(key, row.position) for key in keys.positions]
        with when(reduce(arith.ori, are_new)):
            base = index(matrix.at(row.position, self.feature))
            store_run(row.features, matrix.buffer, base, 1, True)
        return [
            [arith.select(is_new, a, b) for a, b in zip(row.features, old, strict=True)]
            for is_new, old in zip(are_new, loaded, strict=True)
        ]

    def _add_keys(self, queries: list[list[Any]], loaded: _Keys, held: _Partial) -> _Partial:
        inside, clamped = loaded.inside, loaded.clamped
        keys, values = (
            [_as_f32(features) for features in self._take_new_row(name, loaded)] for name in "kv"
        )
        rows: list[_Partial] = []
        for r, query in enumerate(queries):
            scores = []
            for number, (key, at_, exists) in enumerate(zip(keys, clamped, inside, strict=True)):
                score = self._dot(query, key)
                score = arith.mulf(score, self.unit)
                if loaded.masks:
                    score = self.scores.apply_mask(score, loaded.masks[r][number])
                hidden = self._hidden(r, at_, exists)
                scores.append(score if hidden is None else arith.select(hidden, self.least, score))
            rows.append(self._row(r, scores, values, clamped, inside, held))
        return _Partial(
            [row.row_max[0] for row in rows],
            [row.total[0] for row in rows],
            [row.out[0] for row in rows],
        )

    def _row(
        self,
        row: int,
        scores: list[Any],
        values: list[list[Any]],
        keys: list[Any],
        inside: list[Any],
        held: _Partial,
    ) -> _Partial:
        """Add the keys of an iteration to one row."""
        row_max = reduce(arith.maximumf, scores, held.row_max[row])
        shift = self._shift(row_max)
        rescale = self.scores.power(arith.subf(held.row_max[row], shift))
        total = arith.mulf(held.total[row], rescale)
        out = [arith.mulf(value, rescale) for value in held.out[row]]
        for score, value, key, exists in zip(scores, values, keys, inside, strict=True):
            weight = self.scores.power(arith.subf(score, shift))
            total = arith.addf(total, weight)
            hidden = self._hidden(row, key, exists)
            if hidden is not None:  # a value that is not finite, times 0, would be NaN
                value = [arith.select(hidden, self.zero, v) for v in value]
            out = [math.fma(weight, v, o) for v, o in zip(value, out, strict=True)]
        return _Partial([row_max], [total], [out])

    def _shift(self, row_max: Any) -> Any:
        """What is subtracted from scores: 0 for a row that sees no key."""
        is_empty = arith.cmpf(arith.CmpFPredicate.OEQ, row_max, self.least)
        return arith.select(is_empty, self.zero, row_max)

    def _inside(self, key: Any) -> Any:
        plan = self.plan
        if plan.keys == plan.cluster * plan.groups * plan.steps * plan.iterations:
            return None
        return is_less(key, index(plan.keys))

    def _hidden(self, row: int, key: Any, exists: Any) -> Any:
        """Whether a row does not see a key, other than by its mask; None: it sees all."""
        conditions = []
        if exists is not None:
            true = arith.ConstantOp(exists.type, 1).result
            conditions.append(arith.xori(exists, true))
        if self.plan.attention.spec.causal:
            conditions.append(arith.cmpi(arith.CmpIPredicate.ugt, key, index(row)))
        return reduce(arith.ori, conditions) if conditions else None

    def _dot(self, query: list[Any], key: list[Any]) -> Any:
        """The product of a query and a key, in every lane of the group."""
        total = self.zero
        for a, b in zip(query, key, strict=True):
            total = math.fma(a, b, total)
        return butterfly([total], lambda a, b: [arith.addf(a[0], b[0])], self.plan.lanes)[0]

    def _vector(self, name: str, row: Any) -> list[Any]:
        """This lane's features of a row."""
        matrix, plan = self.matrices[name], self.plan
        aligned = name != "q" or _is_aligned(plan.attention, plan.width, (("q", "e"),))
        base = index(matrix.at(row, self.feature))
        return load_run(matrix.buffer, base, plan.width, matrix.column, aligned)

    # --- merging ----------------------------------------------------------------------------------

    def _merge(self, parts: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, Any, Any]:
        """One row of several partial results: maximum, sum and a value each."""
        row_max = reduce(arith.maximumf, [part[0] for part in parts])
        shift = self._shift(row_max)
        total = value = self.zero
        for part_max, part_total, part_value in parts:
            rescale = self.scores.power(arith.subf(part_max, shift))
            total = math.fma(part_total, rescale, total)
            value = math.fma(part_value, rescale, value)
        return row_max, total, value

    def merge_warp(self, partial: _Partial) -> _Partial:
        """The result over all groups of lanes of the warp, in each of them."""
        plan = self.plan
        distance = WARP // 2
        merged = partial
        while distance >= plan.lanes:
            row_max = _across(merged.row_max, arith.maximumf, distance)
            shifts = [self._shift(value) for value in row_max]
            rescales = [
                self.scores.power(arith.subf(old, shift))
                for old, shift in zip(merged.row_max, shifts, strict=True)
            ]
            totals = [arith.mulf(t, s) for t, s in zip(merged.total, rescales, strict=True)]
            outs = [
                [arith.mulf(value, rescale) for value in row]
                for row, rescale in zip(merged.out, rescales, strict=True)
            ]
            merged = _Partial(
                row_max,
                _across(totals, arith.addf, distance),
                [_across(row, arith.addf, distance) for row in outs],
            )
            distance //= 2
        return merged

    def store_warp(self, partial: _Partial, room: _Room) -> None:
        """Write the result of the warp to shared memory, by its first group of lanes."""
        plan, position = self.plan, self.position
        warp = position.warp()
        with when(is_less(position.lane(), index(plan.lanes))):
            for r in range(plan.rows):
                slot = arith.addi(arith.muli(warp, index(plan.rows)), index(r))
                memref.store(partial.row_max[r], room.row_max, [slot])
                memref.store(partial.total[r], room.total, [slot])
                first = add(mul(slot, plan.features), self.feature)
                for k, value in enumerate(partial.out[r]):
                    memref.store(value, room.out, [index(add(first, k))])

    def merge_block(self, room: _Room, number: Any) -> tuple[Any, Any, Any]:
        """Element `number` of the result of all warps."""
        plan = self.plan
        row = divide(number, plan.features)
        parts = []
        for warp in range(plan.warps):
            slot = index(add(row, warp * plan.rows))
            at_ = index(add(number, warp * plan.rows * plan.features))
            parts.append(
                (
                    memref.load(room.row_max, [slot]),
                    memref.load(room.total, [slot]),
                    memref.load(room.out, [at_]),
                )
            )
        return self._merge(parts)

    def send(self, parts: Sequence[Any], slots: Sequence[Any], number: Any, share: int) -> None:
        """Write element `number` of this block to the block that merges it.

        Each block merges `share` elements, and has a slot for each of them and each block.
        """
        owner = word(index(divide(number, share)))
        slot = index(add(mul(self.rank, share), modulo(number, share)))
        for part, buffer in zip(parts, slots, strict=True):
            first = memref.extract_aligned_pointer_as_index(buffer)
            address = word(arith.addi(first, arith.muli(slot, index(4))))
            store_remote(part, map_shared(address, owner))

    def merge_cluster(self, slots: Sequence[Any], share: int) -> tuple[Any, Any, Any]:
        """The element of this thread of the result of all blocks of the cluster."""
        places = [
            index(add(self.position.thread, rank * share)) for rank in range(self.plan.cluster)
        ]
        parts = [[memref.load(buffer, [place]) for buffer in slots] for place in places]
        return self._merge([(a, b, c) for a, b, c in parts])

    def write(self, number: Any, total: Any, value: Any) -> None:
        """Write element `number` of the result."""
        plan, matrix = self.plan, self.matrices["to_out"]
        is_empty = arith.cmpf(arith.CmpFPredicate.OEQ, total, self.zero)
        quotient = arith.divf(value, arith.select(is_empty, self.scores.number(1.0), total))
        result = arith.select(is_empty, self.zero, quotient)
        element = matrix.buffer.type.element_type
        if element != result.type:
            result = arith.truncf(element, result)
        row, feature = divide(number, plan.features), modulo(number, plan.features)
        memref.store(result, matrix.buffer, [index(matrix.at(row, feature))])


@dataclass(frozen=True)
class _Room:
    """Shared memory for the results of all warps."""

    row_max: Any
    total: Any
    out: Any


def _as_f32(values: Sequence[Any]) -> list[Any]:
    f32 = ir.F32Type.get()
    return [value if value.type == f32 else arith.extf(f32, value) for value in values]


def _across(values: Sequence[Any], combine: Any, distance: int) -> list[Any]:
    """Values combined with those of the lanes at a distance."""
    return [combine(value, shuffle_xor(value, distance)) for value in values]


@contextmanager
def _elements(thread: Any, count: int, threads: int) -> Iterator[Any]:
    """The code inside runs for the elements of a thread: every one of `threads`."""
    loop = scf.ForOp(thread, index(count), index(threads))
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.YieldOp([])


def emit_decode(kernel: DeviceKernel, plan: DecodePlan, position: ThreadPosition) -> None:
    """Emit the code of a block: its keys, and its share of the merged result."""
    flat = kernel.flat_buffers()
    f32 = ir.F32Type.get()
    elements = plan.rows * plan.features
    room = _Room(
        kernel.shared.allocate(plan.warps * plan.rows, f32),
        kernel.shared.allocate(plan.warps * plan.rows, f32),
        kernel.shared.allocate(plan.warps * elements, f32),
    )
    slots = -(-elements // plan.cluster) * plan.cluster
    merged = [kernel.shared.allocate(slots, f32) for _ in range(3)]
    buffers = [flat(value) for value in kernel.ops[0].operands]
    point, rank = divide(position.block, plan.cluster), modulo(position.block, plan.cluster)
    matrices = matrices_at(plan.attention, buffers, batch_counters(plan.attention, point))
    code = _DecodeCode(plan, matrices, rank, position)
    if plan.cluster > 1:
        cluster_arrive()
    if plan.is_early:
        code.prefetch()
        wait_for_launches()
    first = _emit_updates(kernel, code, point, flat) if kernel.updates else None
    code.store_warp(code.merge_warp(code.attend(first)), room)
    barrier()
    if plan.cluster == 1:
        with _elements(position.thread, elements, plan.threads) as number:
            _, total, value = code.merge_block(room, number)
            code.write(number, total, value)
        return
    cluster_wait()  # all blocks run: their shared memory may be written
    share = -(-elements // plan.cluster)
    with _elements(position.thread, elements, plan.threads) as number:
        code.send(code.merge_block(room, number), merged, number, share)
    cluster_barrier()
    number = index(add(mul(rank, share), position.thread))
    mine = arith.andi(is_less(position.thread, index(share)), is_less(number, index(elements)))
    with when(mine):
        _, total, value = code.merge_cluster(merged, share)
        code.write(number, total, value)


def _emit_updates(kernel: DeviceKernel, code: _DecodeCode, point: Any, flat: Any) -> _Keys | None:
    """Emit what comes before the attention, after the loads that do not depend on it.

    No launch reads the new rows from the cache: the lanes that have their position take them.
    """
    updates = CacheUpdates(kernel, code.plan.attention, point, flat)
    updates.emit_scalars()
    rows = updates.new_rows()
    code.positions = {name: row.position for name, row in rows.items()}
    first = code.load_keys(index(0)) if code.plan.iterations == 1 else None
    computed = {name for name, row in rows.items() if updates.is_computed(row)}
    for name in sorted(rows.keys() - computed):
        code.load_row(name, rows[name], point)
    issue_loads()
    if kernel.prologue:
        updates.emit_elementwise(code.position)
        barrier()
    for name in sorted(computed):
        code.load_row(name, rows[name], point)
    return first


DECODE_ATTENTION = Strategy("decode_attention", match_attention, plan_decode, emit_decode)
