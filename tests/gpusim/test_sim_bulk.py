"""Bulk copies against numpy: boxes of 1 to 5 dimensions with all swizzles, out of bounds, strides
of elements, stores, reductions, linear copies, and maps that the driver refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hopper_programs import FENCE_INIT, INIT, LOAD, hopper_kernel, rows_map, run_hopper, wait_parity

from nova.errors import SimulationError
from nova.gpusim import SimMemory, SimModule, tensor_map

BARRIER = 60000
READY = f"{INIT.format(at=BARRIER, count=1)} {FENCE_INIT} mov.u32 %r5, stage;"
WAIT = wait_parity(f"stage+{BARRIER}", "0", "wait")
SCHEDULES = pytest.mark.parametrize("schedule", [0, 1])


def dump(nbytes: int, pointer: str = "%d0") -> str:
    """Thread 0 copies shared memory to global memory, word by word."""
    return f"""@!%p0 bra end; mov.u32 %r6, 0;
dump: add.s32 %r7, %r5, %r6; ld.shared.u32 %r8, [%r7]; cvt.u64.u32 %d8, %r6;
add.s64 %d9, {pointer}, %d8; st.global.u32 [%d9], %r8;
add.s32 %r6, %r6, 4; setp.lt.u32 %p6, %r6, {nbytes}; @%p6 bra dump;
end:"""


def fill(nbytes: int, pointer: str = "%d0") -> str:
    """Thread 0 copies global memory to shared memory, and fences it."""
    return f"""@!%p0 bra end; mov.u32 %r6, 0; mov.u32 %r5, stage;
fill: cvt.u64.u32 %d8, %r6; add.s64 %d9, {pointer}, %d8; ld.global.u32 %r8, [%d9];
add.s32 %r7, %r5, %r6; st.shared.u32 [%r7], %r8;
add.s32 %r6, %r6, 4; setp.lt.u32 %p6, %r6, {nbytes}; @%p6 bra fill;
fence.proxy.async.shared::cta;"""


def padded(rows: np.ndarray[Any, Any], swizzle: int) -> np.ndarray[Any, Any]:
    """The bytes of the rows of a box, each as long as the span of the swizzle."""
    rows = rows.reshape(-1, rows.shape[-1]).view(np.uint8)
    return np.pad(rows, ((0, 0), (0, max(0, swizzle - rows.shape[1])))).reshape(-1)


def swizzled(flat: np.ndarray[Any, Any], swizzle: int) -> np.ndarray[Any, Any]:
    """Bytes of shared memory of padded rows: chunks of 16 are permuted by the row."""
    if swizzle == 0:
        return flat
    out = np.zeros(-(-flat.size // 128) * 128, np.uint8)
    for chunk in range(flat.size // 16):
        address = 16 * chunk
        target = address ^ (address >> 7 & (swizzle // 16 - 1)) << 4
        out[target : target + 16] = flat[address : address + 16]
    return out


def box_of(
    array: np.ndarray[Any, Any], start: tuple[int, ...], box: tuple[int, ...], fill_value: int = 0
) -> np.ndarray[Any, Any]:
    """The elements of a box, in row-major order; `start` and `box` are innermost first."""
    start, box = start[::-1], box[::-1]
    out = np.full(box, fill_value, array.dtype)
    for index in np.ndindex(*box):
        position = tuple(s + i for s, i in zip(start, index, strict=True))
        if all(0 <= p < n for p, n in zip(position, array.shape, strict=True)):
            out[index] = array[position]
    return out


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((64,), (32,), (16,)),
    ((16, 64), (32, 8), (8, 4)),
    ((3, 16, 64), (32, 8, 2), (40, -3, 2)),
    ((2, 3, 8, 32), (16, 4, 2, 2), (-8, 6, 1, 1)),
    ((2, 2, 3, 8, 32), (8, 2, 2, 1, 2), (24, 0, 2, 0, -1)),
]


@SCHEDULES
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("shape", "box", "start"), SHAPES)
def test_loads_of_boxes(
    shape: tuple[int, ...],
    box: tuple[int, ...],
    start: tuple[int, ...],
    swizzle: int,
    schedule: int,
):
    box = (min(box[0], swizzle // 2 or 256), *box[1:])
    array = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) + 1
    rank, nbytes = len(shape), 2 * int(np.prod(box))
    coordinates = ", ".join(map(str, start))
    tile = box_of(array, start, box)
    size = swizzled(padded(tile, swizzle), swizzle).size
    opcode = LOAD.replace("bulk.", f"bulk.tensor.{rank}d.")
    body = f"""{READY}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{BARRIER}], {nbytes};
