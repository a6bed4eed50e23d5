"""LLVM IR to machine code, with llvmlite.

In: LLVM IR text (one text per group of kernels) and a target. Out: relocatable objects. A fatal
error inside LLVM would end the process, so the text is checked first: it may use only intrinsics
that the target can select, and may not call functions that the object does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ctypes import PyDLL, c_char_p, string_at
from dataclasses import dataclass
from functools import cache
from typing import Any

from nova.compiler.llvm.bindings import NewPassManager, ffi
from nova.compiler.llvm.bindings import binding as llvm
from nova.core.targets import Target
from nova.errors import CodegenError

# Intrinsics that every CPU target of Nova lowers to instructions or short inline sequences.
_INTRINSICS = re.compile(
    r"llvm\.(fabs|sqrt|copysign|floor|ceil|trunc|rint|nearbyint|round|roundeven|minimum|maximum"
    r"|minnum|maxnum|minimumnum|maximumnum|fma|fmuladd|abs|smin|smax|umin|umax|ctlz|cttz|ctpop"
    r"|bswap|bitreverse|fshl|fshr|masked\.(load|store|gather|scatter)|vector\.reduce\.\w+"
    r"|[su](add|sub|mul)\.with\.overflow|[su](add|sub)\.sat|experimental\.noalias\.scope\.decl"
    r"|lifetime\.(start|end)|assume|prefetch|expect|stacksave|stackrestore"
    r"|get\.active\.lane\.mask|vector\.(insert|extract|interleave2|deinterleave2)"
    r"|x86\.\w+(\.\w+)*)(\.|$)"
)
# Anchored by a newline instead of `^`, so the search skips to the starts of lines.
_DECLARED = re.compile(r"\ndeclare [^@]*@([\w.\"$-]+)\(")
_MODULE = "; ModuleID = "
_UNITS = re.compile(rf"^(?={_MODULE})", re.MULTILINE)
_OPTION = re.compile(r" (unroll|vectorize|optimize)=(true|false)\b")
_TARGET = re.compile(r"^target (?:triple|datalayout) = .*\n", re.MULTILINE)
_DEFINED = re.compile(r"\ndefine [^@]*@([\w.\"$-]+)\(")
# LLVM's parser verifies this flag and aborts if it is wrong. MLIR always emits it; without debug
# information it has no effect.
_DEBUG_VERSION = b'!"Debug Info Version", i32 3}'
_COMPILE_UNIT = b"!DICompileUnit("

# The output format of LLVM.
ASSEMBLY, OBJECT = 0, 1


@dataclass(frozen=True)
class Unit:
    """LLVM IR that becomes one object.

    `unroll` lets LLVM unroll loops. This pays off if whole loops have a handful of iterations;
    otherwise it takes most of the compile time for no gain. `vectorize` runs LLVM's whole pipeline
    with its vectorizers; code with vector loops needs less. Code whose loops only call functions of
    other units is not worth it to `optimize`: LLVM generates it in a sixth of the time. `calls` are
    external functions from other objects: the runtime, or functions that kernels of several units
    share.
    """

    text: str
    unroll: bool
    calls: tuple[str, ...] = ()
    vectorize: bool = True
    optimize: bool = True


def print_units(units: Iterable[Unit]) -> str:
    """The text of the stage `ll`: the modules of the units, with the options in their first lines.

    A text without options compiles with the defaults, `unroll=false vectorize=true optimize=true`.
    """
    texts = []
    for unit in units:
        first, end, body = unit.text.partition("\n")
        if first.startswith(_MODULE):
            first += f" unroll={unit.unroll} vectorize={unit.vectorize}".lower()
            first += "" if unit.optimize else " optimize=false"
        texts.append(first + end + body)
    return "\n".join(texts)


def parse_units(text: str) -> list[Unit]:
    """The units of a text of the stage `ll`, which may have been edited."""
    texts = [part for part in _UNITS.split(text) if part.strip()] or [text]
    defined = [{*_DEFINED.findall("\n" + part)} for part in texts]
    units = []
    for part, names in zip(texts, defined, strict=True):
        first, end, body = part.partition("\n")
        options = dict(_OPTION.findall(first)) if first.startswith(_MODULE) else {}
        if options:
            part = _OPTION.sub("", first) + end + body
        declared = set(_DECLARED.findall("\n" + part)) - names
        calls = declared & set().union(*defined)
        unroll = options.get("unroll") == "true"
        vectorize = options.get("vectorize") != "false"
        optimize = options.get("optimize") != "false"
        units.append(Unit(part, unroll, tuple(sorted(calls)), vectorize, optimize))
    return units


@cache
def initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(target: Target, *, optimize: bool = True) -> Any:
    """An LLVM target machine for position-independent code at full optimization, or at none.

    The processor name of the target is in the text (`tune-cpu`, set by `export-kernels`), where it
    selects the cost model. As the CPU of the machine it would also enable instructions that are not
    listed in the file.
    """
    initialise()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_base(),
        features=target.llvm_features(),
        opt=3 if optimize else 0,
        reloc="pic",
        codemodel="small",
    )


def check_text(text: str, calls: Sequence[str] = ()) -> None:
    """Refuse IR on which LLVM would abort, and undefined functions other than `calls`."""
    text = "\n" + text
    defined = {*_DEFINED.findall(text), *calls}
    unknown = [
        name
        for name in _DECLARED.findall(text)
        if name not in defined and not _INTRINSICS.match(name)
    ]
    if unknown:
        raise CodegenError(
            "the kernels call functions that the object would not contain: "
            f"{', '.join(sorted(unknown))}",
            hint="an op reached code generation that no pass expanded",
        )


def is_portable(intrinsic: str) -> bool:
    """Whether every target can lower an intrinsic such as `llvm.fma.f32`."""
    return bool(_INTRINSICS.match(intrinsic)) and not intrinsic.startswith("llvm.x86.")


def compile_objects(units: Iterable[Unit], target: Target) -> list[bytes]:
    """One object per unit, compiled in this thread."""
    return [LlvmJob(unit, target).run() for unit in units]


def assembly(unit: Unit, target: Target) -> str:
    """The assembly of a unit, for people to read."""
    return LlvmJob(unit, target, ASSEMBLY).run().decode()


class LlvmJob:
    """One unit in LLVM: created by the thread that lowers units, run by a thread of the work queue.

    Each call of LLVM releases the GIL, and waits for it again while the other thread runs in MLIR,
    which takes some milliseconds. So `run` makes the three long calls, and all short calls are
    made here or keep the GIL. llvmlite also serializes every call with one lock. A module has its
    own context, which makes the long calls safe to run concurrently, so they bypass the lock.
    """

    def __init__(self, unit: Unit, target: Target, output: int = OBJECT):
        check_text(unit.text, unit.calls)
        self.machine = target_machine(target, optimize=unit.optimize)
        self.manager, self.builder = _pipeline(unit, self.machine)
        self.context = llvm.create_context()
        self.output = output
        header = (
            f'target datalayout = "{self.machine.target_data}"\ntarget triple = "{target.triple}"\n'
        )
        text = _TARGET.sub("", unit.text) if "target triple" in unit.text else unit.text
        self.text = (header + text).encode()

    def run(self) -> bytes:
        """Compile and return the object, or the assembly."""
        return emit(self.machine, self.optimise(), self.output)

    def optimise(self) -> Any:
        """The module after LLVM's passes."""
        module = parse_module(self.text, self.context)
        run_passes(self.manager, module, self.builder)
        return module


