"""The code of the persistent kernel, as text of the LLVM dialect.

In: the parameters and threads of each task. Out: a `gpu.module` with the kernel, and declarations
of the tasks that it calls. `link-persistent-kernel` calls `kernel_text`.

A row of the table of launches has eight words: the kernel, the number of tasks, the block that runs
the first one, the first argument, the first wait and the number of waits. A wait is a row and the
number of its tasks that must have run; an argument is a value, and its stride from one repetition
of the program to the next. `native/src/gpu/persistent.c` writes them. After the counters of the
rows follow that of blocks that have finished a repetition, and that of blocks that have left.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.core.records import record
from nova.ir.attributes import NVVM_MIN_BLOCKS

PERSISTENT_KERNEL = "nova_persistent"
"""The symbol of the kernel; the runtime finds it by this name."""
TASK_THREADS = 256
"""Threads of its blocks: the most that a task can have."""
_MIN_BLOCKS = 2
"""Blocks per multiprocessor of its launch bounds."""


@record
class Task:
    """A kernel as a task: the types of its parameters, and its threads."""

    types: tuple[str, ...]
    threads: int


def task_name(number: int) -> str:
    return f"nova_task_{number}"


def kernel_text(tasks: Sequence[Task]) -> str:
    """The text of the device module."""
    declarations = (
        f"llvm.func @{task_name(number)}({', '.join([*task.types, 'i32'])})"
        for number, task in enumerate(tasks)
    )
    return _KERNEL.format(
        **_INSTRUCTIONS,
        name=PERSISTENT_KERNEL,
        threads=TASK_THREADS,
        min_blocks=f"{NVVM_MIN_BLOCKS.name} = {_MIN_BLOCKS} : i32",
        cases="".join(_case_text(number, task) for number, task in enumerate(tasks)),
        targets=", ".join(f"{number}: ^case{number}" for number in range(len(tasks))),
        tasks="\n  ".join(declarations),
    )


def _case_text(number: int, task: Task) -> str:
    """The code that runs one task: loads its parameters, and calls its function."""
    lines, names = [], []
    for i, kind in enumerate(task.types):
        name = f"{number}_{i}"
        lines += [
            f"%at{name} = llvm.getelementptr %row_arguments[{i}] : (!llvm.ptr<1>) -> "
            "!llvm.ptr<1>, vector<2xi64>",
            f"%pair{name} = llvm.load %at{name} {{alignment = 16 : i64}} : "
            "!llvm.ptr<1> -> vector<2xi64>",
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
        f"llvm.call @{task_name(number)}({', '.join([*names, '%task'])}) : "
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
    "field": "(!llvm.ptr<1>) -> !llvm.ptr<1>,",
    "moved": "(!llvm.ptr<1>, i32) -> !llvm.ptr<1>,",
    "acquire": _assembly("ld.acquire.gpu.global.u32 $0, [$1]", "=r,l"),
    "release": _assembly("red.release.gpu.global.add.u32 [$0], $1", "l,r"),
    "leave": _assembly("atom.acq_rel.gpu.global.add.u32 $0, [$1], $2", "=r,l,r"),
    "store": _assembly("st.relaxed.gpu.global.u32 [$0], $1", "l,r"),
}
_KERNEL = """
gpu.module @{name} {{
  llvm.func @{name}(%rows_: !llvm.ptr, %arguments_: !llvm.ptr, %waits_: !llvm.ptr,
                    %counters_: !llvm.ptr, %row_count_: i64, %steps_: i64)
      attributes {{gpu.kernel, nvvm.kernel, nvvm.maxntid = array<i32: {threads}, 1, 1>,
                  {min_blocks}}} {{
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c2 = llvm.mlir.constant(2 : i32) : i32
      %rows = llvm.addrspacecast %rows_ : !llvm.ptr to {ptr}
      %arguments = llvm.addrspacecast %arguments_ : !llvm.ptr to {ptr}
      %waits = llvm.addrspacecast %waits_ : !llvm.ptr to {ptr}
      %counters = llvm.addrspacecast %counters_ : !llvm.ptr to {ptr}
      %row_count = llvm.trunc %row_count_ : i64 to i32
      %steps = llvm.trunc %steps_ : i64 to i32
      %thread = nvvm.read.ptx.sreg.tid.x : i32
      %block = nvvm.read.ptx.sreg.ctaid.x : i32
      %blocks = nvvm.read.ptx.sreg.nctaid.x : i32
      %leads = llvm.icmp "eq" %thread, %c0 : i32
      llvm.br ^step(%c0 : i32)
    ^step(%step: i32):
      %epoch = llvm.add %step, %c1 : i32
      %wide_step = llvm.zext %step : i32 to i64
      llvm.br ^row(%c0 : i32)
    ^row(%row: i32):
      %row_at = {at} %rows[%row, 0] : {moved} !llvm.array<8 x i32>
      %kernel = llvm.load %row_at : {ptr} -> i32
      %at1 = {at} %row_at[1] : {field} i32
      %task_count = llvm.load %at1 : {ptr} -> i32
      %at2 = {at} %row_at[2] : {field} i32
      %first_block = llvm.load %at2 : {ptr} -> i32
      %is_after = llvm.icmp "uge" %block, %first_block : i32
      %distance = llvm.sub %block, %first_block : i32
      %wrapped = llvm.add %distance, %blocks : i32
      %first_task = llvm.select %is_after, %distance, %wrapped : i1, i32
      %has_task = llvm.icmp "ult" %first_task, %task_count : i32
      llvm.cond_br %has_task, ^enter, ^next
    ^enter:
      llvm.cond_br %leads, ^wait, ^ready
    ^wait:
      %at4 = {at} %row_at[4] : {field} i32
      %wait_first = llvm.load %at4 : {ptr} -> i32
      %at5 = {at} %row_at[5] : {field} i32
      %wait_count = llvm.load %at5 : {ptr} -> i32
      %wait_end = llvm.add %wait_first, %wait_count : i32
      llvm.br ^waits(%wait_first : i32)
    ^waits(%w: i32):
      %more = llvm.icmp "ult" %w, %wait_end : i32
      llvm.cond_br %more, ^await, ^ready
    ^await:
      %wait_at = {at} %waits[%w, 0] : {moved} !llvm.array<2 x i32>
      %awaited = llvm.load %wait_at : {ptr} -> i32
      %count_at = {at} %wait_at[1] : {field} i32
      %count = llvm.load %count_at : {ptr} -> i32
      %needed = llvm.mul %count, %epoch : i32
      %counter_at = {at} %counters[%awaited] : {moved} i32
      llvm.br ^poll
    ^poll:
      %value = {acquire} %counter_at : ({ptr}) -> i32
      %is_complete = llvm.icmp "uge" %value, %needed : i32
      %next_wait = llvm.add %w, %c1 : i32
      llvm.cond_br %is_complete, ^waits(%next_wait : i32), ^poll
    ^ready:
      nvvm.barrier
      %at3 = {at} %row_at[3] : {field} i32
      %argument_first = llvm.load %at3 : {ptr} -> i32
      %row_arguments = {at} %arguments[%argument_first] : {moved} vector<2xi64>
      llvm.br ^run(%first_task, %c0 : i32, i32)
    ^run(%task: i32, %ran: i32):
      llvm.switch %kernel : i32, ^ran [{targets}]{cases}
    ^ran:
      nvvm.barrier
      %next_task = llvm.add %task, %blocks : i32
      %ran_now = llvm.add %ran, %c1 : i32
      %has_more = llvm.icmp "ult" %next_task, %task_count : i32
      llvm.cond_br %has_more, ^run(%next_task, %ran_now : i32, i32), ^signal
    ^signal:
      llvm.cond_br %leads, ^add, ^next
    ^add:
      %own_at = {at} %counters[%row] : {moved} i32
      {release} %own_at, %ran_now : ({ptr}, i32) -> ()
      llvm.br ^next
    ^next:
      %next_row = llvm.add %row, %c1 : i32
      %has_row = llvm.icmp "ult" %next_row, %row_count : i32
      llvm.cond_br %has_row, ^row(%next_row : i32), ^end_step
    ^end_step:
      %has_step = llvm.icmp "ult" %epoch, %steps : i32
      %grid_at = {at} %counters[%row_count] : {moved} i32
      llvm.cond_br %has_step, ^meet, ^leave
    ^meet:
      llvm.cond_br %leads, ^arrive, ^met
    ^arrive:
      {release} %grid_at, %c1 : ({ptr}, i32) -> ()
      %all = llvm.mul %blocks, %epoch : i32
      llvm.br ^gather
    ^gather:
      %here = {acquire} %grid_at : ({ptr}) -> i32
      %are_here = llvm.icmp "uge" %here, %all : i32
      llvm.cond_br %are_here, ^met, ^gather
    ^met:
      nvvm.barrier
      llvm.br ^step(%epoch : i32)
    ^leave:
      llvm.cond_br %leads, ^depart, ^end
    ^depart:
      %gone_at = {at} %grid_at[1] : {field} i32
      %gone = {leave} %gone_at, %c1 : ({ptr}, i32) -> i32
      %gone_now = llvm.add %gone, %c1 : i32
      %is_last = llvm.icmp "eq" %gone_now, %blocks : i32
      llvm.cond_br %is_last, ^reset(%c0 : i32), ^end
    ^reset(%i: i32):
      %reset_at = {at} %counters[%i] : {moved} i32
      {store} %reset_at, %c0 : ({ptr}, i32) -> ()
      %next_i = llvm.add %i, %c1 : i32
      %reset_end = llvm.add %row_count, %c2 : i32
      %resets = llvm.icmp "ult" %next_i, %reset_end : i32
      llvm.cond_br %resets, ^reset(%next_i : i32), ^end
    ^end:
      llvm.return
  }}
  {tasks}
}}
"""
