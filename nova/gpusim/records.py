"""The records that the simulator executes, and their constants, as in native/src/gpusim/sim.h.

One statement becomes `Parts`; `decode.py` packs them into arrays. Operand rows are tuples (kind,
width, negated, at, offset).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

OPERAND = np.dtype("u1, u1, u1, u1, u4, i8")
OPERAND.names = ("kind", "width", "negated", "unused", "at", "offset")
INSTRUCTION = np.dtype("u2, u2, u1, u1, u1, u1, u4, i4, u1, u1, u2, u4, u4, u4, u4")
INSTRUCTION.names = (
    *("op", "detail", "type", "from", "space", "count", "flags", "guard", "unless", "results"),
    *("ignored", "first", "operands", "target", "line"),
)
RANGE = np.dtype(
    [
        (name, "u8")
        for name in ("start", "size", "state", "read_only", "moved", "unfinished", "is_written")
    ]
)


def _numbered(names: str) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split())}


TYPE = _numbered(
    "none pred b8 u8 s8 b16 u16 s16 f16 bf16 b32 u32 s32 f32 f16x2 bf16x2 tf32 b64 u64 s64 f64 "
    "e4m3 e5m2"
)
SPACE = {"generic": 0, "param": 1, "global": 2, "shared": 3, "local": 4, "const": 2}
OP = _numbered(
    "lanes move pack unpack convert convert_pair compare select predicate load store atomic "
    "address branch exit trap barrier warp_barrier fence shuffle vote reduce match active elect "
    "copy copy_commit copy_wait load_matrix store_matrix multiply proxy_fence map_address "
    "cluster_rank cluster_arrive cluster_wait set_registers mbarrier mbarrier_wait bulk_copy "
    "bulk_commit bulk_wait wgmma wgmma_fence wgmma_commit wgmma_wait clock "
    "launch_wait"
)
NONE, REGISTER, CONSTANT, SINK = range(4)
SPECIALS = _numbered(
    "%tid.x %tid.y %tid.z %ntid.x %ntid.y %ntid.z %ctaid.x %ctaid.y %ctaid.z %nctaid.x %nctaid.y "
    "%nctaid.z %laneid %warpid %nwarpid %lanemask_eq %lanemask_lt %lanemask_le %lanemask_gt "
    "%lanemask_ge %clusterid.x %clusterid.y %clusterid.z %nclusterid.x %nclusterid.y "
    "%nclusterid.z %cluster_ctaid.x %cluster_ctaid.y %cluster_ctaid.z %cluster_nctaid.x "
    "%cluster_nctaid.y %cluster_nctaid.z %cluster_ctarank %cluster_nctarank %dynamic_smem_size "
    "%total_smem_size %smid"
)

ROUNDING = _numbered("rn rz rm rp rna")
FLUSH, SATURATE, RELU = 4, 8, 16
"""Arithmetic flags, in addition to the rounding."""
CONVERT_INTEGRAL, CONVERT_SATURATE, CONVERT_RELU, CONVERT_FLUSH, CONVERT_FINITE = 8, 16, 32, 64, 128
COMPARE_UNORDERED, COMPARE_FLUSH = 16, 256
COMPARE_COMBINED = {"and": 32, "or": 64, "xor": 128}
STRONG, ACQUIRE, RELEASE, HOST = 1, 2, 4, 8
ALIGNED, ARRIVE = 1, 2
ALL_GROUPS = 0xFFFFFFFF
PROXY_SHARED, PROXY_GLOBAL, PROXY_MBARRIER_INIT = 1, 2, 4
MBARRIER = _numbered(
    "init inval arrive expect_tx complete_tx arrive_expect_tx arrive_copies pending_count"
)
MBARRIER_DROPS, MBARRIER_NO_INCREMENT = 8, 16
WAIT_PARITY, WAIT_POLLS, WAIT_ACQUIRES = 1, 2, 4
BULK = _numbered("load store reduce send")
COPY_TENSOR, COPY_MULTICAST, COPY_OPERATION_AT = 1, 2, 8
WGMMA_REGISTERS_A, WGMMA_TRANSPOSE_A, WGMMA_TRANSPOSE_B = 1, 2, 4
WGMMA_NEGATE_A, WGMMA_NEGATE_B, WGMMA_SATURATE = 8, 16, 32

COMPARISON = _numbered("eq ne lt le gt ge num nan")
ATOMIC = _numbered("add min max and or xor exch cas inc dec")
REDUCTION = _numbered("add min max and or xor")
SHUFFLE = _numbered("up down bfly idx")
VOTE = _numbered("all any uni ballot")
MATCH = _numbered("any all")
LOGIC = _numbered("and or xor not")
MOVE_PREDICATE = 4

Operand = tuple[int, int, int, int, int]


@cache
def bits_of(type_: str) -> int:
    """Bits of a type, also of a pair: 32 for f16x2."""
    if type_ == "pred":
        return 1
    if type_ in ("e4m3", "e5m2"):
        return 8
    name, _, pair = type_.partition("x")
    bits = int("".join(filter(str.isdigit, name.removeprefix("tf").removeprefix("bf"))))
    return bits * int(pair or 1)


@dataclass
class Parts:
    """The decoded form of a statement."""

    op: str
    operands: list[Operand] = field(default_factory=list)
    detail: int = 0
    type: str = "none"
    source: str = "none"
    space: str = "generic"
    count: int = 1
    flags: int = 0
    results: int = 0
    target: int = 0
