"""Repetitions whose data comes from the host while the kernel runs: a ring of slots.

`lists.py` and `kernel.py` put `GATE`, `TELL` and `MOVE` into the kernel of a program without loops.
The host fills the slot of a repetition and adds 1 to the number of filled ones, a word whose sign
bit says that no more follow. The first block reads this word with an acquire of system scope when
it has run all repetitions that it knows of. It moves small inputs from pinned memory to the slots
on the device, and publishes the word for the other blocks, with a release; larger inputs were
copied by the host. A block begins a repetition when the published number is greater than its
number, and leaves when the sign bit is set and it is not. The number never decreases, and the sign
bit is set with the last one, so all blocks leave after the same repetition.

The last row of a repetition has the kernel `SIGNAL`. It waits for all others, moves small results
to pinned memory, and writes the number of complete repetitions to a word there, with a release of
system scope. The host fills the slot again after that. The first rows of the next repetition do not
wait for this row.

The ring is in device memory: the number of slots less 1, a power of two; the addresses of both
words; the numbers of inputs and results that are moved; and for each of them where it comes from,
where it goes, its bytes in a slot, and an unused word. `persistent_ring.c` of native/src/gpu writes
it. Without a ring the kernel gets 0, and knows of all repetitions from the beginning.
"""

from __future__ import annotations

from nova.codegen.gpu.persistent.task import TASK_THREADS

SIGNAL = -3
"""The kernel of the row that tells the host; `persistent.h` has the same number."""
GATE_BYTES = 16
"""Shared memory of the word that the leader of a block has read."""

GATE = """%ring_address = llvm.ptrtoint %ring_ : !llvm.ptr to i64
      %ring = llvm.inttoptr %ring_address : i64 to {ptr}
      %has_ring = llvm.icmp "ne" %ring_address, %zero : i64
      %gate = llvm.mlir.addressof @{name}_gate : !llvm.ptr<3>
      %number_bits = llvm.mlir.constant(2147483647 : i32) : i32
      %leads_all = llvm.icmp "eq" %block, %c0 : i32
      %filled_at_ = {at} %ring[1] : ({ptr}) -> {ptr}, i64
      %counts_at = {at} %ring[3] : ({ptr}) -> {ptr}, i64
      %moves_at = {at} %ring[4] : ({ptr}) -> {ptr}, i64
      llvm.cond_br %has_ring, ^read_ring, ^enter_steps(%all_lanes, %all_lanes : i32, i32)
    ^read_ring:
      %ring_mask = llvm.load %ring : {ptr} -> i32
      llvm.br ^enter_steps(%c0, %ring_mask : i32, i32)
    ^enter_steps(%first_known: i32, %slot_mask: i32):
      llvm.br ^step(%c0, %first_known : i32, i32)
    ^step(%step: i32, %known: i32):
      %is_known = llvm.icmp "ult" %step, %known : i32
      llvm.cond_br %is_known, ^begin(%known : i32), ^gate
    ^gate:
      llvm.cond_br %leads, ^read_gate, ^wait_for_gate
    ^read_gate:
      llvm.cond_br %leads_all, ^read_filled, ^poll_published
    ^read_filled:
      %filled_address = llvm.load %filled_at_ : {ptr} -> i64
      %filled_at = llvm.inttoptr %filled_address : i64 to {ptr}
      llvm.br ^poll_filled
    ^poll_filled:
      %filled_word = {acquire_host} %filled_at : ({ptr}) -> i32
      %filled_number = llvm.and %filled_word, %number_bits : i32
      %is_filled = llvm.icmp "ugt" %filled_number, %step : i32
      %is_closed = llvm.icmp "slt" %filled_word, %c0 : i32
      %has_news = llvm.or %is_filled, %is_closed : i1
      llvm.cond_br %has_news, ^pass_gate(%filled_word : i32), ^poll_filled
    ^poll_published:
      %published_at = {at} %counters[%counter_count] : {moved} i32
      %published_word = {acquire} %published_at : ({ptr}) -> i32
      %published_number = llvm.and %published_word, %number_bits : i32
      %is_published = llvm.icmp "ugt" %published_number, %step : i32
      %is_over = llvm.icmp "slt" %published_word, %c0 : i32
      %has_word = llvm.or %is_published, %is_over : i1
      llvm.cond_br %has_word, ^pass_gate(%published_word : i32), ^poll_published
    ^pass_gate(%read_word: i32):
      llvm.store %read_word, %gate : i32, !llvm.ptr<3>
      llvm.br ^wait_for_gate
    ^wait_for_gate:
      nvvm.bar.warp.sync %all_lanes : i32
      nvvm.barrier
      %gate_word = llvm.load %gate : !llvm.ptr<3> -> i32
      %gate_number = llvm.and %gate_word, %number_bits : i32
      %has_repetition = llvm.icmp "ult" %step, %gate_number : i32
      llvm.cond_br %leads_all, ^move_slots(%step : i32), ^through
    ^move_slots(%moved_step: i32):
      %has_slot = llvm.icmp "ult" %moved_step, %gate_number : i32
      llvm.cond_br %has_slot, ^move_slot, ^moved
    ^move_slot:
      %input_count = llvm.load %counts_at : {ptr} -> i32
      %moved_slot = llvm.and %moved_step, %slot_mask : i32
      llvm.call @{name}_move(%moves_at, %input_count, %moved_slot) : ({ptr}, i32, i32) -> ()
      %next_moved = llvm.add %moved_step, %c1 : i32
      llvm.br ^move_slots(%next_moved : i32)
    ^moved:
      nvvm.barrier
      llvm.cond_br %leads, ^publish, ^through
    ^publish:
      %own_published_at = {at} %counters[%counter_count] : {moved} i32
      {publish} %own_published_at, %gate_word : ({ptr}, i32) -> ()
      llvm.br ^through
    ^through:
      nvvm.bar.warp.sync %all_lanes : i32
      nvvm.barrier
      llvm.cond_br %has_repetition, ^begin(%gate_number : i32), ^leave
    ^begin(%run_known: i32):
      %slot = llvm.and %step, %slot_mask : i32"""
