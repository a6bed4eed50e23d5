"""LLVM IR to machine code, with llvmlite.

In: LLVM IR text (one text per group of kernels) and a target. Out: relocatable objects. A fatal
error inside LLVM would end the process, so the text is checked first: it may use only intrinsics
that the target can select, and may not call functions that the object does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from ctypes import PyDLL, c_char_p, string_at
from dataclasses import dataclass
from functools import cache
from typing import Any

from nova.compiler.cpu.llvm_bindings import NewPassManager, ffi
from nova.compiler.cpu.llvm_bindings import binding as llvm
from nova.compiler.worker_pool import Workers
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
_UNITS = re.compile(r"^(?=; ModuleID = )", re.MULTILINE)
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
    with its vectorizers; code with vector loops needs less. `calls` are external functions from
    other objects: the runtime, or functions that kernels of several units share.
    """

    text: str
    unroll: bool
    calls: tuple[str, ...] = ()
    vectorize: bool = True


@cache
def initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(target: Target) -> Any:
    """An LLVM target machine for position-independent code at full optimization.

    The processor name of the target is in the text (`tune-cpu`, set by `export-kernels`), where it
    selects the cost model. As the CPU of the machine it would also enable instructions that are not
    listed in the file.
    """
    initialise()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_base(),
        features=target.llvm_features(),
        opt=3,
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
            f"the kernels call what the object would not contain: {', '.join(sorted(unknown))}",
            hint="an op reached code generation that no pass expanded",
        )


def is_portable(intrinsic: str) -> bool:
    """Whether every target can lower an intrinsic such as `llvm.fma.f32`."""
    return bool(_INTRINSICS.match(intrinsic)) and not intrinsic.startswith("llvm.x86.")


def compile_objects(units: Iterable[Unit], target: Target, workers: int) -> list[bytes]:
    """One object per unit, on up to `workers` threads, which start while units arrive."""
    with Objects(target, workers) as objects:
        for unit in units:
            objects.begin(unit)
        return objects.finish()


class Objects:
    """Units that compile to objects concurrently with the caller, on up to `workers` threads.

    With one worker they wait for `finish`. Leaving the `with` waits for all threads.
    """

    def __init__(self, target: Target, workers: int):
        initialise()
        self._target = target
        self._workers = Workers(workers) if workers > 1 else None
        self._jobs: list[_Job] = []
        self._results: list[Callable[[], bytes]] = []

    def begin(self, unit: Unit) -> None:
        """Add one unit."""
        job = _Job(unit, self._target)
        self._jobs.append(job)  # LLVM's memory for it is freed here, not in a thread
        self._results.append(self._workers.start(job.run) if self._workers else job.run)

    def finish(self) -> list[bytes]:
        """The objects of all units, in their order."""
        return [result() for result in self._results]

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *error: object) -> None:
        if self._workers is not None:
            self._workers.__exit__(*error)


def assembly(unit: Unit, target: Target) -> str:
    """The assembly of a unit, for people to read."""
    job = _Job(unit, target)
    return str(job.machine.emit_assembly(job.optimise()))


def optimised_ir(unit: Unit, target: Target) -> str:
    """The IR after LLVM's optimizations, for people to read."""
    return str(_Job(unit, target).optimise())


class _Job:
    """One unit in LLVM: created by the thread that lowers units, run by a worker.

    Each call of LLVM releases the GIL, and waits for it again while the other thread runs in MLIR,
    which takes some milliseconds. So a worker makes the three long calls, and all short calls are
    made here or keep the GIL. llvmlite also serializes every call with one lock. A module has its
    own context, which makes the long calls safe to run concurrently, so they bypass the lock.
    """

    def __init__(self, unit: Unit, target: Target):
        check_text(unit.text, unit.calls)
        self.machine = target_machine(target)
        self.manager, self.builder = _pipeline(unit, self.machine)
        self.context = llvm.create_context()
        header = (
            f'target datalayout = "{self.machine.target_data}"\ntarget triple = "{target.triple}"\n'
        )
        # The text of a whole program is the concatenation of the texts of its units.
        text = _TARGET.sub("", unit.text) if "target triple" in unit.text else unit.text
        parts = filter(str.strip, _UNITS.split(text))
        self.texts = [(header + part).encode() for part in parts]

    def run(self) -> bytes:
        """Compile and return the object."""
        return emit(self.machine, self.optimise(), OBJECT)

    def optimise(self) -> Any:
        """The module after LLVM's passes."""
        module, *others = [parse_module(text, self.context) for text in self.texts]
        for other in others:
            try:
                module.link_in(other)
            except RuntimeError as error:
                module.close()
                raise CodegenError(f"LLVM does not link the modules: {error}") from error
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
    manager.add_loop_rotate_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    return manager, builder


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run passes on a module that owns its context, concurrently with other LLVM work."""
    _unlocked("LLVMPY_RunNewModulePassManager")(manager, module, builder)


def emit(machine: Any, module: Any, kind: int) -> bytes:
    """The code of such a module: an object or assembly text."""
    error = ffi.OutputString(owned=False)
    buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, kind, error)
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
    same = _unlocked(name)
    function = getattr(PyDLL(ffi.lib._lib._name), name)
    function.argtypes, function.restype = same.argtypes, same.restype
    return function
