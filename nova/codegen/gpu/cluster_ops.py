"""Clusters of blocks (Hopper): barriers, and loads from the shared memory of other blocks.

A cluster is some adjacent blocks that run concurrently; its size is part of the launch. Their
shared memory is distributed shared memory: each may read that of the others while they run. So a
kernel that does ends with a cluster barrier, and one that writes that of the others begins with
one. Addresses of shared memory are i32 values here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.codegen.common.combine import Combine
from nova.codegen.gpu.block_ops import is_equal, when
from nova.codegen.gpu.ptx_ops import warp_barrier, word
from nova.ir.bindings import arith, ir, memref
from nova.ir.gpu_bindings import llvm
from nova.ir.index import index

_LOADS = {32: ("b32", "=r"), 64: ("b64", "=l")}


def cluster_barrier() -> None:
    """A barrier of all threads of the cluster; they see the writes of the others.

    All lanes of a warp have to execute it together: those that took another branch are waited for,
    and the intrinsics are neither duplicated nor moved into a branch by LLVM.
    """
    cluster_arrive()
    cluster_wait()


def cluster_arrive(*, relaxed: bool = False) -> None:
    """The first half of a cluster barrier: does not wait.

    A `relaxed` one orders no accesses to memory: the others do not see the writes before it.
    """
    warp_barrier()
    name = "nvvm.cluster.arrive.relaxed" if relaxed else "nvvm.cluster.arrive"
    ir.Operation.create(name, attributes={"aligned": ir.UnitAttr.get()})


def cluster_wait() -> None:
    """The second half of a cluster barrier: all threads of the cluster have arrived."""
    ir.Operation.create("nvvm.cluster.wait", attributes={"aligned": ir.UnitAttr.get()})


def cluster_rank() -> ir.Value:
    """The number of this block in its cluster, as an i32."""
    i32 = ir.IntegerType.get_signless(32)
    return llvm.inline_asm(i32, [], "mov.u32 $0, %cluster_ctarank;", "=r")


def map_shared(address: ir.Value, rank: ir.Value) -> ir.Value:
    """The address of the same shared memory in another block of the cluster (mapa)."""
    text = "mapa.shared::cluster.u32 $0, $1, $2;"
    return llvm.inline_asm(address.type, [address, rank], text, "=r,r,r")


def load_remote(type_: ir.Type, address: ir.Value) -> ir.Value:
    """A value of 32 or 64 bits in the shared memory of a block of the cluster."""
    bits = type_.width
    name, result = _LOADS[bits]
    integer = ir.IntegerType.get_signless(bits)
    text = f"ld.shared::cluster.{name} $0, [$1];"
    loaded = llvm.inline_asm(
        integer, [address], text, f"{result},r,~{{memory}}", has_side_effects=True
    )
    return loaded if type_ == integer else llvm.bitcast(type_, loaded)


def store_remote(value: ir.Value, address: ir.Value) -> None:
    """Store an f32 to the shared memory of a block of the cluster."""
    text = "st.shared::cluster.f32 [$1], $0;"
    llvm.inline_asm(None, [value, address], text, "f,r,~{memory}", has_side_effects=True)


def load_remote_floats(address: ir.Value, offset: int) -> list[ir.Value]:
    """Four adjacent f32 in the shared memory of a block of the cluster."""
    text = f"ld.shared::cluster.v4.f32 {{$0, $1, $2, $3}}, [$4+{offset}];"
    struct = ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")
    loaded = llvm.inline_asm(
        struct, [address], text, "=f,=f,=f,=f,r,~{memory}", has_side_effects=True
    )
    return [llvm.extractvalue(ir.F32Type.get(), loaded, [i]) for i in range(4)]


def can_exchange(types: Sequence[Any]) -> bool:
    """Whether values of these types can be loaded from other blocks."""
    return all(getattr(type_, "width", 0) in _LOADS for type_ in types)


def reduce_cluster(value: Any, combine: Combine, slot: Any, thread: Any, blocks: int) -> Any:
    """Combine the values of the blocks of a cluster, in their order, in every thread.

    All threads of a block have its value. `slot` is a buffer of one element in shared memory that
    nothing else uses: no barrier protects its readers.
    """
    with when(is_equal(thread, index(0))):
        memref.store(value, slot, [index(0)])
    first = memref.extract_aligned_pointer_as_index(slot)
    cluster_barrier()
    return load_over_cluster(first, index(0), value.type, combine, blocks)


def load_over_cluster(
    first: Any, number: Any, type_: ir.Type, combine: Combine, blocks: int
) -> Any:
    """Combine element `number` after address `first` of all blocks of a cluster, in their order.

    The blocks have stored the elements before a barrier of the cluster.
    """
    address = word(arith.addi(first, arith.muli(number, index(type_.width // 8))))
    total = None
    for rank in range(blocks):
        other = load_remote(type_, map_shared(address, word(rank)))
        total = other if total is None else combine(total, other)
    return total
