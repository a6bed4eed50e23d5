"""Every error Nova raises on purpose: one class a mistake.

Each message says what was wrong, where (the user's line, or the op in the IR) and what to do.
`NovaError(what, where=..., hint=...)` puts the three together in one place.
"""

from __future__ import annotations

from errno import ENOENT
from os import strerror


class NovaError(Exception):
    """Base of all errors that Nova raises on purpose."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None):
        self.what, self.where, self.hint = what, where, hint
        lines = [what]
        if where:
            lines.append(f"  at {where}")
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))

    def located(self, where: str, prefix: str = "") -> NovaError:
        """The same error with its place, for rules that do not know it; one that has it stays."""
        if self.where is not None:
            return self
        located = type(self)(prefix + self.what, where=where, hint=self.hint)
        own = {n: v for n, v in vars(self).items() if n not in ("what", "where", "hint")}
        vars(located).update(own)  # a finding, the history of a training
        return located


# --- building the graph ---------------------------------------------------------------------------


class ShapeError(NovaError, ValueError):
    """The shapes of an op's operands do not fit together."""


class DTypeError(NovaError, TypeError):
    """An element type that the op does not take, or that Nova does not know."""


class AxisError(NovaError, IndexError):
    """An axis or index outside of the tensor's rank or extent."""


class AttributeValueError(NovaError, ValueError):
    """A keyword of an op has a value that means nothing (an unknown reduction, a negative size)."""


class UnknownKeywordError(NovaError, TypeError):
    """A keyword that the function does not have."""


class OptionTypeError(NovaError, TypeError):
    """An argument of a public function has a type that the function does not take."""


class SealedAttributeError(NovaError, AttributeError):
    """An attribute was assigned that nothing reads, or that is fixed when the object is made."""


class UnknownOpError(NovaError, LookupError):
    """A name that is not in the op table."""


class UnknownNameError(NovaError, AttributeError):
    """A name that `nova`, one of its modules or a `Tensor` does not have."""


class GradientError(NovaError):
    """A gradient was asked for that does not exist: an op without vjp, a non-scalar loss."""


class KernelError(NovaError, ValueError):
    """A custom op that Nova cannot compile: its loops, its MLIR text, or its type rule.

    `where` is the line of the user's kernel.
    """


class GraphError(NovaError):
    """A graph that cannot be compiled: a cycle, or a tensor that belongs to another program."""


class SymbolicSizeError(NovaError, TypeError):
    """A size that is known only at run time was used where the program needs a number."""


class ConcreteValueError(NovaError, TypeError):
    """A Python number or branch was asked of a tensor that has no value yet (inside a trace)."""


class ItemAssignmentError(NovaError, TypeError):
    """An element of a tensor was assigned: tensors are values, and ops return new ones."""


class CarryError(NovaError, TypeError):
    """The body of a loop returns a carry with another structure, shape or dtype than it takes."""


class BranchError(NovaError, TypeError):
    """The branches of `cond` or `switch` return different structures, shapes or dtypes."""


class CallError(NovaError, TypeError):
    """A program that a graph cannot call: it updates its params, or has no code or graph for it."""


class ControlFlowError(NovaError, TypeError):
    """Control flow with an invalid condition, index, bound, length or function."""


# --- models -------------------------------------------------------------------------------------


class ModuleError(NovaError, TypeError):
    """A module that cannot work: no forward, parts in a plain list, or it contains itself."""


class StateAssignedError(NovaError, RuntimeError):
    """An attribute of a module is assigned while a function that uses it is traced.

    The code of a traced function runs once, so later runs would not assign it again.
    """


class StateDictError(NovaError, ValueError):
    """A state dict that does not fit the model: names, shapes or types differ."""


# --- training -----------------------------------------------------------------------------------


class DataError(NovaError, ValueError):
    """Arrays that cannot be made into batches: their rows differ, or there are none."""


class TrainingError(NovaError, ArithmeticError):
    """Training that cannot go on: the loss is NaN or infinite, or no epoch is left.

    `history` is a `nova.train.History` of the steps until then.
    """

    history: object = None


class TrainingInterrupted(NovaError, KeyboardInterrupt):
    """Ctrl-C during `nova.fit`: the step was finished, and a checkpoint written where one is asked.

    `history` is a `nova.train.History` of the steps until then.
    """

    history: object = None


# --- plan ---------------------------------------------------------------------------------------


class PlanSyntaxError(NovaError, ValueError):
    """Plan text that does not parse; `where` is file:line."""


class SignatureError(NovaError, TypeError):
    """Base: the arguments of a run do not match the compiled signature."""


class ArgumentCountError(SignatureError):
    """Too few or too many arguments."""


class ArgumentShapeError(SignatureError):
    """An argument has another shape than the program was compiled for."""


class ArgumentDTypeError(SignatureError):
    """An argument has another element type than the program was compiled for."""


class ArgumentTypeError(SignatureError):
    """An argument that is not an array."""


class ArgumentNameError(SignatureError):
    """An argument was given by a name that the program does not have, or twice."""