"""Waits for the data of a repetition; `run_known` repetitions are known."""

TELL = """
    ^tell_host:
      %input_moves = llvm.load %counts_at : {ptr} -> i32
      %result_count_at = {at} %counts_at[1] : ({ptr}) -> {ptr}, i32
      %result_count = llvm.load %result_count_at : {ptr} -> i32
      %result_moves_at = {at} %moves_at[%input_moves, 0] : {moved} !llvm.array<4 x i64>
      llvm.call @{name}_move(%result_moves_at, %result_count, %slot) : ({ptr}, i32, i32) -> ()
      nvvm.barrier
      llvm.cond_br %leads, ^tell, ^ran
    ^tell:
      %done_at_ = {at} %ring[2] : ({ptr}) -> {ptr}, i64
      %done_address = llvm.load %done_at_ : {ptr} -> i64
      %done_at = llvm.inttoptr %done_address : i64 to {ptr}
      {release_host} %done_at, %epoch : ({ptr}, i32) -> ()
      llvm.br ^ran"""
"""The task of the last row: results go to the host."""

MOVE = f"""
  llvm.mlir.global internal @{{name}}_gate() {{{{addr_space = 3 : i32, alignment = 16 : i64}}}}
      : !llvm.array<4 x i32>
  llvm.func internal @{{name}}_move(%moves: {{ptr}}, %count: i32, %slot: i32)
      attributes {{{{always_inline}}}} {{{{
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %zero = llvm.mlir.constant(0 : i64) : i64
      %one = llvm.mlir.constant(1 : i64) : i64
      %sixteen = llvm.mlir.constant(16 : i64) : i64
      %low_bits = llvm.mlir.constant(15 : i64) : i64
      %threads = llvm.mlir.constant({TASK_THREADS} : i64) : i64
      %thread_ = nvvm.read.ptx.sreg.tid.x : i32
      %thread = llvm.zext %thread_ : i32 to i64
      %wide_slot = llvm.zext %slot : i32 to i64
      llvm.br ^moves(%c0 : i32)
    ^moves(%number: i32):
      %has_move = llvm.icmp "ult" %number, %count : i32
      llvm.cond_br %has_move, ^move, ^end
    ^move:
      %move_at = {{at}} %moves[%number, 0] : {{moved}} !llvm.array<4 x i64>
      %from_base = llvm.load %move_at : {{ptr}} -> i64
      %to_at_ = {{at}} %move_at[1] : ({{ptr}}) -> {{ptr}}, i64
      %to_base = llvm.load %to_at_ : {{ptr}} -> i64
      %size_at = {{at}} %move_at[2] : ({{ptr}}) -> {{ptr}}, i64
      %size = llvm.load %size_at : {{ptr}} -> i64
      %offset = llvm.mul %wide_slot, %size : i64
      %rest = llvm.and %size, %low_bits : i64
      %is_wide = llvm.icmp "eq" %rest, %zero : i64
      %width = llvm.select %is_wide, %sixteen, %one : i1, i64
      %first = llvm.mul %thread, %width : i64
      %round = llvm.mul %threads, %width : i64
      llvm.br ^check(%first : i64)
    ^check(%i: i64):
      %has_part = llvm.icmp "ult" %i, %size : i64
      llvm.cond_br %has_part, ^part, ^next
    ^part:
      %position = llvm.add %offset, %i : i64
      %from_address = llvm.add %from_base, %position : i64
      %to_address = llvm.add %to_base, %position : i64
      %from = llvm.inttoptr %from_address : i64 to {{ptr}}
      %to = llvm.inttoptr %to_address : i64 to {{ptr}}
      %next_i = llvm.add %i, %round : i64
      llvm.cond_br %is_wide, ^words, ^byte
    ^words:
      %word = llvm.load %from {{{{alignment = 16 : i64}}}} : {{ptr}} -> vector<4xi32>
      llvm.store %word, %to {{{{alignment = 16 : i64}}}} : vector<4xi32>, {{ptr}}
      llvm.br ^check(%next_i : i64)
    ^byte:
      %value = llvm.load %from : {{ptr}} -> i8
      llvm.store %value, %to : i8, {{ptr}}
      llvm.br ^check(%next_i : i64)
    ^next:
      %next_number = llvm.add %number, %c1 : i32
      llvm.br ^moves(%next_number : i32)
    ^end:
      llvm.return
  }}}}"""
"""Moves the values of a slot between host and device: all threads of a block."""
