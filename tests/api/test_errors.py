"""One mistake, one class: what each error says, where it points, and that nothing was changed."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import nova
from nova import errors
from nova.api.compile import cache_statistics
from nova.artifact.cache.locks import is_any_locked
from nova.codegen.common.overrides import parse_overrides
from nova.compiler import stages
from nova.compiler.cpu import backend
from nova.compiler.llvm.machine_code import check_text
from nova.gpusim import SimMemory, SimModule
from nova.graph.build import apply
from nova.graph.interpret import evaluate
from nova.ir import walk
from nova.ir.context import make_context, parse_module
from nova.ops import Op
from nova.ops.table import op
from nova.passes.base import UpstreamPass, run_pipeline, run_verified_once
from nova.plan import parse_plan

A = np.arange(6, dtype="f4").reshape(2, 3)
READ_ONLY = A.copy()
READ_ONLY.flags.writeable = False


def tensor():
    return nova.tensor(A, name="x")


def program():
    x = tensor()
    return nova.compile(x + 1, inputs=[x])


def step():
    w = tensor()
    return nova.compile([], params=[w], updates={w: w * 2})


MYSTERY = Op("mystery", "Has neither gradient nor numpy column.", infer=lambda ins, attrs: ins[0])


def mystery():
    return apply(MYSTERY, [tensor()], {})


def cycle():
    x = nova.exp(tensor())
    y = x + 1
    x.inputs = (y,)
    return y


class OnDevice:
    def __dlpack__(self, **options):
        raise AssertionError

    def __dlpack_device__(self):
        return (2, 0)


FAILING_MODULE = """func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "tosa.abs"(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
HERE = "the line of the lambda"

# (class, what is done wrong, what the message has, where it points)
FOREIGN = "aarch64" if os.uname().machine == "x86_64" else "x86_64"

FOREIGN_CALL = 'custom_call {call_target_name = "mystery"}'
MISTAKES = [
    (errors.ShapeError, lambda: tensor() + np.ones(4), r"add: .*\(2, 3\).*\(4,\)", HERE),
    (errors.ShapeError, lambda: nova.split(tensor(), 4), "split: axis 0 of size 2", HERE),
    (errors.ShapeError, lambda: nova.concat([tensor(), A.T]), "join", HERE),
    (errors.DTypeError, lambda: nova.tensor(np.ones(2, "m8[s]")), "m8", HERE),
    (errors.DTypeError, lambda: tensor()[np.ones(3)], "f64 tensor is not an index", HERE),
    (errors.AxisError, lambda: tensor().sum(axis=2), "sum: axis 2 .* rank 2", HERE),
    (errors.AxisError, lambda: tensor().transpose((0, 7)), "axis 7", HERE),
    (errors.AxisError, lambda: tensor()[0, 5], "5 is out of range for axis 1 of size 3", HERE),
    (errors.AttributeValueError, lambda: tensor()[::0], "a step of 0", HERE),
    (errors.AttributeValueError, lambda: nova.jit(abs, run_mode="fast"), "'fast'", HERE),
    (errors.UnknownKeywordError, lambda: tensor().sum(axes=0), "did you mean 'axis'", HERE),
    (errors.UnknownKeywordError, lambda: tensor().squeeze(axes=0), "squeeze: has no", HERE),
    (errors.UnknownKeywordError, lambda: nova.compile(tensor(), input=[]), "'inputs'", HERE),
    (errors.UnknownKeywordError, lambda: program().run([A], outs=A), "'out'", HERE),
    (errors.UnknownOpError, lambda: op("sofmax"), "did you mean softmax", None),
    (errors.UnknownNameError, lambda: nova.sofmax, "did you mean 'softmax'", None),
    (errors.GradientError, lambda: nova.backward(mystery().sum()), "no leaf", "test_errors.py"),
    (errors.GradientError, lambda: nova.grad(lambda x: mystery_of(x))(A), "'mystery'", "test_err"),
    (errors.GradientError, lambda: nova.grad(nova.exp)(A), r"one number.*\(2, 3\)", HERE),
    (errors.GradientError, lambda: nova.tensor([1], requires_grad=True), "i64 tensor", HERE),
    (errors.GraphError, lambda: nova.compile(cycle()), "cycle", "test_errors.py"),
    (errors.GraphError, lambda: nova.compile(nova.graph.placeholder((2,), "f4")), "other", HERE),
    (errors.GraphError, lambda: nova.compile(A), "output 0 is a ndarray", HERE),
    (errors.GraphError, lambda: nova.compile([], inputs=tensor()), "not a list", HERE),
    (errors.GraphError, lambda: nova.compile([], inputs=[tensor() + 1]), "result of add", HERE),
    (errors.ConcreteValueError, lambda: tensor().item(), "item", HERE),
    (errors.ConcreteValueError, lambda: nova.graph.placeholder((2,), "f4").numpy(), "yet", HERE),
    (errors.ConcreteValueError, lambda: nova.jit(float)(A[0, 0]), r"float\(\) of[^$]*itself", HERE),
    (errors.ItemAssignmentError, lambda: tensor().__setitem__(0, 1), "nova.where", HERE),
    (errors.UnknownStageError, lambda: program().stages["lnalg"], "did you mean linalg", HERE),
    (errors.ModuleError, lambda: nova.nn.Module()(A), "Module has no forward", HERE),
    (errors.ModuleError, lambda: nova.nn.Sequential(abs), "abs> is not a module", HERE),
    (errors.StateDictError, lambda: linear().load_state_dict({}), "missing: weight", HERE),
    (errors.StateDictError, lambda: linear().load_state_dict({"weight": A.T}), "(3, 2)", HERE),
    (errors.DataError, lambda: nova.data.Batches(A, A.T, batch_size=1), "array 1 has 3 rows", HERE),
    (errors.PlanSyntaxError, lambda: parse_plan("plan {\n  x\n}", "p.txt"), "read 'x'", "p.txt:2"),
    (
        errors.ArgumentCountError,
        lambda: program()(A, A),
        "2 arguments given, the prog",
        HERE,
    ),
    (errors.ArgumentCountError, lambda: nova.exp(), "exp: takes", HERE),
    (errors.ArgumentCountError, lambda: tensor().swapaxes(1), "swapaxes: missing", HERE),
    (errors.ArgumentShapeError, lambda: program()(A.T), r"\(3, 2\)", HERE),
    (errors.ArgumentDTypeError, lambda: program()(A.astype("f8")), "float64", HERE),
    (errors.ArgumentTypeError, lambda: program()("text"), "'x' is a str", HERE),
    (errors.ArgumentTypeError, lambda: nova.exp("text"), "exp: operand 0 is a str", HERE),
    (errors.ArgumentTypeError, lambda: nova.tensor([[1], [2, 3]]), "not an array", HERE),
    (errors.OptionTypeError, lambda: nova.translate(3), r"translate\(\): source is 3", HERE),
    (errors.DeviceError, lambda: program()(OnDevice()), "cuda:0", HERE),
    (errors.DeviceError, lambda: nova.tensor(OnDevice()), "cuda:0", HERE),
    (errors.DeviceError, lambda: nova.load("x.nova", device="tpu"), "'tpu'", HERE),
    (errors.OutputError, lambda: program()(A, out=READ_ONLY), "read-only", HERE),
    (errors.DonationError, lambda: step()(READ_ONLY), "'x' is updated .* read-only", HERE),
    (errors.TargetError, lambda: nova.compile(tensor(), target="cpuu"), "'cpu'", HERE),
    (errors.TargetError, lambda: nova.compile(tensor(), target="cuda:sm_20"), "sm_80", HERE),
    (errors.TargetError, lambda: nova.compile(tensor(), target=FOREIGN), "runs here", HERE),
    (errors.MLIRSyntaxError, lambda: parse("func.func @f(\n"), "expected", "m.mlir:1:14"),
    (errors.MissingFileError, lambda: nova.translate("gone.mlir"), "cannot read", "gone.mlir"),
    (errors.ImportedProgramError, lambda: imported("<2xi4>", "abs"), "%arg0|'arg0'", "<text>:1:"),
    (errors.UnsupportedOpError, lambda: imported("<2xf32>", FOREIGN_CALL), "@mystery", "<text>:2:"),
    (errors.EntryError, lambda: imported("<2xf32>", "abs", entry="f"), "it has @main", "<text>"),
    (errors.PassError, lambda: bufferize(FAILING_MODULE), "one-shot-bufferize", ":2:8"),
    (errors.PipelineError, lambda: run_pipeline(parse(""), [UpstreamPass("csee")]), "csee", None),
    (errors.LoweringError, lambda: evaluate([mystery()]), "'mystery' has no numpy", "test_errors"),
    (errors.ScheduleError, lambda: parse_overrides("nr=2"), "a schedule has no 'nr'", None),
    (errors.CallError, lambda: nova.call(abs, A), "what nova.compile", "test_errors.py"),
    (errors.WorkspaceError, lambda: cramped(), "max_workspace=.* is the least", "test_errors.py"),
    (errors.CodegenError, lambda: check_text("declare float @sinf(float)\n"), "sinf", None),
    (errors.PtxError, lambda: SimModule("int main;"), "no .target", None),
    (errors.SimulationError, lambda: SimMemory().free(8), "no allocation at 0x8", None),
    (errors.ArtifactError, lambda: nova.load(__file__), "", __file__),
    (errors.WeightsError, lambda: program().save("x", params=[A]), "not where to put", HERE),
    (errors.TrustError, lambda: program().save("x", key="k.pem"), "cannot read the key", "k.pem"),
    (errors.KnobError, lambda: nova.knobs.override(cahce=False).__enter__(), "did you mean", None),
]


def cramped():
    x = tensor()
    return nova.compile(nova.softmax(x @ A.T, axis=0) @ A, inputs=[x], max_workspace=0)


def linear():
    return nova.nn.Linear(3, 2)


def mystery_of(x):
    return apply(MYSTERY, [x], {}).sum()


def parse(text):
    return parse_module(text, "m.mlir", make_context())


def imported(shape, op, **options):
    op, _, attributes = op.partition(" ")
    type_ = f"tensor{shape}"
    text = f"""func.func @main(%a: {type_}) -> {type_} {{
  %0 = "stablehlo.{op}"(%a) {attributes} : ({type_}) -> {type_}
  return %0 : {type_}
}}"""
    return nova.translate(text, **options)


def bufferize(text):
    run_pipeline(parse(text), [UpstreamPass("one-shot-bufferize")])


@pytest.mark.parametrize(
    ("error", "mistake", "message", "where"),
    MISTAKES,
    ids=[f"{case[0].__name__}-{i}" for i, case in enumerate(MISTAKES)],
)
def test_a_mistake_has_its_error(error, mistake, message, where):
    before, compiled = A.copy(), cache_statistics()["compiled"]
    with pytest.raises(error, match=f"(?s){message}") as caught:
        mistake()
    result = caught.value
    assert type(result) is error and isinstance(result, nova.NovaError)
    assert str(result).startswith(result.what)
    if where is HERE:
        assert result.where == f"{__file__}:{mistake.__code__.co_firstlineno}"
    elif where is not None:
        assert where in (result.where or str(result))
    if result.where:
        assert f"\n  at {result.where}" in str(result)
    if result.hint:
        assert f"\n  hint: {result.hint}" in str(result)
    np.testing.assert_array_equal(A, before)
    np.testing.assert_array_equal(READ_ONLY, before)
    assert cache_statistics()["compiled"] - compiled <= 1, "only the good program was compiled"


def test_every_class_has_a_mistake():
    classes = {
        c
        for _, c in inspect.getmembers(errors, inspect.isclass)
        if issubclass(c, BaseException) and c.__module__ == errors.__name__
    }
    bases = {errors.NovaError, errors.SignatureError}
    warnings_ = {errors.CacheWarning, errors.RecompileWarning, errors.PrecisionWarning}
    warnings_ |= {errors.KnobWarning}  # in tests/core/test_knobs.py
    warnings_ |= {errors.FallbackWarning}  # in tests/api/torch_backend
    warnings_ |= {errors.BroadcastWarning}  # in tests/graph/test_torch_traps.py
    # Below, in test_cache.py, tests/artifact, tests/debug, tests/fit and tests/tools.
    elsewhere = {errors.CompileInterrupted, errors.RunMemoryError, *warnings_}
    elsewhere |= {errors.CheckError, errors.NonFiniteError, errors.GradcheckError}
    elsewhere |= {errors.MinimizeError, errors.DumpError}
    elsewhere |= {errors.CheckpointError, errors.TrainingError, errors.TrainingInterrupted}
    elsewhere |= {errors.ArgumentNameError, errors.ArrayFileError}
    elsewhere |= {errors.CacheKeyError, errors.CacheFolderError, errors.TraceError}
    # In tests/api/test_jit_state.py and tests/train/test_step_state.py.
    elsewhere |= {errors.StateAssignedError, errors.SealedAttributeError}
    # In tests/runtime/test_submit.py.
    elsewhere |= {errors.RunError, errors.TaskError, errors.RunTimeoutError, errors.StalledError}
    elsewhere |= {errors.RunCancelled, errors.RunInterrupted, errors.ResultTimeoutError}
    elsewhere |= {errors.ArrayInUseError, errors.SubmitError}
    # In tests/compiler/test_ptxas.py and test_sandbox.py, and tests/api/test_first_start.py.
    elsewhere |= {errors.PtxasError, errors.SandboxError, errors.CompileMemoryError}
    elsewhere |= {errors.MissingPackageError}
    # In tests/artifact/test_artifact_devices.py and tests/devices.
    elsewhere |= {errors.DriverMissingError, errors.DeviceArchitectureError}
    elsewhere |= {errors.DeviceMemoryError, errors.DeviceFaultError, errors.DeviceCallError}
    # In tests/graph, tests/frontends/onnx_models and the tests of symbolic sizes.
    elsewhere |= {errors.CarryError, errors.BranchError, errors.ControlFlowError}
    elsewhere |= {errors.OnnxError, errors.OnnxValueError, errors.SymbolicSizeError}
    elsewhere |= {errors.DataDependentShapeError}
    # In tests/debug/test_checked_runs.py and tests/devices/persistent.
    elsewhere |= {errors.IndexRangeError, errors.PersistentLaunchError}
    elsewhere |= {errors.LostWriteError}  # in tests/train/test_device_writes.py
    # In tests/api/custom.
    elsewhere |= {errors.KernelError}
    # In tests/frontends/test_import_symbolic.py and tests/pretrained.
    elsewhere |= {errors.SymbolicImportError, errors.PretrainedError}
    assert {case[0] for case in MISTAKES} == classes - bases - elsewhere
    for c in classes:
        assert issubclass(c, UserWarning if c in warnings_ else errors.NovaError)
    for c in classes:
        assert c.__doc__


WITHOUT_MEMORY = """
import resource, numpy as np, nova
x = nova.tensor(np.ones(1, np.float32), name="x")
program = nova.compile(x.expand((1 << 28,)), inputs=[x])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
try:
    program(np.ones(1, np.float32))
except nova.errors.RunMemoryError as error:
    print("refused:", error)
"""


def test_a_run_without_memory():
    """A result of 1 GiB, where a limit leaves a quarter of that."""
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=120
    )
    assert completed.returncode == 0, completed.stderr
    assert f"refused: there is no memory for a result of {1 << 30} bytes" in completed.stdout