class DeviceError(SignatureError):
    """Arguments on different devices, or on one that the program cannot reach."""


class OutputError(SignatureError):
    """An `out=` array that cannot take the result: read-only, wrong shape, type or layout."""


class DonationError(SignatureError):
    """A donated parameter that cannot be updated in place: read-only, strided or aliased."""


# --- running ------------------------------------------------------------------------------------


class RunError(NovaError, RuntimeError):
    """A run that could not start: no memory or threads, or tables that do not fit the call."""


class RunMemoryError(RunError, MemoryError):
    """The system has no memory for the workspace or the results of a run."""


class TaskError(NovaError, RuntimeError):
    """A kernel reported an error, which ended the run; it says kernel, tiles and user's line."""


class RunTimeoutError(NovaError, TimeoutError):
    """A run took longer than its `timeout=`: stopped between two tasks; a device goes on."""


class RunCancelled(NovaError, RuntimeError):
    """A submitted run was cancelled, or one before it in its stream did not succeed."""


class RunInterrupted(NovaError, KeyboardInterrupt):
    """Ctrl-C during a run: stopped between two tasks; it says which ones were running."""


class StalledError(NovaError, RuntimeError):
    """A run in which tasks are left that nothing will ever make ready: a broken task graph."""


class ResultTimeoutError(NovaError, TimeoutError):
    """`result(timeout=)` or `synchronize(timeout=)` came back first; the run goes on."""


class ArrayInUseError(NovaError, RuntimeError):
    """An array that a submitted run still uses, where this run or that one writes it."""


class SubmitError(NovaError, RuntimeError):
    """A run was submitted while the interpreter exits."""


# --- devices ------------------------------------------------------------------------------------


class DriverMissingError(NovaError, RuntimeError):
    """A GPU was asked for on a machine that has no driver for it, or no GPU of that number."""


class DeviceArchitectureError(NovaError, RuntimeError):
    """No code in a file runs on the GPU that is there."""


class DeviceMemoryError(NovaError, MemoryError):
    """A device has no memory left for a program, an array or a run."""


class DeviceFaultError(NovaError, RuntimeError):
    """A kernel broke a rule of the GPU, such as a bad address; its context is lost for good.

    Every later use of that device in this process raises it too; the CPU goes on working.
    """


class DeviceCallError(NovaError, RuntimeError):
    """The driver refused a call, and the device can still be used."""


# --- compiling ----------------------------------------------------------------------------------


class MissingPackageError(NovaError, ImportError):
    """A package that this call needs is not installed, or broken: the compiler's, or matplotlib."""


class TargetError(NovaError, ValueError):
    """A target string that names nothing Nova can compile for."""


class MLIRSyntaxError(NovaError, ValueError):
    """MLIR text that does not parse or verify; `where` is file:line:col."""


class ImportedProgramError(NovaError, ValueError):
    """A program in MLIR that Nova cannot take: its types, its signature, or what it is written in.

    `where` is the place of the op.
    """


class SymbolicImportError(ImportedProgramError):
    """A program in MLIR with `?` sizes that cannot have symbolic ones; `where` is the op."""


class UnsupportedOpError(NovaError):
    """A program in MLIR uses an op that Nova has no code for; `where` is the place of the op."""


class DataDependentShapeError(UnsupportedOpError):
    """The shape of a result of an ONNX node depends on values of a run.

    `results` names the results of the node, if it is one of the model's own graph.
    """

    results: tuple[str, ...] = ()


class OnnxError(NovaError, ValueError):
    """An ONNX model that is damaged, or contradicts the ONNX specification."""


class OnnxValueError(NovaError, ValueError):
    """A value that decides shapes of an ONNX model is not known at import.

    `names` are the inputs of the model that it is computed from.
    """

    def __init__(self, what: str, *, names: tuple[str, ...] = (), **more: str | None):
        super().__init__(what, **more)
        self.names = names


class PretrainedError(NovaError, ValueError):
    """A model folder or GGUF file that Nova cannot build: its architecture, an option, a weight."""


class EntryError(NovaError, LookupError):
    """A program in MLIR has no such function to start from."""


class PassError(NovaError):
    """A pass failed, or was given a module it does not handle."""


class PipelineError(NovaError, ValueError):
    """A pass pipeline that names an unknown pass or option, or does not parse."""


class UnknownStageError(NovaError, KeyError):
    """A stage that the program has no text of."""

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class LoweringError(NovaError):
    """An op that reached a stage which has no rule for it."""


class PersistentLaunchError(LoweringError):
    """A program with launch="persistent" has a kernel that cannot be tasks of a resident kernel."""


class ScheduleError(NovaError, ValueError):
    """`nova.schedule` of a kernel has a choice that does not exist or that cannot be followed."""


class WorkspaceError(NovaError, MemoryError):
    """`max_workspace=` allows less scratch memory than the program needs; the least is named."""

    least: int = 0  # bytes


class CodegenError(NovaError):
    """LLVM refused the module, or the module holds what LLVM would abort on."""


