"""Describes errors of a kernel: `Fault`s from the simulator's records.

Called by `module.py` after a launch that failed; `Fault` is the `fault` of a `SimulationError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nova.errors import SimulationError
from nova.gpusim.memory import SimMemory

_FAULTS = (
    *("none", "bounds", "alignment", "race", "uninitialized", "pending-copy", "deadlock", "trap"),
    *("read-only", "memory", "steps", "diverged", "exchange", "barrier", "operation", "proxy"),
    *("mbarrier", "expect-tx", "overwrite", "accumulator", "wgmma-fence", "wgmma", "cluster"),
    *("registers", "tensor-map", "early"),
)
_SPACES = ("generic", "param", "global", "shared", "local")

_HINTS = {
    "bounds": "guard the access, or allocate what the kernel needs",
    "alignment": "an access of n bytes needs an address that is a multiple of n",
    "race": "put a barrier (bar.sync, or bar.warp.sync within a warp) between the two",
    "uninitialized": "write it first, or do not read it",
    "pending-copy": "wait for the group or the mbarrier of the copy, then meet at a barrier",
    "deadlock": "every warp that a barrier counts has to reach it",
    "proxy": "put fence.proxy.async after the write, in the thread that writes, before the barrier",
    "mbarrier": "init once, fence.mbarrier_init, synchronize, then arrive as often as the count",
    "expect-tx": "expect the bytes of all copies of the phase: a box counts in full, also where it "
    "is out of bounds",
    "overwrite": "wait for the wgmma or the bulk store (wait_group), then release the memory",
    "accumulator": "wgmma.wait_group first",
    "wgmma-fence": "put wgmma.fence between the access to the register and the wgmma",
    "wgmma": "the four warps of a warpgroup execute the same wgmma with the same operands",
    "registers": "setmaxnreg.dec of some warpgroups pays for setmaxnreg.inc of the others",
    "early": "put griddepcontrol.wait before it, or read only memory that no launch writes",
    "steps": "a loop that does not end, or `most_steps` is too small",
    "diverged": "all lanes of the warp have to execute it together",
    "exchange": "read from lanes only that take part in the exchange",
    "barrier": "barriers have numbers below 16 and a multiple of 32 threads, the same for all",
}


@dataclass(frozen=True)
class Fault:
    """The first error in a launch; `line` is the PTX line number, `text` its text.

    `other` is the other thread of a race, with its block; `other_writes` says whether it wrote.
    `detail` has more in words, or is empty: for a deadlock, what each warp waits for.
    """

    kind: str
    kernel: str
    line: int
    text: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    space: str = "generic"
    address: int = 0
    nbytes: int = 0
    writes: bool = False
    other_block: tuple[int, int, int] | None = None
    other: tuple[int, int, int] | None = None
    other_writes: bool = False
    detail: str = ""


def read_fault(record: tuple[Any, ...], kernel: str, lines: list[str]) -> Fault:
    """The fault that `_native.sim_run` returned."""
    code, line, block, thread, has_other, other_writes, other_block, other_thread = record[:8]
    address, nbytes, space, writes, detail = record[8:]
    return Fault(
        _FAULTS[code],
        kernel,
        line,
        lines[line - 1].strip() if 0 < line <= len(lines) else "the end of the kernel",
        block,
        thread,
        _SPACES[space],
        address,
        nbytes,
        writes,
        other_block if has_other else None,
        other_thread if has_other else None,
        other_writes,
        detail,
    )


def fault_error(fault: Fault, memory: SimMemory) -> SimulationError:
    """The error for a fault."""
    where = (
        f"{fault.kernel}, line {fault.line} of the PTX: {fault.text}\n"
        f"  by thread {fault.thread} of block {fault.block}"
    )
    error = SimulationError(_describe(fault, memory), where=where, hint=_HINTS.get(fault.kind))
    error.fault = fault
    return error


def _describe(fault: Fault, memory: SimMemory) -> str:
    verb = "write" if fault.writes else "read"
    access = f"{verb} of {fault.nbytes} bytes of {fault.space} memory at {fault.address:#x}"
    if fault.space == "global":
        access += f" ({memory.describe(fault.address)})"
    partner = f"thread {fault.other} of block {fault.other_block}"
    match fault.kind:
        case "bounds":
            return f"out of bounds: {access}"
        case "alignment":
            return f"misaligned: {access}"
        case "early":
            return f"too early: {access}, which an earlier launch writes that may not have ended"
        case "race":
            did = "wrote" if fault.other_writes else "read"
            return f"race: {access}, which {partner} {did}, and nothing orders the two"
        case "uninitialized":
            return f"uninitialized: {access}, which nothing has written"
        case "pending-copy":
            if fault.detail and not fault.nbytes:
                return f"too early: {fault.detail}"
            copier = fault.detail or f"an asynchronous copy of {partner}"
            return f"too early: {access}, where {copier} may still write"
        case "read-only":
            return f"read-only: {access}"
        case "deadlock":
            waits = f":\n  {fault.detail}" if fault.detail else ""
            return f"deadlock: warps wait at a barrier that others do not reach{waits}"
        case "expect-tx":
            return (
                f"the bytes that an mbarrier expects are not those that arrive:\n  {fault.detail}"
            )
        case "proxy" if not fault.nbytes:
            return f"a missing fence between proxies: {fault.detail}"
        case "proxy":
            return (
                f"a missing fence between proxies: asynchronous {access}, which {partner} wrote, "
                "without a fence.proxy.async"
            )
        case "overwrite":
            return f"overwritten: {access}, which {fault.detail} may still read"
        case "mbarrier" if not fault.detail:
            return f"not by mbarrier instructions: {access}, where an mbarrier is"
        case "accumulator" | "wgmma-fence" | "wgmma" | "cluster" | "mbarrier":
            return f"{fault.kind}: {fault.detail}"
        case "registers" | "tensor-map":
            return f"{fault.kind}: {fault.detail}"
        case "trap":
            return "the kernel trapped"
        case "steps":
            return "too many instructions of one warp"
        case "diverged":
            missing = "" if fault.other is None else f": {partner} went around it and ended"
            return f"not all lanes of the warp are here{missing}"
        case "exchange":
            return f"the value of {partner}, which does not take part in the exchange"
        case "barrier":
            return "a barrier whose number or count of threads cannot be"
        case "memory":
            return "this machine has no memory left for the simulation"
    return f"{fault.kind}: not an instruction"
