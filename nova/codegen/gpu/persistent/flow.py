"""Loops and branches inside of the persistent kernel: the parts of its text that differ.

`kernel.py` puts the parts of `FLOW_PARTS` into the kernel of a program with loops or branches, and
those of `lists.py` into that of any other program. Both have the same keys.

The table of such a program is a list of *segments*: rows that run in order, and a last one that
decides which segment is next. A *decision* has the kernel `_DECISION`; its tasks are its targets,
its first block is the size of its selector. Its arguments are the address of the selector, a scale
and an offset, and for each target the row and the number of its segment. The number of the target
is `scale * selector + offset`, limited to the targets. A decision without a selector is a jump.

All blocks take part in a decision. They wait for all tasks of the segment, so a row never waits for
rows of other segments, with one exception: every block adds 1 to the counter of a decision when it
has read the selector, and what overwrites the selector waits for all of them. A row waits for
`count * visits` tasks, where a block counts the visits of each segment, in shared memory. These
numbers are the same in all blocks, since all take the same decisions. Differences of counters are
compared, so counters may wrap around.

A host that does not want to wait any longer writes the number of the run to a word in pinned
memory, the stop flag. The leader of a block reads it in decisions, and a lane in long waits, and
tells the other threads through shared memory: they leave after the barrier that ends the next wait.
Blocks that do not see it wait for tasks of those that have left, and so they see it, too. The
results of such a run are incomplete.

Two tasks are built in: a copy between two addresses, which can move with the position of a loop,
and the next position of a loop. `native/src/gpu/persistent/persistent_rows.c` writes the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from nova.codegen.gpu.persistent.task import TASK_THREADS, Task, task_name

_SHARED_SEGMENTS = 256
"""Segments whose visits are counted in shared memory; those of larger programs are in global."""
FLOW_BYTES = 4 * _SHARED_SEGMENTS + 16
"""Shared memory of the visits and the flag of a stop, which is aligned."""
_POLLS = 512
"""A wait reads the stop flag after so many polls."""
_VISITS = 64
"""A decision reads the stop flag at each so many visits of a segment."""
_COPY_BYTES = 16 << 10
"""Bytes that one task of a copy moves; `persistent_rows.c` has the same number."""

FLOW_PARTS: Mapping[str, str] = {
    "parameters": ", %visits_: !llvm.ptr, %segment_count_: i64, %stop_: !llvm.ptr, %run_: i64",
    # Each row has a counter.
    "counter_count": "%counter_count = llvm.add %row_count, %c0 : i32",
    "copy_tables": """%size_ = llvm.sub %counters_address, %rows_address : i64
      %size = llvm.trunc %size_ : i64 to i32
      %fits = llvm.icmp "ule" %size, %room : i32
      %shared = llvm.mlir.addressof @{name}_tables : !llvm.ptr<3>
      %copies = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr
      %copied_first = llvm.mul %thread, %c16 : i32
      llvm.cond_br %fits, ^copy(%copied_first : i32), ^copied
    ^copy(%copied: i32):
      %has_copy = llvm.icmp "ult" %copied, %size : i32
      llvm.cond_br %has_copy, ^copy_words, ^copied
    ^copy_words:
      %source_at = {at} %rows_[%copied] : {generic} i8
      %copy = llvm.load %source_at {{alignment = 16 : i64}} : {words}
      %copy_at = {at} %shared[%copied] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
      llvm.store %copy, %copy_at {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<3>
      %next_copied = llvm.add %copied, %round : i32
      llvm.br ^copy(%next_copied : i32)""",
    "tables": """%arguments_offset = llvm.sub %arguments_address, %rows_address : i64
      %waits_offset = llvm.sub %waits_address, %rows_address : i64
      %rows = llvm.select %fits, %copies, %rows_ : i1, !llvm.ptr
      %arguments = {at} %rows[%arguments_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %waits = {at} %rows[%waits_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8""",
    "wait_counts": """%counter = llvm.add %row, %c0 : i32
      %wait_count = {word} %tail[%c1 : i32] : vector<4xi32>
      %previous_count = {word} %tail[%c2 : i32] : vector<4xi32>""",
    "clear_visits": f"""
      %segment_count = llvm.trunc %segment_count_ : i64 to i32
      %most_shared = llvm.mlir.constant({_SHARED_SEGMENTS} : i32) : i32
      %fits_visits = llvm.icmp "ule" %segment_count, %most_shared : i32
      %first_visit = llvm.mul %block, %segment_count : i32
      %global_visits = {{at}} %visits_[%first_visit] : {{generic}} i32
      %shared_visits = llvm.mlir.addressof @{{name}}_visits : !llvm.ptr<3>
      %generic_visits = llvm.addrspacecast %shared_visits : !llvm.ptr<3> to !llvm.ptr
      %visits = llvm.select %fits_visits, %generic_visits, %global_visits : i1, !llvm.ptr
      %threads = llvm.mlir.constant({TASK_THREADS} : i32) : i32
      %stop = llvm.addrspacecast %stop_ : !llvm.ptr to {{ptr}}
      %run = llvm.trunc %run_ : i64 to i32
      %poll_mask = llvm.mlir.constant({_POLLS - 1} : i32) : i32
      %visit_mask = llvm.mlir.constant({_VISITS - 1} : i32) : i32
      %stopped = llvm.mlir.addressof @{{name}}_stopped : !llvm.ptr<3>
      llvm.cond_br %leads, ^clear_stopped, ^clear(%thread : i32)
    ^clear_stopped:
      llvm.store %c0, %stopped : i32, !llvm.ptr<3>
      llvm.br ^clear(%thread : i32)
    ^clear(%cleared: i32):
      %has_visits = llvm.icmp "ult" %cleared, %segment_count : i32
      llvm.cond_br %has_visits, ^clear_visits, ^cleared
    ^clear_visits:
      %cleared_at = {{at}} %visits[%cleared] : {{generic}} i32
      llvm.store %c0, %cleared_at : i32, !llvm.ptr
      %next_cleared = llvm.add %cleared, %threads : i32
      llvm.br ^clear(%next_cleared : i32)
    ^cleared:""",
    "enter_step": """llvm.br ^step(%c0 : i32)
    ^step(%step: i32):
      %wide_step = llvm.zext %step : i32 to i64""",
    "row_slot": "",
    "next_step": "^step(%first_epoch : i32)",
    "first_epoch": "first_epoch",
    # The first segment is visited once a repetition.
    "enter_rows": """llvm.br ^row(%c0, %first_epoch, %step : i32, i32, i32)
    ^row(%row: i32, %epoch: i32, %previous: i32):
      %row_at = {at} %rows[%row, 0] : {generic} !llvm.array<8 x i32>""",
    "enter_row": """%is_decision = llvm.icmp "eq" %kernel, %all_lanes : i32
      %takes_part = llvm.or %has_task, %is_decision : i1
      llvm.cond_br %takes_part, ^enter, ^next""",
    "previous": "previous",
    "skip_first": "llvm.br ^poll(%c0 : i32)",
    "poll": """^poll(%tries: i32):
      %value = {acquire} %counter_at : ({ptr}) -> i32
      %ahead = llvm.sub %value, %needed : i32
      %is_complete = llvm.icmp "sge" %ahead, %c0 : i32
      llvm.cond_br %is_complete, ^waits(%next_wait : i32), ^try_again
    ^try_again:
      %tried = llvm.add %tries, %c1 : i32
      %poll_bits = llvm.and %tried, %poll_mask : i32
      %is_long = llvm.icmp "eq" %poll_bits, %c0 : i32
      llvm.cond_br %is_long, ^ask, ^poll(%tried : i32)
    ^ask:
      %asked = {read_stop} %stop : ({ptr}) -> i32
      %ends_wait = llvm.icmp "eq" %asked, %run : i32
      llvm.cond_br %ends_wait, ^stop_waiting, ^poll(%tried : i32)
    ^stop_waiting:
      llvm.store %c1, %stopped : i32, !llvm.ptr<3>
      llvm.br ^ready""",
    "decide": """
      %stopped_now = llvm.load %stopped : !llvm.ptr<3> -> i32
      %has_stopped = llvm.icmp "ne" %stopped_now, %c0 : i32
      llvm.cond_br %has_stopped, ^leave, ^continue
    ^continue:
      llvm.cond_br %is_decision, ^decide, ^start
    ^decide:
      %selector_at = {at} %arguments[%argument_first] : {generic} vector<2xi64>
      %selector_pair = llvm.load %selector_at {{alignment = 16 : i64}} : !llvm.ptr -> vector<2xi64>
      %selector_base = {word} %selector_pair[%c0 : i32] : vector<2xi64>
      %selector_stride = {word} %selector_pair[%c1 : i32] : vector<2xi64>
      %selector_offset = llvm.mul %selector_stride, %wide_step : i64
      %selector_address = llvm.add %selector_base, %selector_offset : i64
      %selector = llvm.inttoptr %selector_address : i64 to {ptr}
      %has_selector = llvm.icmp "ne" %first_block, %c0 : i32
      llvm.cond_br %has_selector, ^select, ^jump(%zero : i64)
    ^select:
      %is_byte = llvm.icmp "eq" %first_block, %c1 : i32
      llvm.cond_br %is_byte, ^select_byte, ^select_word
    ^select_byte:
      %byte = llvm.load %selector : {ptr} -> i8
      %wide_byte = llvm.zext %byte : i8 to i64
      llvm.br ^jump(%wide_byte : i64)
    ^select_word:
      %selected_word = llvm.load %selector : {ptr} -> i64
      llvm.br ^jump(%selected_word : i64)
    ^jump(%selected: i64):
      %line_at = {at} %selector_at[1] : (!llvm.ptr) -> !llvm.ptr, vector<2xi64>
      %line = llvm.load %line_at {{alignment = 16 : i64}} : !llvm.ptr -> vector<2xi64>
      %scale = {word} %line[%c0 : i32] : vector<2xi64>
      %bias = {word} %line[%c1 : i32] : vector<2xi64>
      %scaled = llvm.mul %scale, %selected : i64
      %biased = llvm.add %scaled, %bias : i64
      %most_ = llvm.sub %task_count, %c1 : i32
      %most = llvm.zext %most_ : i32 to i64
      %at_least = llvm.intr.smax(%biased, %zero) : (i64, i64) -> i64
      %number = llvm.intr.smin(%at_least, %most) : (i64, i64) -> i64
      %targets = {at} %line_at[1] : (!llvm.ptr) -> !llvm.ptr, vector<2xi64>
      %target_at = {at} %targets[%number] : (!llvm.ptr, i64) -> !llvm.ptr, vector<2xi64>
      %target = llvm.load %target_at {{alignment = 16 : i64}} : !llvm.ptr -> vector<2xi64>
      %target_row_ = {word} %target[%c0 : i32] : vector<2xi64>
      %target_row = llvm.trunc %target_row_ : i64 to i32
      %segment = {word} %target[%c1 : i32] : vector<2xi64>
      %visits_at = {at} %visits[%segment] : (!llvm.ptr, i64) -> !llvm.ptr, i32
      %visits_before = llvm.load %visits_at : !llvm.ptr -> i32
      %visits_now = llvm.add %visits_before, %c1 : i32
      nvvm.barrier
      llvm.cond_br %leads, ^count_visit, ^arrived
    ^count_visit:
      llvm.store %visits_now, %visits_at : i32, !llvm.ptr
      %visit_bits = llvm.and %visits_now, %visit_mask : i32
      %is_frequent = llvm.icmp "eq" %visit_bits, %c0 : i32
      llvm.cond_br %is_frequent, ^ask_leader, ^counted_visit
    ^ask_leader:
      %stop_word = {read_stop} %stop : ({ptr}) -> i32
      %ends_loop = llvm.icmp "eq" %stop_word, %run : i32
      llvm.cond_br %ends_loop, ^stop_loop, ^counted_visit
    ^stop_loop:
      llvm.store %c1, %stopped : i32, !llvm.ptr<3>
      llvm.br ^counted_visit
    ^counted_visit:
      %arrival_at = {at} %counters[%row] : {moved} i32
      llvm.cond_br %has_selector, ^arrive, ^arrived
    ^arrive:
      {release} %arrival_at, %c1 : ({ptr}, i32) -> ()
      llvm.br ^arrived
    ^arrived:
      nvvm.bar.warp.sync %all_lanes : i32
      llvm.br ^go(%target_row, %visits_now, %epoch : i32, i32, i32)
    ^start:""",
    # No segment but the first has the number 0, and that one needs no visits: the trace has it.
    "number_span": """%number_before = llvm.load %visits : !llvm.ptr -> i32
      %spans_now = llvm.add %number_before, %c1 : i32
      llvm.store %spans_now, %visits : i32, !llvm.ptr
      %wide_number = llvm.zext %number_before : i32 to i64
      %wide_blocks = llvm.zext %blocks : i32 to i64
      %wide_block = llvm.zext %block : i32 to i64
      %spans_before = llvm.mul %wide_number, %wide_blocks : i64
      %span = llvm.add %spans_before, %wide_block : i64""",
    "span_processor": """%narrow_processor = llvm.zext %processor : i32 to i64
      %wide_row = llvm.zext %row : i32 to i64
      %half = llvm.mlir.constant(32 : i64) : i64
      %row_half = llvm.shl %wide_row, %half : i64
      %wide_processor = llvm.or %narrow_processor, %row_half : i64""",
    "next_row": """llvm.br ^go(%next_row, %epoch, %previous : i32, i32, i32)
    ^go(%to_row: i32, %to_epoch: i32, %to_previous: i32):
      %has_row = llvm.icmp "ult" %to_row, %row_count : i32
      llvm.cond_br %has_row, ^row(%to_row, %to_epoch, %to_previous : i32, i32, i32), ^end_step""",
    "variables": f"""
  llvm.mlir.global internal @{{name}}_visits() {{{{addr_space = 3 : i32, alignment = 16 : i64}}}}
      : !llvm.array<{_SHARED_SEGMENTS} x i32>
  llvm.mlir.global internal @{{name}}_stopped() {{{{addr_space = 3 : i32, alignment = 4 : i64}}}}
      : i32""",
}
"""The parts of a kernel with decisions."""


def builtin_tasks(first: int) -> tuple[list[Task], list[str]]:
    """The tasks of copies and positions, and the text of their functions, from number `first` on.

    A copy gets two addresses, its bytes, the strides of both addresses by the position of a loop,
    and the address of this position, or 0. A position gets its address, whether it has a value
    already, and the first value or the step to the next.
    """
    tasks = [
        Task(("!llvm.ptr", "!llvm.ptr", "i64", "i64", "i64", "i64"), TASK_THREADS),
        Task(("!llvm.ptr", "i64", "i64"), 1),
    ]
    copy = _COPY.format(name=task_name(first), bytes=_COPY_BYTES, threads=TASK_THREADS)
    return tasks, [copy, _POSITION.format(name=task_name(first + 1))]


_COPY = """llvm.func internal @{name}(%to_: !llvm.ptr, %from_: !llvm.ptr, %size: i64,
      %to_stride: i64, %from_stride: i64, %position_: i64, %task: i32)
      attributes {{always_inline}} {{
      %c0 = llvm.mlir.constant(0 : i64) : i64
      %c1 = llvm.mlir.constant(1 : i64) : i64
      %c16 = llvm.mlir.constant(16 : i64) : i64
      %low_bits = llvm.mlir.constant(15 : i64) : i64
      %threads = llvm.mlir.constant({threads} : i64) : i64
      %part = llvm.mlir.constant({bytes} : i64) : i64
      %thread_ = nvvm.read.ptx.sreg.tid.x : i32
      %thread = llvm.zext %thread_ : i32 to i64
      %moves = llvm.icmp "ne" %position_, %c0 : i64
      llvm.cond_br %moves, ^read, ^move(%c0 : i64)
    ^read:
      %position_at = llvm.inttoptr %position_ : i64 to !llvm.ptr<1>
      %value = llvm.load %position_at : !llvm.ptr<1> -> i64
      llvm.br ^move(%value : i64)
    ^move(%position: i64):
      %to_offset = llvm.mul %to_stride, %position : i64
      %from_offset = llvm.mul %from_stride, %position : i64
      %to = llvm.getelementptr %to_[%to_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %from = llvm.getelementptr %from_[%from_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %wide_task = llvm.zext %task : i32 to i64
      %begin = llvm.mul %wide_task, %part : i64
      %full_end = llvm.add %begin, %part : i64
      %end = llvm.intr.umin(%full_end, %size) : (i64, i64) -> i64
      %to_address = llvm.ptrtoint %to : !llvm.ptr to i64
      %from_address = llvm.ptrtoint %from : !llvm.ptr to i64
      %addresses = llvm.or %to_address, %from_address : i64
      %bits = llvm.or %addresses, %size : i64
      %rest = llvm.and %bits, %low_bits : i64
      %is_wide = llvm.icmp "eq" %rest, %c0 : i64
      %width = llvm.select %is_wide, %c16, %c1 : i1, i64
      %own = llvm.mul %thread, %width : i64
      %round = llvm.mul %threads, %width : i64
      %first = llvm.add %begin, %own : i64
      llvm.br ^check(%first : i64)
    ^check(%i: i64):
      %has_more = llvm.icmp "ult" %i, %end : i64
      llvm.cond_br %has_more, ^copy, ^end
    ^copy:
      %to_at = llvm.getelementptr %to[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %from_at = llvm.getelementptr %from[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %next = llvm.add %i, %round : i64
      llvm.cond_br %is_wide, ^copy_words, ^copy_byte
    ^copy_words:
      %words = llvm.load %from_at {{alignment = 16 : i64}} : !llvm.ptr -> vector<4xi32>
      llvm.store %words, %to_at {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr
      llvm.br ^check(%next : i64)
    ^copy_byte:
      %byte = llvm.load %from_at : !llvm.ptr -> i8
      llvm.store %byte, %to_at : i8, !llvm.ptr
      llvm.br ^check(%next : i64)
    ^end:
      llvm.return
  }}"""

_POSITION = """llvm.func internal @{name}(%at: !llvm.ptr, %has_value: i64, %step: i64, %task: i32)
      attributes {{always_inline}} {{
      %c0 = llvm.mlir.constant(0 : i64) : i64
      %is_next = llvm.icmp "ne" %has_value, %c0 : i64
      llvm.cond_br %is_next, ^read, ^write(%step : i64)
    ^read:
      %before = llvm.load %at : !llvm.ptr -> i64
      %after = llvm.add %before, %step : i64
      llvm.br ^write(%after : i64)
    ^write(%value: i64):
      llvm.store %value, %at : i64, !llvm.ptr
      llvm.return
  }}"""