@%p0 {opcode} [%r5], [%d30, {{{coordinates}}}], [%r5+{BARRIER}];
{WAIT} {dump(size)}"""
    out = np.zeros(size, np.uint8)
    maps = [(1, rows_map(array, "u16", box, swizzle))]
    text = hopper_kernel(body, 2, 1)
    actual = run_hopper(text, [out, array], maps, schedule=schedule, block=(64,))[0]
    # The ends of padded rows are not written.
    written = swizzled(padded(np.full_like(tile, 0x101), swizzle), swizzle) != 0
    expected = swizzled(padded(tile, swizzle), swizzle)
    assert (actual[written] == expected[written]).all()


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 0x7FF7), ("bf16", 0x7FF7)])
def test_out_of_bounds_may_be_nan(dtype: str, bits: int):
    array = np.arange(64, dtype=np.uint16)
    body = f"""{READY}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{BARRIER}], 64;
@%p0 {LOAD.replace("bulk.", "bulk.tensor.1d.")} [%r5], [%d30, {{48}}], [%r5+{BARRIER}];
{WAIT} {dump(64)}"""
    maps = [(1, rows_map(array, dtype, (32,)) | {"fill_nan": True})]
    actual = run_hopper(hopper_kernel(body, 2, 1), [np.zeros(32, "u2"), array], maps)[0]
    assert (actual == box_of(array, (48,), (32,), bits)).all()


@pytest.mark.parametrize("innermost", [1, 2])
def test_strides_of_elements(innermost: int):
    """The copy engine has no element stride of the innermost dimension, and ignores it."""
    array = np.arange(16 * 64, dtype=np.uint32).reshape(16, 64)
    body = f"""{READY}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{BARRIER}], 256;
@%p0 {LOAD.replace("bulk.", "bulk.tensor.2d.")} [%r5], [%d30, {{4, 2}}], [%r5+{BARRIER}];
{WAIT} {dump(256)}"""
    maps = [(1, rows_map(array, "u32", (16, 12)) | {"element_strides": (innermost, 3)})]
    actual = run_hopper(hopper_kernel(body, 2, 1), [np.zeros((4, 16), "u4"), array], maps)[0]
    assert (actual == array[2:14:3, 4:20]).all()


@SCHEDULES
@pytest.mark.parametrize("swizzle", [0, 64, 128])
@pytest.mark.parametrize("start", [(0, 0), (48, 60), (16, 4)])
def test_stores_of_boxes(start: tuple[int, int], swizzle: int, schedule: int):
    """Loads take negative coordinates; an H200 stops stores with an illegal instruction."""
    shape, box = (64, 64), (32, 8)
    tile = np.arange(256, dtype=np.uint16).reshape(8, 32) + 1000
    source = swizzled(padded(tile, swizzle), swizzle)
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    body = f"""{fill(source.size)}
{store} [%d30, {{{start[0]}, {start[1]}}}], [%r5];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
end:"""
    before = np.full(shape, 7, np.uint16)
    maps = [(1, rows_map(before, "u16", box, swizzle))]
    actual = run_hopper(hopper_kernel(body, 2, 1), [source, before], maps, schedule=schedule)[1]
    expected = before.copy()
    for i, j in np.ndindex(8, 32):
        y, x = i + start[1], j + start[0]
        if 0 <= y < 64 and 0 <= x < 64:
            expected[y, x] = tile[i, j]
    assert (actual == expected).all()


@pytest.mark.parametrize("schedule", [0, 1])
def test_reductions(schedule: int):
    tile = np.arange(64, dtype=np.float32).reshape(8, 8)
    store = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    linear = "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32"
    body = f"""{fill(256)}
{store} [%d30, {{4, 4}}], [%r5]; {store} [%d30, {{4, 4}}], [%r5];
{linear} [%d2], [%r5], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
end:"""
    sums = np.ones((16, 16), np.float32)
    most = np.full(64, 0x41000000, np.uint32)
    maps = [(1, rows_map(sums, "f32", (8, 8)))]
    arrays = [tile, sums, most]
    _, actual, top = run_hopper(hopper_kernel(body, 3, 1), arrays, maps, schedule=schedule)
    expected = sums.copy()
    expected[4:12, 4:12] += 2 * tile
    assert (actual == expected).all()
    assert (top == np.maximum(tile.view(np.uint32).reshape(-1), most)).all()


@SCHEDULES
def test_linear_copies(schedule: int):
    body = f"""{READY}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{BARRIER}], 512;