def test_gradient_error_points_at_the_op():
    x = nova.tensor(A, requires_grad=True)
    y = apply(MYSTERY, [x], {})
    with pytest.raises(errors.GradientError, match="op 'mystery' has no gradient") as caught:
        nova.backward(y.sum())
    assert caught.value.where == str(y.location) and "vjp column" in caught.value.hint
    assert x.grad is None


def test_a_located_error_keeps_its_place():
    error = errors.ShapeError("wrong", hint="do this")
    placed = error.located("a.py:1", "add: ")
    assert (placed.what, placed.where, placed.hint) == ("add: wrong", "a.py:1", "do this")
    assert placed.located("b.py:2") is placed


# --- Ctrl-C ---------------------------------------------------------------------------------------


def long_program(number):
    """Different for each number, and long to compile."""
    x = nova.tensor(np.ones((8, 16), "f4"), name="x")
    w = nova.tensor(np.ones((16, 8), "f4"), requires_grad=True, name="w")
    y = nova.gelu(nova.layer_norm(x @ w)) * float(number)
    return nova.compile(y.sum(), inputs=[x], params=[w], include_backward=True)


@pytest.mark.parametrize("moment", [0, 2, 3])
def test_ctrl_c_during_a_compile(tmp_path, monkeypatch, moment):
    """The signal comes before the stage of that number."""
    remaining = moment

    def interrupted(*args, **options):
        nonlocal remaining
        remaining -= 1
        if remaining == -1:
            signal.raise_signal(signal.SIGINT)
        return run_verified_once(*args, **options)

    for module in (stages, backend):
        monkeypatch.setattr(module, "run_verified_once", interrupted)
    folder = tmp_path / "cache"
    before = cache_statistics()["compiled"]
    with nova.knobs.override(cache_dir=folder):
        with pytest.raises(errors.CompileInterrupted, match="nothing was cached") as caught:
            long_program(moment)
        assert isinstance(caught.value, KeyboardInterrupt) and isinstance(
            caught.value, nova.NovaError
        )
        assert not list(folder.glob("*.nova")) and cache_statistics()["compiled"] == before
        assert not is_any_locked(folder)
        monkeypatch.undo()
        again = long_program(moment)
    assert again.origin == "compiled"
    assert np.isfinite(again(np.ones((8, 16), "f4"), np.ones((16, 8), "f4"))[0])


