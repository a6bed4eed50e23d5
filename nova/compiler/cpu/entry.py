"""The entry point of a file, `_mlir_ciface_main(result, argument, ...)`, as an object.

In: the number of arguments of a program and the ranks of its results. Out: an object with one
function that collects the pointers to the memref descriptors and passes them to the C runtime in
the file (`nova_ciface`, native/include/nova/ciface.h). Called by the compile driver.
"""

from __future__ import annotations

from functools import lru_cache

from nova.compiler.llvm.machine_code import LlvmJob, Unit
from nova.core.targets import parse_target

ENTRY, RUNTIME = "_mlir_ciface_main", "nova_ciface"

_TEXT = """\
declare void @{runtime}(ptr, ptr, i64)

define void @{entry}({parameters}) nounwind {{
start:
  %arguments = alloca [{room} x ptr], align 16
{stores}
  %absent = icmp eq ptr {result}, null
  br i1 %absent, label %run, label %clear
clear:
  %word = phi i64 [ 0, %start ], [ %next, %store ]
  %more = icmp ult i64 %word, {words}
  br i1 %more, label %store, label %run
store:
  %place = getelementptr i64, ptr {result}, i64 %word
  store volatile i64 0, ptr %place
  %next = add i64 %word, 1
  br label %clear
run:
  call void @{runtime}(ptr {result}, ptr %arguments, i64 {count})
  ret void
}}
"""


@lru_cache(maxsize=64)
def compile_entry(arch: str, arguments: int, ranks: tuple[int, ...]) -> bytes:
    """The object, for the baseline processor of the architecture: it runs before the CPU check."""
    unit = Unit(entry_text(arguments, ranks), unroll=False, calls=(RUNTIME,), vectorize=False)
    return LlvmJob(unit, parse_target(arch)).run()


def entry_text(arguments: int, ranks: tuple[int, ...]) -> str:
    """The function in LLVM IR.

    Without results there is no first parameter. The result descriptors are zeroed before the
    runtime gets them, so a failed call leaves nothing that looks like an array. If there is no room
    for descriptors, the runtime reports it. The stores are volatile, because LLVM would otherwise
    combine them into a call of `memset`.
    """
    parameters = ["ptr %result"] * bool(ranks) + [f"ptr %a{i}" for i in range(arguments)]
    stores = [
        f"  %p{i} = getelementptr ptr, ptr %arguments, i64 {i}\n  store ptr %a{i}, ptr %p{i}"
        for i in range(arguments)
    ]
    return _TEXT.format(
        runtime=RUNTIME,
        entry=ENTRY,
        parameters=", ".join(parameters),
        room=max(1, arguments),
        stores="\n".join(stores),
        # A descriptor has two pointers, an offset, and a size and a stride for each dimension.
        words=sum(3 + 2 * rank for rank in ranks),
        result="%result" if ranks else "null",
        count=arguments,
    )
