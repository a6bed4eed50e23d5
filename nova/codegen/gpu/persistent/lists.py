"""Lists of rows for each block: the parts of the persistent kernel of a program without loops.

`kernel.py` puts the parts of `LIST_PARTS` into the kernel. They have the keys of `FLOW_PARTS`.

A row has adjacent tasks of a launch that wait for the same counters: tile-level dependences cut a
launch into rows. Rows of a launch that also have the same successors add to one counter. Each block
has the list of the rows that it has tasks of, in the order of the table, so rows of other blocks
cost it nothing. It copies the rows of its list to shared memory once, and waits and arguments where
they fit. After the kernel's other parameters come the lists: the first entry of each block, one
more, and the entries; then their number of counters, and the ring of `ring.py`, or 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from nova.codegen.gpu.persistent.ring import GATE, GATE_BYTES, MOVE, OPEN, SLOT
from nova.codegen.gpu.persistent.task import TASK_THREADS

_SHARED_ROWS = 128
"""Rows of a list in shared memory; longer lists stay in global memory."""

LIST_BYTES = (32 + 4) * _SHARED_ROWS + GATE_BYTES
"""Shared memory of the rows and their numbers, and of the gate."""

LIST_PARTS: Mapping[str, str] = {
    "parameters": ", %lists_: !llvm.ptr, %counter_count_: i64, %ring_: !llvm.ptr",
    "counter_count": "%counter_count = llvm.trunc %counter_count_ : i64 to i32",
    "copy_tables": f"""%size_ = llvm.sub %counters_address, %waits_address : i64
      %size = llvm.trunc %size_ : i64 to i32
      %fits = llvm.icmp "ule" %size, %room : i32
      %shared = llvm.mlir.addressof @{{name}}_tables : !llvm.ptr<3>
      %copies = llvm.addrspacecast %shared : !llvm.ptr<3> to !llvm.ptr
      %copied_first = llvm.mul %thread, %c16 : i32
      llvm.cond_br %fits, ^copy(%copied_first : i32), ^tables_copied
    ^copy(%copied: i32):
      %has_copy = llvm.icmp "ult" %copied, %size : i32
      llvm.cond_br %has_copy, ^copy_words, ^tables_copied
    ^copy_words:
      %source_at = {{at}} %waits_[%copied] : {{generic}} i8
      %copy = llvm.load %source_at {{{{alignment = 16 : i64}}}} : {{words}}
      %copy_at = {{at}} %shared[%copied] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
      llvm.store %copy, %copy_at {{{{alignment = 16 : i64}}}} : vector<4xi32>, !llvm.ptr<3>
      %next_copied = llvm.add %copied, %round : i32
      llvm.br ^copy(%next_copied : i32)
    ^tables_copied:
      %bounds_at = {{at}} %lists_[%block] : {{generic}} i32
      %list_first = llvm.load %bounds_at : !llvm.ptr -> i32
      %list_end_at = {{at}} %bounds_at[%c1] : {{generic}} i32
      %list_end = llvm.load %list_end_at : !llvm.ptr -> i32
      %list_length = llvm.sub %list_end, %list_first : i32
      %global_list = {{at}} %lists_[%list_first] : {{generic}} i32
      %most_rows = llvm.mlir.constant({_SHARED_ROWS} : i32) : i32
      %fits_list = llvm.icmp "ule" %list_length, %most_rows : i32
      %shared_rows = llvm.mlir.addressof @{{name}}_rows : !llvm.ptr<3>
      %generic_rows = llvm.addrspacecast %shared_rows : !llvm.ptr<3> to !llvm.ptr
      %shared_list = llvm.mlir.addressof @{{name}}_list : !llvm.ptr<3>
      %generic_list = llvm.addrspacecast %shared_list : !llvm.ptr<3> to !llvm.ptr
      %list = llvm.select %fits_list, %generic_list, %global_list : i1, !llvm.ptr
      %gather_round = llvm.mlir.constant({TASK_THREADS} : i32) : i32
      llvm.cond_br %fits_list, ^gather(%thread : i32), ^copied
    ^gather(%entry: i32):
      %has_entry = llvm.icmp "ult" %entry, %list_length : i32
      llvm.cond_br %has_entry, ^gather_row, ^copied
    ^gather_row:
      %entry_at = {{at}} %global_list[%entry] : {{generic}} i32
      %gathered = llvm.load %entry_at : !llvm.ptr -> i32
      %own_entry_at = {{at}} %shared_list[%entry] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      llvm.store %gathered, %own_entry_at : i32, !llvm.ptr<3>
      %from_at = {{at}} %rows_[%gathered, 0] : {{generic}} !llvm.array<8 x i32>
      %to_at = {{at}} %shared_rows[%entry, 0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>,
          !llvm.array<8 x i32>
      %first_half = llvm.load %from_at {{{{alignment = 16 : i64}}}} : {{words}}
      llvm.store %first_half, %to_at {{{{alignment = 16 : i64}}}} : vector<4xi32>, !llvm.ptr<3>
      %from_half_at = {{at}} %from_at[%c1] : {{generic}} vector<4xi32>
      %second_half = llvm.load %from_half_at {{{{alignment = 16 : i64}}}} : {{words}}
      %to_half_at = {{at}} %to_at[%c1] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
      llvm.store %second_half, %to_half_at {{{{alignment = 16 : i64}}}} : vector<4xi32>,
          !llvm.ptr<3>
      %next_entry = llvm.add %entry, %gather_round : i32
      llvm.br ^gather(%next_entry : i32)""",
    "clear_visits": OPEN,
    "row_slot": SLOT,
    "tables": """%arguments_offset = llvm.sub %arguments_address, %waits_address : i64
      %waits = llvm.select %fits, %copies, %waits_ : i1, !llvm.ptr
      %arguments = {at} %waits[%arguments_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8""",
    "enter_step": GATE,
    "next_step": "^step(%epoch : i32)",
    "first_epoch": "epoch",
    "enter_rows": """llvm.br ^entries(%c0 : i32)
    ^entries(%position: i32):
      %has_row = llvm.icmp "ult" %position, %list_length : i32
      llvm.cond_br %has_row, ^row, ^end_step
    ^row:
      %number_at = {at} %list[%position] : {generic} i32
      %row = llvm.load %number_at : !llvm.ptr -> i32
      %own_row_at = {at} %generic_rows[%position, 0] : {generic} !llvm.array<8 x i32>
      %table_row_at = {at} %rows_[%row, 0] : {generic} !llvm.array<8 x i32>
      %row_at = llvm.select %fits_list, %own_row_at, %table_row_at : i1, !llvm.ptr""",
    "wait_counts": """%wait_counts = {word} %tail[%c1 : i32] : vector<4xi32>
      %count_mask = llvm.mlir.constant(65535 : i32) : i32
      %wait_count = llvm.and %wait_counts, %count_mask : i32
      %previous_count = llvm.lshr %wait_counts, %c16 : i32
      %counter = {word} %tail[%c2 : i32] : vector<4xi32>""",
    "enter_row": "llvm.cond_br %has_task, ^enter, ^next",
    "previous": "step",
    # Counters and what is awaited may wrap around: their difference is compared.
    "skip_first": """%is_first_step = llvm.icmp "eq" %awaited_epoch, %c0 : i32
      llvm.cond_br %is_first_step, ^waits(%next_wait : i32), ^poll""",
    "poll": """^poll:
      %value = {acquire} %counter_at : ({ptr}) -> i32
      %ahead = llvm.sub %value, %needed : i32
      %is_complete = llvm.icmp "sge" %ahead, %c0 : i32
      llvm.cond_br %is_complete, ^waits(%next_wait : i32), ^poll""",
    "decide": "",
    "number_span": """%wide_rows = llvm.zext %row_count : i32 to i64
      %wide_row = llvm.zext %row : i32 to i64
      %wide_blocks = llvm.zext %blocks : i32 to i64
      %wide_block = llvm.zext %block : i32 to i64
      %traced_step = llvm.zext %step : i32 to i64
      %rows_before = llvm.mul %traced_step, %wide_rows : i64
      %row_number = llvm.add %rows_before, %wide_row : i64
      %spans_before = llvm.mul %row_number, %wide_blocks : i64
      %span = llvm.add %spans_before, %wide_block : i64""",
    "span_processor": "%wide_processor = llvm.zext %processor : i32 to i64",
    "next_row": """%next_position = llvm.add %position, %c1 : i32
      llvm.br ^entries(%next_position : i32)""",
    "variables": f"""
  llvm.mlir.global internal @{{name}}_rows() {{{{addr_space = 3 : i32, alignment = 16 : i64}}}}
      : !llvm.array<{_SHARED_ROWS} x array<8 x i32>>
  llvm.mlir.global internal @{{name}}_list() {{{{addr_space = 3 : i32, alignment = 16 : i64}}}}
      : !llvm.array<{_SHARED_ROWS} x i32>{MOVE}""",
}
"""The parts of a kernel without decisions."""
