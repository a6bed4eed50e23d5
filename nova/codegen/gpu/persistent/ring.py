"""Repetitions whose data comes from the host while the kernel runs: a ring of slots.

`lists.py` and `kernel.py` put the texts below into the kernel of a program without loops.
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
"""Shared memory of what the leader of a block has read: the word, its number, mask and slot."""

OPEN = """
      llvm.cond_br %leads, ^open_ring, ^opened
    ^open_ring:
      %ring_address = llvm.ptrtoint %ring_ : !llvm.ptr to i64
      %has_ring = llvm.icmp "ne" %ring_address, %zero : i64
      llvm.cond_br %has_ring, ^read_ring, ^note_ring(%all_lanes, %all_lanes : i32, i32)
    ^read_ring:
      %ring_mask = llvm.load %ring_ : !llvm.ptr -> i32
      llvm.br ^note_ring(%c0, %ring_mask : i32, i32)
    ^note_ring(%first_known: i32, %slot_mask: i32):
      %known_at_ = llvm.mlir.addressof @{name}_known : !llvm.ptr<3>
      llvm.store %first_known, %known_at_ : i32, !llvm.ptr<3>
      %mask_at_ = llvm.mlir.addressof @{name}_mask : !llvm.ptr<3>
      llvm.store %slot_mask, %mask_at_ : i32, !llvm.ptr<3>
      llvm.br ^opened
    ^opened:"""
"""Before the first repetition and a barrier: how many are known, and the mask of their slots.

Both, and the slot, are in shared memory, and the address of the ring is read again where it is
needed: the tasks need all registers.
"""

GATE = """llvm.br ^step(%c0 : i32)
    ^step(%step: i32):
      %known_at = llvm.mlir.addressof @{name}_known : !llvm.ptr<3>
      %known = llvm.load volatile %known_at : !llvm.ptr<3> -> i32
      %is_known = llvm.icmp "ult" %step, %known : i32
      llvm.cond_br %is_known, ^begin, ^gate
    ^gate:
      %number_bits = llvm.mlir.constant(2147483647 : i32) : i32
      %leads_all = llvm.icmp "eq" %block, %c0 : i32
      %gate_ring = {reread} %ring_ : (!llvm.ptr) -> {ptr}
      %gate_counters = {reread} %counters_ : (!llvm.ptr) -> {ptr}
      %gate = llvm.mlir.addressof @{name}_gate : !llvm.ptr<3>
      nvvm.barrier
      llvm.cond_br %leads, ^read_gate, ^wait_for_gate
    ^read_gate:
      %published_at = {at} %gate_counters[%counter_count] : {moved} i32
      llvm.cond_br %leads_all, ^read_filled, ^poll_published
    ^read_filled:
      %filled_at_ = {at} %gate_ring[1] : ({ptr}) -> {ptr}, i64
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
      %published_word = {acquire} %published_at : ({ptr}) -> i32
      %published_number = llvm.and %published_word, %number_bits : i32
      %is_published = llvm.icmp "ugt" %published_number, %step : i32
      %is_over = llvm.icmp "slt" %published_word, %c0 : i32
      %has_word = llvm.or %is_published, %is_over : i1
      llvm.cond_br %has_word, ^pass_gate(%published_word : i32), ^poll_published
    ^pass_gate(%read_word: i32):
      llvm.store %read_word, %gate : i32, !llvm.ptr<3>
      %read_number = llvm.and %read_word, %number_bits : i32
      llvm.store volatile %read_number, %known_at : i32, !llvm.ptr<3>
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
      %counts_at = {at} %gate_ring[3] : ({ptr}) -> {ptr}, i64
      %input_count = llvm.load %counts_at : {ptr} -> i32
      %moves_at = {at} %gate_ring[4] : ({ptr}) -> {ptr}, i64
      %move_mask_at = llvm.mlir.addressof @{name}_mask : !llvm.ptr<3>
      %move_mask = llvm.load %move_mask_at : !llvm.ptr<3> -> i32
      %moved_slot = llvm.and %moved_step, %move_mask : i32
      llvm.call @{name}_move(%moves_at, %input_count, %moved_slot) : ({ptr}, i32, i32) -> ()
      %next_moved = llvm.add %moved_step, %c1 : i32
      llvm.br ^move_slots(%next_moved : i32)
    ^moved:
      nvvm.barrier
      llvm.cond_br %leads, ^publish, ^through
    ^publish:
      %own_published_at = {at} %gate_counters[%counter_count] : {moved} i32
      {publish} %own_published_at, %gate_word : ({ptr}, i32) -> ()
      llvm.br ^through
    ^through:
      nvvm.bar.warp.sync %all_lanes : i32
      llvm.cond_br %has_repetition, ^begin, ^leave
    ^begin:
      llvm.cond_br %leads, ^note_slot, ^noted
    ^note_slot:
      %step_mask_at = llvm.mlir.addressof @{name}_mask : !llvm.ptr<3>
      %step_mask = llvm.load %step_mask_at : !llvm.ptr<3> -> i32
      %step_slot = llvm.and %step, %step_mask : i32
      %step_slot_at = llvm.mlir.addressof @{name}_slot : !llvm.ptr<3>
      llvm.store volatile %step_slot, %step_slot_at : i32, !llvm.ptr<3>
      llvm.br ^noted
    ^noted:
      nvvm.bar.warp.sync %all_lanes : i32"""
"""Waits for the data of a repetition.

