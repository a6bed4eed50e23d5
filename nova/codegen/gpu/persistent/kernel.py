"""The code of the persistent kernel, as text of the LLVM dialect.

In: the parameters and threads of each task. Out: a `gpu.module` with the kernel, and declarations
of the tasks that it calls. `link-persistent-kernel` calls `kernel_text`. `flow.py` has the parts
that only the kernel of a program with loops and branches has, `lists.py` those of any other;
`places.py` numbers the blocks, `ring.py` takes the data of each repetition from the host.

A row of the table has eight words: the kernel, the number of tasks, the block that runs the first
one, the first argument, the first wait, two words for its counter and its numbers of waits, and the
first task: a row has adjacent tasks of a launch. It waits for counters of the same repetition of
the program, and for counters of the one before it. A wait is a counter and the number of tasks that
must have been added to it; an argument is a value, and its stride from one repetition to the next.
`native/src/gpu/persistent/persistent_plan.c` writes them.

Blocks copy tables of up to `_TABLE_BYTES` to shared memory: an acquire empties the L1 cache, and
each row would wait for the L2 cache three times. The lanes of the first warp poll one counter each;
they rejoin after the signal of a row, so that none polls the next one before it. After the counters
follow one of the ring, that of blocks that have left, and the address and the size of the trace:
four words of 64 bits a row and block, if it is not 0; then the places of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.codegen.gpu.persistent.flow import FLOW_BYTES, FLOW_PARTS, builtin_tasks
from nova.codegen.gpu.persistent.lists import LIST_BYTES, LIST_PARTS
from nova.codegen.gpu.persistent.places import PLACE_BYTES, PLACES
from nova.codegen.gpu.persistent.ring import SIGNAL, TELL
from nova.codegen.gpu.persistent.task import TASK_THREADS, Task, task_name
from nova.ir.attributes import NVVM_MIN_BLOCKS

PERSISTENT_KERNEL = "nova_persistent_chains"
"""The symbol of the kernel; the runtime finds it by this name."""
FLOW_KERNEL = "nova_persistent_loops"
"""Its symbol in a program with loops or branches, whose table has decisions."""
PERSISTENT_KERNELS = (PERSISTENT_KERNEL, FLOW_KERNEL)
_MIN_BLOCKS = 2
"""Blocks per multiprocessor of its launch bounds; `fit_registers.py` may give it one."""
_TABLE_BYTES = 8 << 10
"""Shared memory for the tables."""


def shared_bytes(has_flow: bool) -> int:
    """The shared memory that the kernel declares, next to the dynamic one of its tasks."""
    return _TABLE_BYTES + PLACE_BYTES + (FLOW_BYTES if has_flow else LIST_BYTES)


def kernel_text(tasks: Sequence[Task], has_flow: bool = False) -> str:
    """The text of the device module; with `has_flow` of a program with loops or branches."""
    declarations = [
        f"llvm.func @{task_name(number)}({', '.join([*task.types, 'i32'])})"
        for number, task in enumerate(tasks)
    ]
    if has_flow:
        builtin, texts = builtin_tasks(len(tasks))
        tasks = [*tasks, *builtin]
        declarations += texts
    name = FLOW_KERNEL if has_flow else PERSISTENT_KERNEL
    parts = FLOW_PARTS if has_flow else LIST_PARTS
    return _KERNEL.format(
        **_INSTRUCTIONS,
        **{key: text.format(**_INSTRUCTIONS, name=name) for key, text in parts.items()},
        places=PLACES.format(**_INSTRUCTIONS, name=name),
        name=name,
        threads=TASK_THREADS,
        table_bytes=_TABLE_BYTES,
        round_bytes=16 * TASK_THREADS,
        min_blocks=f"{NVVM_MIN_BLOCKS.name} = {_MIN_BLOCKS} : i32",
        cases="".join(_case_text(number, task) for number, task in enumerate(tasks))
        + ("" if has_flow else TELL.format(**_INSTRUCTIONS, name=name)),
        targets=", ".join(
            [f"{number}: ^case{number}" for number in range(len(tasks))]
            + ([] if has_flow else [f"{SIGNAL}: ^tell_host"])
        ),
        tasks="\n  ".join(declarations),
    )


def _case_text(number: int, task: Task) -> str:
    """The code that runs one task: loads its parameters, and calls its function."""
    lines, names = [], []
    for i, kind in enumerate(task.types):
        name = f"{number}_{i}"
        lines += [
            f"%at{name} = llvm.getelementptr %row_arguments[{i}] : (!llvm.ptr) -> "
            "!llvm.ptr, vector<2xi64>",
            f"%pair{name} = llvm.load %at{name} {{alignment = 16 : i64}} : "
            "!llvm.ptr -> vector<2xi64>",
            f"%base{name} = llvm.extractelement %pair{name}[%c0 : i32] : vector<2xi64>",
        ]
        if kind == "!llvm.ptr":
            lines += [
                f"%stride{name} = llvm.extractelement %pair{name}[%c1 : i32] : vector<2xi64>",
                f"%offset{name} = llvm.mul %stride{name}, %wide_step : i64",
                f"%address{name} = llvm.add %base{name}, %offset{name} : i64",
                # A pointer to global memory: LLVM then knows it of the accesses of the task.
                f"%global{name} = llvm.inttoptr %address{name} : i64 to !llvm.ptr<1>",
                f"%p{name} = llvm.addrspacecast %global{name} : !llvm.ptr<1> to !llvm.ptr",
            ]
        names.append(f"%{'p' if kind == '!llvm.ptr' else 'base'}{name}")
    call = (
        f"llvm.call @{task_name(number)}({', '.join([*names, '%task_number'])}) : "
        f"({', '.join([*task.types, 'i32'])}) -> ()"
    )
    body = "\n      ".join([*lines, call, "llvm.br ^ran"])
    if task.threads == TASK_THREADS:
        return f"\n    ^case{number}:\n      {body}"
    return f"""
    ^case{number}:
      %n{number} = llvm.mlir.constant({task.threads} : i32) : i32
      %has{number} = llvm.icmp "ult" %thread, %n{number} : i32
      llvm.cond_br %has{number}, ^run{number}, ^ran
    ^run{number}:
      {body}"""


def _assembly(text: str, constraints: str) -> str:
    return f'llvm.inline_asm has_side_effects "{text};", "{constraints},~{{memory}}"'


_INSTRUCTIONS = {
    "ptr": "!llvm.ptr<1>",
    "at": "llvm.getelementptr",
    "moved": "(!llvm.ptr<1>, i32) -> !llvm.ptr<1>,",
    "generic": "(!llvm.ptr, i32) -> !llvm.ptr,",
    "words": "!llvm.ptr -> vector<4xi32>",
    "word": "llvm.extractelement",
    "acquire": _assembly("ld.acquire.gpu.global.u32 $0, [$1]", "=r,l"),
    "reread": _assembly("mov.u64 $0, $1", "=l,l"),
    "acquire_host": _assembly("ld.acquire.sys.global.u32 $0, [$1]", "=r,l"),
    "release_host": _assembly("st.release.sys.global.u32 [$0], $1", "l,r"),
    "publish": _assembly("st.release.gpu.global.u32 [$0], $1", "l,r"),
    "release": _assembly("red.release.gpu.global.add.u32 [$0], $1", "l,r"),
    "leave": _assembly("atom.acq_rel.gpu.global.add.u32 $0, [$1], $2", "=r,l,r"),
    "count": _assembly("atom.relaxed.gpu.global.add.u32 $0, [$1], $2", "=r,l,r"),
    "claim": _assembly("atom.relaxed.gpu.global.cas.b32 $0, [$1], $2, $3", "=r,l,r,r"),
    "read_stop": _assembly("ld.relaxed.sys.global.u32 $0, [$1]", "=r,l"),
    "store": _assembly("st.relaxed.gpu.global.u32 [$0], $1", "l,r"),
    "timer": _assembly("mov.u64 $0, %globaltimer", "=l"),
    "processor": _assembly("mov.u32 $0, %smid", "=r"),
}
_KERNEL = """
gpu.module @{name} {{
  llvm.func @{name}(%rows_: !llvm.ptr, %arguments_: !llvm.ptr, %waits_: !llvm.ptr,
                    %counters_: !llvm.ptr, %row_count_: i64, %steps_: i64{parameters})
      attributes {{gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: {threads}, 1, 1>,
                  {min_blocks}}} {{
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c2 = llvm.mlir.constant(2 : i32) : i32
      %c3 = llvm.mlir.constant(3 : i32) : i32
      %c16 = llvm.mlir.constant(16 : i32) : i32
      %warp = llvm.mlir.constant(32 : i32) : i32
      %all_lanes = llvm.mlir.constant(-1 : i32) : i32
      %round = llvm.mlir.constant({round_bytes} : i32) : i32
      %room = llvm.mlir.constant({table_bytes} : i32) : i32
      %zero = llvm.mlir.constant(0 : i64) : i64
      %counters = llvm.addrspacecast %counters_ : !llvm.ptr to {ptr}
      %row_count = llvm.trunc %row_count_ : i64 to i32
      {counter_count}
      %steps = llvm.trunc %steps_ : i64 to i32
      %thread = nvvm.read.ptx.sreg.tid.x : i32
      %grid_block = nvvm.read.ptx.sreg.ctaid.x : i32
      %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
      %leads = llvm.icmp "eq" %thread, %c0 : i32
      %polls = llvm.icmp "ult" %thread, %warp : i32
      %rows_address = llvm.ptrtoint %rows_ : !llvm.ptr to i64
      %arguments_address = llvm.ptrtoint %arguments_ : !llvm.ptr to i64
      %waits_address = llvm.ptrtoint %waits_ : !llvm.ptr to i64
      %counters_address = llvm.ptrtoint %counters_ : !llvm.ptr to i64
      %odd_count = llvm.add %counter_count, %c3 : i32
      %trace_word = llvm.lshr %odd_count, %c1 : i32
      %trace_at = {at} %counters[%trace_word] : {moved} i64
{places}
      {copy_tables}
    ^copied:{clear_visits}
      nvvm.barrier
      {tables}
      %trace_address = llvm.load %trace_at : {ptr} -> i64
      %traces = llvm.icmp "ne" %trace_address, %zero : i64
      {enter_step}
      %{first_epoch} = llvm.add %step, %c1 : i32
      {enter_rows}
      %head = llvm.load %row_at {{alignment = 16 : i64}} : {words}
      %kernel = {word} %head[%c0 : i32] : vector<4xi32>
      %task_count = {word} %head[%c1 : i32] : vector<4xi32>
      %first_block = {word} %head[%c2 : i32] : vector<4xi32>
      %argument_first = {word} %head[%c3 : i32] : vector<4xi32>
      %tail_at = {at} %row_at[%c1] : {generic} vector<4xi32>
      %tail = llvm.load %tail_at {{alignment = 16 : i64}} : {words}
      %wait_first = {word} %tail[%c0 : i32] : vector<4xi32>
      %begin = {word} %tail[%c3 : i32] : vector<4xi32>
      {wait_counts}
      %is_after = llvm.icmp "uge" %block, %first_block : i32
      %distance = llvm.sub %block, %first_block : i32
      %wrapped = llvm.add %distance, %blocks : i32
      %first_task = llvm.select %is_after, %distance, %wrapped : i1, i32
      %has_task = llvm.icmp "ult" %first_task, %task_count : i32
      {enter_row}
    ^enter:
      %entered = llvm.call @{name}_clock(%traces) : (i1) -> i64
      llvm.cond_br %polls, ^wait, ^ready
    ^wait:
      %wait_end = llvm.add %wait_first, %wait_count : i32
      %previous_end = llvm.add %wait_end, %previous_count : i32
      %lane_first = llvm.add %wait_first, %thread : i32
      llvm.br ^waits(%lane_first : i32)
    ^waits(%w: i32):
      %more = llvm.icmp "ult" %w, %previous_end : i32
      llvm.cond_br %more, ^await, ^ready
    ^await:
      %wait_at = {at} %waits[%w, 0] : {generic} !llvm.array<2 x i32>
      %awaited = llvm.load %wait_at : !llvm.ptr -> i32
      %count_at = {at} %wait_at[%c1] : {generic} i32
      %count = llvm.load %count_at : !llvm.ptr -> i32
      %is_current = llvm.icmp "ult" %w, %wait_end : i32
      %awaited_epoch = llvm.select %is_current, %epoch, %{previous} : i1, i32
      %needed = llvm.mul %count, %awaited_epoch : i32
      %counter_at = {at} %counters[%awaited] : {moved} i32
      %next_wait = llvm.add %w, %warp : i32
      {skip_first}
    {poll}
    ^ready:
      nvvm.barrier{decide}{row_slot}
      %started = llvm.call @{name}_clock(%traces) : (i1) -> i64
      %row_arguments = {at} %arguments[%argument_first] : {generic} vector<2xi64>
      llvm.br ^run(%first_task, %c0 : i32, i32)
    ^run(%task: i32, %ran: i32):
      %task_number = llvm.add %task, %begin : i32
      llvm.switch %kernel : i32, ^ran [{targets}]{cases}
    ^ran:
      nvvm.barrier
      %next_task = llvm.add %task, %blocks : i32
      %ran_now = llvm.add %ran, %c1 : i32
      %has_more = llvm.icmp "ult" %next_task, %task_count : i32
      llvm.cond_br %has_more, ^run(%next_task, %ran_now : i32, i32), ^signal
    ^signal:
      llvm.cond_br %leads, ^add, ^rejoin
    ^add:
      %own_at = {at} %counters[%counter] : {moved} i32
      %ended = llvm.call @{name}_clock(%traces) : (i1) -> i64
      %is_awaited = llvm.icmp "ne" %counter, %all_lanes : i32
      llvm.cond_br %is_awaited, ^release, ^released
    ^release:
      {release} %own_at, %ran_now : ({ptr}, i32) -> ()
      llvm.br ^released
    ^released:
      llvm.cond_br %traces, ^record, ^rejoin
    ^record:
      {number_span}
      %record_counters = {reread} %counters_ : (!llvm.ptr) -> {ptr}
      %record_at = {at} %record_counters[%trace_word] : {moved} i64
      %record_address = llvm.load %record_at : {ptr} -> i64
      %trace = llvm.inttoptr %record_address : i64 to {ptr}
      %capacity_at = {at} %record_at[1] : ({ptr}) -> {ptr}, i64
      %capacity = llvm.load %capacity_at : {ptr} -> i64
      %has_room = llvm.icmp "ult" %span, %capacity : i64
      llvm.cond_br %has_room, ^write, ^rejoin
    ^write:
      %span_at = {at} %trace[%span, 0] : ({ptr}, i64) -> {ptr}, !llvm.array<4 x i64>
      %processor = {processor} : () -> i32
      {span_processor}
      llvm.store %entered, %span_at : i64, {ptr}
      %started_at = {at} %span_at[1] : ({ptr}) -> {ptr}, i64
      llvm.store %started, %started_at : i64, {ptr}
      %ended_at = {at} %span_at[2] : ({ptr}) -> {ptr}, i64
      llvm.store %ended, %ended_at : i64, {ptr}
      %processor_at = {at} %span_at[3] : ({ptr}) -> {ptr}, i64
      llvm.store %wide_processor, %processor_at : i64, {ptr}
      llvm.br ^rejoin
    ^rejoin:
      nvvm.bar.warp.sync %all_lanes : i32
      llvm.br ^next
    ^next:
      %next_row = llvm.add %row, %c1 : i32
      {next_row}
    ^end_step:
      %has_step = llvm.icmp "ult" %{first_epoch}, %steps : i32
      llvm.cond_br %has_step, {next_step}, ^leave
    ^leave:
      llvm.cond_br %polls, ^depart, ^end
    ^depart:
      llvm.cond_br %leads, ^count_out, ^counted(%c0 : i32)
    ^count_out:
      %gone_number = llvm.add %counter_count, %c1 : i32
      %gone_at = {at} %counters[%gone_number] : {moved} i32
      %gone = {leave} %gone_at, %c1 : ({ptr}, i32) -> i32
      %gone_now = llvm.add %gone, %c1 : i32
      llvm.br ^counted(%gone_now : i32)
    ^counted(%left: i32):
      %last_counters = {reread} %counters_ : (!llvm.ptr) -> {ptr}
      %last_trace_at = {at} %last_counters[%trace_word] : {moved} i64
      %last_spread_at = {at} %last_trace_at[2] : ({ptr}) -> {ptr}, i64
      %last_ranks = {at} %last_spread_at[4] : ({ptr}) -> {ptr}, i32
      %last_processors = llvm.load %last_spread_at : {ptr} -> i32
      %last_spreads = llvm.icmp "ne" %last_processors, %c0 : i32
      %last_words = llvm.add %rank_words, %blocks : i32
      %place_words = llvm.select %last_spreads, %last_words, %c0 : i1, i32
      nvvm.bar.warp.sync %all_lanes : i32
      %last_lane = llvm.sub %warp, %c1 : i32
      %departed = nvvm.shfl.sync idx %all_lanes, %left, %c0, %last_lane : i32 -> i32
      %is_last = llvm.icmp "eq" %departed, %blocks : i32
      llvm.cond_br %is_last, ^resets(%thread : i32), ^end
    ^resets(%i: i32):
      %reset_end = llvm.add %counter_count, %c2 : i32
      %has_reset = llvm.icmp "ult" %i, %reset_end : i32
      llvm.cond_br %has_reset, ^reset, ^reset_places(%thread : i32)
    ^reset:
      %reset_at = {at} %counters[%i] : {moved} i32
      {store} %reset_at, %c0 : ({ptr}, i32) -> ()
      %next_i = llvm.add %i, %warp : i32
      llvm.br ^resets(%next_i : i32)
    ^reset_places(%p: i32):
      %has_place = llvm.icmp "ult" %p, %place_words : i32
      llvm.cond_br %has_place, ^reset_place, ^end
    ^reset_place:
      %place_at = {at} %last_ranks[%p] : {moved} i32
      {store} %place_at, %c0 : ({ptr}, i32) -> ()
      %next_p = llvm.add %p, %warp : i32
      llvm.br ^reset_places(%next_p : i32)
    ^end:
      llvm.return
  }}
  llvm.mlir.global internal @{name}_tables() {{addr_space = 3 : i32, alignment = 16 : i64}}
      : !llvm.array<{table_bytes} x i8>
  llvm.mlir.global internal @{name}_place() {{addr_space = 3 : i32, alignment = 16 : i64}}
      : !llvm.array<4 x i32>{variables}
  llvm.func internal @{name}_clock(%traces: i1) -> i64 attributes {{always_inline}} {{
      %zero = llvm.mlir.constant(0 : i64) : i64
      llvm.cond_br %traces, ^read, ^end(%zero : i64)
    ^read:
      %now = {timer} : () -> i64
      llvm.br ^end(%now : i64)
    ^end(%time: i64):
      llvm.return %time : i64
  }}
  {tasks}
}}
"""