@%p0 {LOAD} [%r5], [%d0], 256, [%r5+{BARRIER}];
@%p0 {LOAD} [%r5+256], [%d0+512], 256, [%r5+{BARRIER}];
{WAIT} @!%p0 bra end;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r5], 512;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
end:"""
    array = np.arange(256, dtype=np.uint32)
    out = run_hopper(hopper_kernel(body, 2), [array, np.zeros(128, "u4")], schedule=schedule)[1]
    assert (out == np.concatenate([array[:64], array[128:192]])).all()


def test_a_map_in_global_memory():
    array = np.arange(256, dtype=np.uint32)
    body = f"""{READY}
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [stage+{BARRIER}], 128;
@%p0 prefetch.tensormap [%d1];
@%p0 {LOAD.replace("bulk.", "bulk.tensor.1d.")} [%r5], [%d1, {{32}}], [%r5+{BARRIER}];
{WAIT} {dump(128)}"""
    memory = SimMemory()
    source, out = memory.put(array), memory.alloc(128)
    described = memory.put(
        np.frombuffer(tensor_map(source, "u32", (256,), (), (32,)), np.uint8),
    )
    arguments = b"".join(p.to_bytes(8, "little") for p in (out, described))
    SimModule(hopper_kernel(body, 2)).launch("k", (1,), (64,), 0, arguments, memory)
    assert (memory.array(out, 32, np.uint32) == array[32:64]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": 8}, "the address is not a multiple of 16"),
        ({"dtype": "f8"}, "the data type f8 is not known"),
        ({"dims": (), "strides": (), "box": ()}, "0 dimensions"),
        ({"dims": (0, 64)}, "a dimension is not 1 to 2^32"),
        ({"dims": ((1 << 32) + 1, 64)}, "a dimension is not 1 to 2^32"),
        ({"strides": (24,)}, "a stride is not a multiple of 16"),
        ({"strides": (1 << 40,)}, "below 2^40"),
        ({"strides": ()}, "2 dimensions and 0 strides"),
        ({"box": (257, 8)}, "the box is not 1 to 256"),
        ({"box": (32, 0)}, "the box is not 1 to 256"),
        ({"box": (4, 8)}, "not a multiple of 16 bytes"),
        ({"box": (128, 8), "swizzle": 128}, "larger than the swizzle span"),
        ({"swizzle": 16}, "the swizzle mode is not known"),
        ({"element_strides": (9, 1)}, "an element stride is not 1 to 8"),
        ({"dtype": "u16", "fill_nan": True}, "can be filled with NaN"),
        ({"dims": (-1, 4)}, "refuses"),
    ],
)
def test_maps_that_the_driver_refuses(change: dict[str, Any], words: str):
    keywords = {"address": 0, "dtype": "bf16", "dims": (64, 64), "strides": (128,), "box": (64, 8)}
    assert len(tensor_map(**keywords)) == 128
    with pytest.raises(SimulationError) as caught:
        tensor_map(**(keywords | change))
    assert words in str(caught.value)