# An interrupt may also hit a callback of another library, which Python can only report.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_time():
    """Signals at other and other moments of a compile leave a working compiler behind."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = 0
    for number in range(15):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.004 * (number + 1))
            long_program(1000.5 + number)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted
    for number in (0, 7):
        assert np.isfinite(
            long_program(1000.5 + number)(np.ones((8, 16), "f4"), np.ones((16, 8), "f4"))[0]
        )


def test_ctrl_c_while_ops_are_listed():
    """MLIR makes a RuntimeError of what is raised in a callback of its own walk."""

    def interrupt(frame, event, arg):
        if event == "call" and frame.f_code.co_filename == walk.__file__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(errors.CompileInterrupted):
            long_program(77.5)
    finally:
        sys.setprofile(None)


def test_ctrl_c_while_another_thread_compiles():
    """The thread that was not interrupted goes on."""
    completed = []
    worker = threading.Thread(target=lambda: completed.append(long_program(123.5)))
    worker.start()
    with pytest.raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while worker.is_alive():
            time.sleep(0.001)
    worker.join()
    assert completed and completed[0].origin in ("compiled", "disk")


def test_warnings_are_user_warnings():
    with pytest.warns(UserWarning):
        warnings.warn("damaged", errors.CacheWarning, stacklevel=1)


def test_artifact_errors_name_the_file(tmp_path):
    path = tmp_path / "broken.nova"
    program().save(path)
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(errors.ArtifactError, match=r"broken\.nova"):
        nova.load(path)
    with pytest.raises(errors.ArtifactError, match=r"No such file[\s\S]*missing.nova"):
        nova.load(tmp_path / "missing.nova")