All threads have read what is known before its barrier, and the leader writes that after it. The
leader writes the slot; the barrier before the tasks of a row, and that after them, order this with
the reads of all threads.
"""

SLOT = """
      %slot_at = llvm.mlir.addressof @{name}_slot : !llvm.ptr<3>
      %slot = llvm.load volatile %slot_at : !llvm.ptr<3> -> i32
      %wide_step = llvm.zext %slot : i32 to i64"""
"""The slot of a repetition, which the arguments of tasks move with; after a barrier."""

TELL = """
    ^tell_host:
      %told_ring = {reread} %ring_ : (!llvm.ptr) -> {ptr}
      %told_counts_at = {at} %told_ring[3] : ({ptr}) -> {ptr}, i64
      %input_moves = llvm.load %told_counts_at : {ptr} -> i32
      %result_count_at = {at} %told_counts_at[1] : ({ptr}) -> {ptr}, i32
      %result_count = llvm.load %result_count_at : {ptr} -> i32
      %told_moves_at = {at} %told_ring[4] : ({ptr}) -> {ptr}, i64
      %result_moves_at = {at} %told_moves_at[%input_moves, 0] : {moved} !llvm.array<4 x i64>
      llvm.call @{name}_move(%result_moves_at, %result_count, %slot) : ({ptr}, i32, i32) -> ()
      nvvm.barrier
      llvm.cond_br %leads, ^tell, ^ran
    ^tell:
      %done_at_ = {at} %told_ring[2] : ({ptr}) -> {ptr}, i64
      %done_address = llvm.load %done_at_ : {ptr} -> i64
      %done_at = llvm.inttoptr %done_address : i64 to {ptr}
      {release_host} %done_at, %epoch : ({ptr}, i32) -> ()
      llvm.br ^ran"""
"""The task of the last row: results go to the host."""

MOVE = f"""
  llvm.mlir.global internal @{{name}}_gate() {{{{addr_space = 3 : i32, alignment = 4 : i64}}}}
      : i32
  llvm.mlir.global internal @{{name}}_known() {{{{addr_space = 3 : i32, alignment = 4 : i64}}}}
      : i32
  llvm.mlir.global internal @{{name}}_mask() {{{{addr_space = 3 : i32, alignment = 4 : i64}}}} : i32
  llvm.mlir.global internal @{{name}}_slot() {{{{addr_space = 3 : i32, alignment = 4 : i64}}}} : i32
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