def parse_module(text: bytes, context: Any) -> Any:
    """Parse and verify a module: on an invalid module the passes would abort."""
    if _COMPILE_UNIT not in text:
        text = text.replace(_DEBUG_VERSION, _DEBUG_VERSION.replace(b"3", b"0"))
    error = ffi.OutputString(owned=False)
    pointer = _unlocked("LLVMPY_ParseAssembly")(context, c_char_p(text), error)
    if error:
        raise CodegenError(f"LLVM does not take the module: {error}")
    module = llvm.ModuleRef(pointer, context)
    if _unlocked("LLVMPY_VerifyModule")(module, error):
        module.close()  # before its context, independent of the order of garbage collection
        raise CodegenError(f"LLVM does not take the module: {error}")
    return module


class _Passes(llvm.ModulePassManager):
    """A pass list that is freed.

    llvmlite's own class is never disposed of: its first base class has a `_dispose` that does
    nothing and hides that of the second. The passes of a default pipeline take 60 KiB.
    """

    _dispose = NewPassManager._dispose


def default_passes(builder: Any) -> Any:
    """LLVM's default pipeline, for a single run, which consumes it."""
    leaked = builder.getModulePassManager()
    passes = _Passes(leaked._ptr)
    leaked.detach()
    return passes


def _pipeline(unit: Unit, machine: Any) -> tuple[Any, Any]:
    """The passes for a unit, and the builder they need.

    Code without scalar loops is already in its final form: LLVM's default pipeline takes six times
    as long as this list and improves it little. Loop-invariant code was hoisted before
    (`loop-invariant-code-motion` in `loops-to-llvm`).
    """
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = unit.unroll
    builder = llvm.create_pass_builder(machine, options)
    if unit.vectorize:
        return default_passes(builder), builder
    manager = _Passes()
    manager.add_always_inliner_pass()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    if unit.optimize:
        manager.add_loop_rotate_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
    if unit.unroll:
        manager.add_loop_unroll_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
    return manager, builder


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run passes on a module that owns its context, concurrently with other LLVM work."""
    _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)


def emit(machine: Any, module: Any, output: int) -> bytes:
    """The code of such a module: an `OBJECT` or `ASSEMBLY` text."""
    error = ffi.OutputString(owned=False)
    buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, output, error)
    if not buffer:
        module.close()
        raise CodegenError(f"LLVM could not emit the code: {error}")
    try:
        start, size = _quick("LLVMPY_GetBufferStart"), _quick("LLVMPY_GetBufferSize")
        return string_at(start(buffer), size(buffer))
    finally:
        _quick("LLVMPY_DisposeMemoryBuffer")(buffer)


def _unlocked(name: str) -> Any:
    return getattr(ffi.lib, name)._cfn


@cache
def _quick(name: str) -> Any:
    """A short LLVM function, called without releasing the GIL."""
    typed = _unlocked(name)
    function = getattr(PyDLL(ffi.lib._lib._name), name)
    function.argtypes, function.restype = typed.argtypes, typed.restype
    return function