class SandboxError(CodegenError, RuntimeError):
    """A text of unknown origin ended the child process that compiles it, or broke a stage's rules.

    The message names the stage, says how the process ended (a signal, no memory, the time limit),
    and has the last lines that it wrote to stderr. The caller's process goes on.
    """


class CompileMemoryError(NovaError, MemoryError):
    """A compile was not begun, as the limit on address space leaves too little for it."""


class PtxasError(CodegenError):
    """`ptxas` refuses the code of a file, or kernels spill; or cubins are asked for without it."""


class DumpError(NovaError, OSError):
    """The folder of NOVA_DUMP or --dump-stages cannot be written."""


class CompileInterrupted(NovaError, KeyboardInterrupt):
    """Ctrl-C during a compile: nothing was cached, the process is as before."""


# --- the simulated GPU ---------------------------------------------------------------------------


class PtxError(NovaError, ValueError):
    """PTX that cannot be used: not understood, or with an instruction that is not known.

    `line` is that of the PTX, from 1.
    """

    def __init__(
        self,
        what: str,
        *,
        line: int | None = None,
        where: str | None = None,
        hint: str | None = None,
    ):
        self.line = line
        if where is None and line is not None:
            where = f"line {line} of the PTX"
        super().__init__(what, where=where, hint=hint)


class SimulationError(NovaError, RuntimeError):
    """A kernel on the simulated GPU did what it may not: see `fault`, `nova.gpusim.Fault`."""

    fault: object = None


# --- checking -----------------------------------------------------------------------------------


class CheckError(NovaError, ArithmeticError):
    """NOVA_CHECK=1: compiled code, or a gradient rule, differs from the numpy oracle.

    `finding` says what was found; see `nova.debug.Finding`.
    """

    finding: object = None


class IndexRangeError(NovaError, IndexError):
    """A checked run has an index that is outside of its axis; other runs clamp it."""

    finding: object = None


class NonFiniteError(NovaError, FloatingPointError):
    """NOVA_CHECK=nan: a step gave the first NaN, or an infinity from finite numbers.

    `finding` says what was found; see `nova.debug.Finding`.
    """

    finding: object = None


class GradcheckError(NovaError, ArithmeticError):
    """`nova.gradcheck`: a gradient is not the slope of its function.

    `report` has every argument; see `nova.debug.GradcheckReport`.
    """

    report: object = None


class MinimizeError(NovaError, ValueError):
    """`nova.debug.minimize` was given a program that does not fail."""


# --- files --------------------------------------------------------------------------------------


class ArtifactError(NovaError):
    """A file that is not a Nova artifact, is damaged, or does not fit this machine."""


class WeightsError(NovaError, ValueError):
    """Values of params that a save or a run needs: missing, or not those of the program."""


class MissingFileError(
    ArtifactError, ImportedProgramError, OnnxError, PretrainedError, WeightsError, FileNotFoundError
):
    """A file that is to be read does not exist.

    An error of every loader, and a FileNotFoundError with errno and filename; `where` is the path.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None):
        super().__init__(what, where=where, hint=hint)
        self.errno, self.strerror, self.filename = ENOENT, strerror(ENOENT), where

    def __str__(self) -> str:
        return str(self.args[0])


def unreadable(
    error_class: type[NovaError], error: OSError, failure: str, path: str, hint: str | None = None
) -> NovaError:
    """The error of a loader whose file cannot be read; the message adds the system's reason."""
    chosen = MissingFileError if isinstance(error, FileNotFoundError) else error_class
    return chosen(f"{failure}: {error.strerror}", where=path, hint=hint)


class TrustError(NovaError):
    """A key that cannot be used, or is missing: unreadable, of another kind, no `cryptography`."""


class CheckpointError(NovaError):
    """A checkpoint that cannot be continued from: damaged, of other training, or not writable."""


class ArrayFileError(NovaError, ValueError):
    """A .npy file that cannot be used: not there, of another format, or with Python objects."""


class TraceError(NovaError):
    """A trace that cannot be written where it should go, or that is entered twice."""


class CacheKeyError(NovaError, LookupError):
    """The beginning of a cache key that no entry has, or several."""


class CacheFolderError(NovaError):
    """`nova cache` was asked about a folder that Nova does not use, e.g. as others may write it."""


class LostWriteError(NovaError, ValueError):
    """A view of a parameter's array was written to after a step took the values to a device."""


class BroadcastWarning(UserWarning):
    """A loss was given an input and a target of different shapes, and compares their broadcast."""


class PrecisionWarning(UserWarning):
    """A training step was given f64 data, and its model is of a narrower type: it was cast."""


class FallbackWarning(UserWarning):
    """torch computes an op of a compiled graph, because Nova does not."""


class CacheWarning(UserWarning):
    """The disk cache cannot be used or held a damaged entry; compilation goes on without it."""


class RecompileWarning(UserWarning):
    """No code in a file runs on this CPU; the program was compiled again from its text."""


# --- settings -----------------------------------------------------------------------------------


class KnobError(NovaError, ValueError):
    """A knob that does not exist, or a value that a knob cannot take."""


class KnobWarning(UserWarning):
    """A `NOVA_*` variable that is not a setting, but whose name is close to one."""
