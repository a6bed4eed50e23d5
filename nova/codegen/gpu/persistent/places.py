"""The numbers of the blocks of a persistent kernel: adjacent numbers are on different processors.

`kernel.py` puts `PLACES` at the start of the kernel.

The device places the blocks of a grid as it likes: of the first 128 of 264 blocks, 14 shared a
multiprocessor of an H200 with another of them, which then took twice as long. So blocks number
themselves. With n multiprocessors, the k-th block of multiprocessor s that arrives takes the number
`k * n + s`, and any n adjacent numbers are on different multiprocessors. Numbers of multiprocessors
may have gaps, and a device that pauses a grid may move its blocks: a block whose number is too
large or taken takes the first free one. There are as many numbers as blocks, and none is ever given
back, so the search of a block always finds one, and no two blocks have the same.

The words after the trace are the number of multiprocessors, three that are unused, the arrivals of
each multiprocessor, and a word for each number that is taken. Without a number of multiprocessors
blocks keep the numbers of the grid. The last block that leaves sets arrivals and numbers to 0.
"""

from __future__ import annotations

_MOST_PROCESSORS = 512
"""Words for arrivals; `persistent.h` has the same number."""
PLACE_BYTES = 16
"""Shared memory for the number of the block."""

PLACES = f"""
      %spread_at = {{at}} %trace_at[2] : ({{ptr}}) -> {{ptr}}, i64
      %processors = llvm.load %spread_at : {{ptr}} -> i32
      %ranks = {{at}} %spread_at[4] : ({{ptr}}) -> {{ptr}}, i32
      %claims = {{at}} %ranks[{_MOST_PROCESSORS}] : ({{ptr}}) -> {{ptr}}, i32
      %rank_words = llvm.mlir.constant({_MOST_PROCESSORS} : i32) : i32
      %spreads = llvm.icmp "ne" %processors, %c0 : i32
      %place = llvm.mlir.addressof @{{name}}_place : !llvm.ptr<3>
      %takes_place = llvm.and %spreads, %leads : i1
      llvm.cond_br %spreads, ^spread, ^placed(%grid_block : i32)
    ^spread:
      llvm.cond_br %takes_place, ^arrive_on, ^wait_for_place
    ^arrive_on:
      %on = {{processor}} : () -> i32
      %rank_mask = llvm.mlir.constant({_MOST_PROCESSORS - 1} : i32) : i32
      %rank_number = llvm.and %on, %rank_mask : i32
      %rank_at = {{at}} %ranks[%rank_number] : {{moved}} i32
      %rank = {{count}} %rank_at, %c1 : ({{ptr}}, i32) -> i32
      %rank_first = llvm.mul %rank, %processors : i32
      %wanted = llvm.add %rank_first, %on : i32
      %is_dense = llvm.icmp "ult" %on, %processors : i32
      %is_number = llvm.icmp "ult" %wanted, %blocks : i32
      %is_free = llvm.and %is_dense, %is_number : i1
      llvm.cond_br %is_free, ^take(%wanted, %c0 : i32, i32), ^take(%c0, %c1 : i32, i32)
    ^take(%taken: i32, %next_taken: i32):
      %claim_at = {{at}} %claims[%taken] : {{moved}} i32
      %claimed = {{claim}} %claim_at, %c0, %c1 : ({{ptr}}, i32, i32) -> i32
      %is_own = llvm.icmp "eq" %claimed, %c0 : i32
      %after_taken = llvm.add %next_taken, %c1 : i32
      llvm.cond_br %is_own, ^keep_place, ^take(%next_taken, %after_taken : i32, i32)
    ^keep_place:
      llvm.store %taken, %place : i32, !llvm.ptr<3>
      llvm.br ^wait_for_place
    ^wait_for_place:
      nvvm.bar.warp.sync %all_lanes : i32
      nvvm.barrier
      %place_number = llvm.load %place : !llvm.ptr<3> -> i32
      llvm.br ^placed(%place_number : i32)
    ^placed(%block: i32):"""
"""The number of a block."""
