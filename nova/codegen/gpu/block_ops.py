"""Block operations: thread positions, barriers, shuffles, and block reductions.

Input: values of each thread, inside of a `gpu.launch`. Output: code at the insertion point. The
schedules of this folder use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nova.codegen.common.combine import Combine
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.gpu_bindings import gpu
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number
from nova.ir.tensor_maps import TensorMap

WARP = 32


@dataclass(frozen=True)
class LaunchShape:
    """The launch of a kernel: blocks, threads of a block, bytes of shared memory.

    `min_blocks_per_sm` is the number of blocks per multiprocessor of the launch bounds; 0 for no
    bound. `cluster` is the number of blocks of a cluster. Tensor maps are parameters after the
    pointers.
    """

    blocks: Extent
    threads: int
    shared: int = 0
    min_blocks_per_sm: int = 0
    cluster: int = 1
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class ThreadPosition:
    """The position of a thread: its block, its number in the block, and the threads of a block."""

    block: Any
    thread: Any
    threads: int

    @property
    def warps(self) -> int:
        return self.threads // WARP

    def lane(self) -> Any:
        return arith.remui(self.thread, index(WARP))

    def warp(self) -> Any:
        return arith.divui(self.thread, index(WARP))


_PART = 16  # bytes


class SharedMemory:
    """The dynamic shared memory of a block, allocated linearly; `size` is known at the end."""

    def __init__(self) -> None:
        self.size = 0
        self._memory: Any = None

    def allocate(self, count: int, element: Any) -> Any:
        """Allocate a flat buffer; called at the top of the launch, before any branch.

        Each has whole parts of 16 bytes: LLVM may load a few bytes after its last element.
        """
        if self._memory is None:
            memory_type = ir.MemRefType.get(
                [ir.ShapedType.get_dynamic_size()],
                ir.IntegerType.get_signless(8),
                memory_space=_workgroup(),
            )
            self._memory = gpu.DynamicSharedMemoryOp(memory_type).result
        flat = ir.MemRefType.get([count], element, memory_space=_workgroup())
        view = memref.ViewOp(flat, self._memory, index(self.size), [])
        size = count * element_bytes(element)
        self.size += size + -size % _PART
        return view.result


def element_bytes(element: Any) -> int:
    """Bytes of an element in memory; an index has eight, a bool one."""
    return 8 if isinstance(element, ir.IndexType) else (element.width + 7) // 8


def _workgroup() -> Any:
    return ir.Attribute.parse("#gpu.address_space<workgroup>")


def barrier() -> None:
    """A block barrier: all threads have arrived, and see the writes of the others."""
    gpu.BarrierOp()


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """The code inside the `with` runs in threads where `condition` holds."""
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


def is_less(a: Any, b: Any) -> Any:
    return arith.cmpi(arith.CmpIPredicate.ult, a, b)


def is_equal(a: Any, b: Any) -> Any:
    return arith.cmpi(arith.CmpIPredicate.eq, a, b)


def split(number: Any, sizes: Sequence[Extent]) -> list[Any]:
    """Delinearize: the counters of nested loops of `sizes` in iteration `number` of the nest."""
    counters: list[Any] = []
    remaining = number
    for i in reversed(range(len(sizes))):
        if all(is_number(size, 1) for size in sizes[:i]):
            counters.append(index(0) if is_number(sizes[i], 0, 1) else remaining)
            counters += [index(0)] * i
            break
        counters.append(arith.remui(remaining, index(sizes[i])))
        remaining = arith.divui(remaining, index(sizes[i]))
    return counters[::-1]


def shuffle_xor(value: Any, distance: int) -> Any:
    """The value of the lane whose number differs in the bit `distance`; any element type."""
    return _through_words(value, lambda word: _shuffle(word, distance, gpu.ShuffleMode.XOR))


def warp_uniform(value: Any) -> Any:
    """A value (i32) that all lanes of a warp have, read from lane 0: ptxas then knows it.

    Branches on it do not diverge, and what depends on it may be in uniform registers.
    """
    return _shuffle(value, 0, gpu.ShuffleMode.IDX)


def _shuffle(word: Any, distance: int, mode: Any) -> Any:
    i32 = ir.IntegerType.get_signless(32)
    offset, width = (
        arith.ConstantOp(i32, ir.IntegerAttr.get(i32, n)).result for n in (distance, WARP)
    )
    return gpu.ShuffleOp(word, offset, width, mode).results[0]


def _through_words(value: Any, move: Callable[[Any], Any]) -> Any:
    """Shuffle a value in words of 32 bits, the unit of the hardware."""
    value_type = value.type
    i32 = ir.IntegerType.get_signless(32)
    if isinstance(value_type, ir.IndexType):
        i64 = ir.IntegerType.get_signless(64)
        return arith.index_castui(value_type, _through_words(arith.index_castui(i64, value), move))
    if value_type == i32 or isinstance(value_type, ir.F32Type):
        return move(value)
    bits = value_type.width
    plain = ir.IntegerType.get_signless(bits)
    raw = value if value_type == plain else arith.bitcast(plain, value)
    if bits < 32:
        moved = arith.trunci(plain, move(arith.extui(i32, raw)))
    else:
        shift = arith.ConstantOp(plain, ir.IntegerAttr.get(plain, 32)).result
        low = arith.extui(plain, move(arith.trunci(i32, raw)))
        high = arith.extui(plain, move(arith.trunci(i32, arith.shrui(raw, shift))))
        moved = arith.ori(low, arith.shli(high, shift))
    return moved if value_type == plain else arith.bitcast(value_type, moved)


def ballot(condition: Any) -> Any:
    """A word with a bit per lane, set where the condition holds; the whole warp takes part."""
    i32 = ir.IntegerType.get_signless(32)
    everyone = arith.ConstantOp(i32, ir.IntegerAttr.get(i32, -1)).result
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[i32],
        operands=[everyone, condition],
        attributes={
            "intrin": ir.StringAttr.get("llvm.nvvm.vote.ballot.sync"),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).results[0]


def reduce_warp(values: Sequence[Any], combine: Combine) -> list[Any]:
    """Each of `values` combined over the lanes of a warp, in every lane."""
    return reduce_lanes(values, combine, WARP)


def reduce_lanes(values: Sequence[Any], combine: Combine, lanes: int) -> list[Any]:
    """Like `reduce_warp`, over groups of `lanes` adjacent lanes, a power of two."""
    return butterfly(values, lambda a, b: [combine(x, y) for x, y in zip(a, b, strict=True)], lanes)


def butterfly(
    values: Sequence[Any], merge: Callable[[list[Any], list[Any]], list[Any]], lanes: int
) -> list[Any]:
    """A butterfly reduction: `merge` combines a lane's values with those of ever closer lanes.

    After log2(lanes) shuffles every lane of a group has the same values.
    """
    merged = list(values)
    distance = lanes // 2
    while distance:
        merged = merge(merged, [shuffle_xor(value, distance) for value in merged])
        distance //= 2
    return merged


def reduce_block(
    position: ThreadPosition, value: Any, combine: Combine, identity: Any, partial: Any
) -> Any:
    """`value` combined over the block, in every thread; `partial` has room for all warps.

    The order is fixed: lanes of a warp, then warps. It contains two barriers, one before `partial`
    is written, because others may still read its previous contents.
    """
    (warp_value,) = reduce_warp([value], combine)
    if position.warps == 1:
        return warp_value
    barrier()
    return _exchange(position, warp_value, combine, identity, partial)


def reduce_block_once(position: ThreadPosition, value: Any, combine: Combine, partial: Any) -> Any:
    """Like `reduce_block`, for 2, 4, ... 32 warps, and a new `partial`: one barrier."""
    (warp_value,) = reduce_warp([value], combine)
    return _exchange(position, warp_value, combine, None, partial)


def _exchange(
    position: ThreadPosition, warp_value: Any, combine: Combine, identity: Any, partial: Any
) -> Any:
    """Combine the values of all warps; without an `identity` their number is a power of two."""
    lane = position.lane()
    with when(is_equal(lane, index(0))):
        memref.store(warp_value, partial, [position.warp()])
    barrier()
    if identity is None:
        loaded = memref.load(partial, [arith.remui(lane, index(position.warps))])
        return reduce_lanes([loaded], combine, position.warps)[0]
    inside = is_less(lane, index(position.warps))
    slot = arith.select(inside, lane, index(0))
    loaded = memref.load(partial, [slot])
    (total,) = reduce_warp([arith.select(inside, loaded, identity)], combine)
    return total
