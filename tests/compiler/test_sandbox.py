"""The child process that texts of unknown origin are compiled in: it may die."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.compiler import sandbox, sandbox_wire
from nova.compiler.sandbox import close_children, run_sandboxed
from nova.compiler.sandbox_child import report, virtual_size
from nova.core.log import log
from nova.core.settings import Settings
from nova.errors import SandboxError, ShapeError, WorkspaceError

ROOT = Path(__file__).parents[2]
PROGRAM = """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.tanh %x : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""

# --- what the child of these tests runs ----------------------------------------------------------

_FILLED: list[bytearray] = []


def die(number: int) -> None:
    report("begin", "loops")
    os.write(2, b"first line\nlast words\n")
    os.kill(os.getpid(), number)


def sleep() -> None:
    time.sleep(60)


def spin() -> None:
    while True:
        pass


def fill_memory() -> int:
    return len(bytearray(64 << 30))


def fail(kind: str) -> None:
    if kind == "workspace":
        raise WorkspaceError("too much", where="-:3:4", hint="less")
    if kind == "shape":
        raise ShapeError("no")
    raise KeyError("missing")


def warn() -> str:
    warnings.warn("careful", UserWarning, stacklevel=1)
    print("printed")
    return "done"


def knob() -> int:
    return int(nova.knobs.threads)


def process() -> int:
    return os.getpid()


def reach_the_limit() -> int:
    """Use MLIR, and leave no address space for another context."""
    from nova.ir.context import make_context

    make_context()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (virtual_size(), hard))
    with suppress(MemoryError):
        while True:  # also of what was freed
            _FILLED.append(bytearray(1 << 14))
    del _FILLED[-32:]  # for the answer
    return os.getpid()


def has_prepared() -> list[int]:
    from nova.ir import context

    return [os.getpid(), len(context._PREPARED)]


def surroundings() -> list[str | None]:
    return [nova.__file__, os.getcwd(), os.environ.get("NOVA_OF_A_TEST"), *sys.path]


def settings() -> list[object]:
    """The knobs, also as threads see them that have no overrides."""
    return [nova.knobs.get("tile_work"), nova.knobs.process_value("tile_work"), nova.knobs.spills]


def say() -> None:
    for topic in ("compile", "tune"):
        log(topic, f"first\nof {topic}")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find this file."""
    close_children()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def call(name: str, *args: object, **more: object) -> object:
    return run_sandboxed(f"test_sandbox:{name}", *args, where="x.mlir", **more)  # type: ignore


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_child_that_dies(number: signal.Signals) -> None:
    with pytest.raises(SandboxError) as caught:
        call("die", int(number))
    assert caught.value.where == "x.mlir"
    assert f"stage loops: the compiler crashed ({number.name})" in caught.value.what
    assert "first line\nlast words" in caught.value.what
    assert call("process") != os.getpid()  # the next call has another child


def test_a_child_that_dies_between_calls() -> None:
    """The next call is not to blame for it."""
    first = call("process")
    assert isinstance(first, int)
    os.kill(first, signal.SIGKILL)
    (child,) = sandbox._idle
    child.process.wait(timeout=30)
    assert call("process") not in (first, os.getpid())


def test_a_call_that_reaches_the_limit_on_memory() -> None:
    """The child prepares for the next call with the memory of a new one."""
    first = call("reach_the_limit")
    assert call("has_prepared") == [first, 1]


@pytest.mark.parametrize("name", ["sleep", "spin"])
def test_a_child_that_takes_too_long(name: str) -> None:
    with pytest.raises(SandboxError, match=r"stage parse: .* took more than 0.5 seconds"):
        call(name, seconds=0.5)


def test_a_child_without_memory() -> None:
    with pytest.raises(SandboxError, match="more memory than it may take"):
        call("fill_memory")


def test_errors_come_back_as_they_are() -> None:
    with pytest.raises(WorkspaceError) as caught:
        call("fail", "workspace")
    assert (caught.value.what, caught.value.where) == ("too much", "x.mlir:3:4")
    assert caught.value.hint == "less"
    with pytest.raises(ShapeError, match=r"^no$"):
        call("fail", "shape")
    with pytest.raises(
        SandboxError, match=r"does not take the text: KeyError: 'missing'"
    ) as second:
        call("fail", "other")
    assert "test_sandbox.py" in str(second.value.hint)


def test_warnings_and_prints_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="careful"):
        assert call("warn") == "done"
    assert capsys.readouterr().err == "printed\n"


def test_the_child_is_used_again_and_has_the_knobs() -> None:
    first = call("process")
    with nova.knobs.override(threads=3):
        assert call("knob") == 3
    assert call("process") == first != os.getpid()


def test_the_child_has_the_surroundings_of_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that changed after it was started."""
    first = call("process")
    before = call("surroundings")
    assert isinstance(before, list) and before[:3] == [nova.__file__, os.getcwd(), None]
    monkeypatch.setenv("NOVA_OF_A_TEST", "\udcff=é")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    expected = [nova.__file__, str(tmp_path), "\udcff=é", *filter(None, sys.path)]
    assert call("surroundings") == expected
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert call("surroundings") == before
    assert call("process") == first


def test_the_child_has_assigned_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = call("settings")
    monkeypatch.setitem(nova.knobs._assigned, "tile_work", 77)
    assert call("settings") == [77, 77, ()]
    with nova.knobs.override(tile_work=78, spills="a,b"):
        assert call("settings") == [78, 77, ("a", "b")]
    assert call("settings") == [77, 77, ()]
    monkeypatch.undo()
    assert call("settings") == usual


def test_log_lines_of_the_child_are_those_of_the_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with nova.knobs.override(log="compile"):
        call("say")
    assert capsys.readouterr().err == "[compile] first\n[compile] of compile\n"
    call("say")
    assert capsys.readouterr().err == ""


OTHER_COPY = """
import importlib.util, sys
class Other:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "nova" or name.startswith("nova."):
            raise ImportError("another copy of Nova answers for " + name)
        return None
sys.meta_path.insert(0, Other)
"""


def test_the_child_has_the_nova_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever finder an installation has put before the others, and whatever is on the path."""
    (tmp_path / "sitecustomize.py").write_text(OTHER_COPY)
    (tmp_path / "nova").mkdir()
    (tmp_path / "nova/__init__.py").write_text("raise ImportError('the wrong copy')")
    close_children()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    result = call("surroundings")
    assert isinstance(result, list) and result[0] == nova.__file__
    close_children()


def test_the_program_of_a_file_goes_through_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is not Nova's own: anybody may have written the file."""
    x = nova.tensor(np.ones((4, 4), np.float32), name="x")
    private = nova.compile(nova.tanh(x @ x), inputs=[x])
    private.save(tmp_path / "p.nova")
    requested: list[str] = []
    usual = sandbox._Child.call

    def watch(child: sandbox._Child, asked_for: sandbox._Call) -> object:
        requested.append(asked_for.request[0])
        return usual(child, asked_for)

    monkeypatch.setattr(sandbox._Child, "call", watch)
    actual = nova.translate(private, targets="x86_64").data
    assert requested == []
    assert nova.translate(nova.load(tmp_path / "p.nova"), targets="x86_64").data
    assert requested == ["nova.api.translate.session:run_request_in_child"] and actual


def test_threads_have_a_child_each() -> None:
    result: list[object] = []
    threads = [threading.Thread(target=lambda: result.append(call("process"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 3 and os.getpid() not in result


# Another test of this process may have loaded jax, which warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_fork_starts_its_own_child() -> None:
    first = call("process")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if call("process") != first else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert call("process") == first


VALUES = [None, True, -(1 << 70), 1.5, float("inf"), "é\ud800", b"\0\xff", [1, (2, {"a": {3}})]]


@pytest.mark.parametrize("value", [*VALUES, frozenset({"x"}), Settings()], ids=repr)
def test_values_on_the_wire(value: object) -> None:
    assert sandbox_wire.load(sandbox_wire.dump(value)) == value


def test_what_a_child_may_not_say() -> None:
    """Reading its answer runs no code, whatever it is."""
    data = sandbox_wire.dump(Settings())
    for wrong in (b"os:system", b"nova.errors:NovaError", b"nova.compiler.sandbox:run_sandboxed"):
        forged = data.replace(b"nova.core.settings:Settings", wrong)
        size = sandbox_wire.FRAME.pack(len(b"nova.core.settings:Settings"))
        forged = forged.replace(size, sandbox_wire.FRAME.pack(len(wrong)), 1)
        with pytest.raises(SandboxError, match="cannot be read"):
            sandbox_wire.load(forged)
    for cut in range(len(data)):
        with pytest.raises(SandboxError):
            sandbox_wire.load(data[:cut])
    with pytest.raises(TypeError):
        sandbox_wire.dump(object())


def test_no_process_is_a_clean_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(SandboxError, match=r"no process to compile the text in: .*unavailable"):
        nova.translate(PROGRAM)


# --- the texts that ended the process ------------------------------------------------------------


def test_a_name_at_a_later_stage() -> None:
    """`--start-from linalg` of a text of the nova dialect."""
    x = nova.tensor(np.ones((4, 4), np.float32), name="x")
    text = nova.compile(nova.tanh(x @ x), inputs=[x]).stages["nova"]
    assert "nova.name" in text
    for stage in ("linalg", "kernels", "buffers", "loops"):
        with pytest.raises(nova.NovaError):
            nova.translate(text, start_from=stage)


HOSTILE = {
    "result number": PROGRAM.replace("return %0 ", "return %0#4294967295 "),
    "huge dimension": PROGRAM.replace("4x4", "9223372036854775807x4"),
    "huge array": PROGRAM.replace("4x4", "4611686018427387904"),
    "iterator types": """#m = affine_map<(i) -> (i)>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = [0]}
    ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}
""",
    "dimension numbers": """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [9223372036854775807] x [0]
    : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
""",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program(name: str) -> None:
    with pytest.raises(nova.NovaError) as caught:
        nova.translate(HOSTILE[name])
    assert caught.value.where is not None


def test_a_shuffle_mask_out_of_range() -> None:
    text = """llvm.func @k(%p: !llvm.ptr) {
  %0 = llvm.load %p : !llvm.ptr -> vector<4xf32>
  %1 = llvm.shufflevector %0, %0 [0, 99, -7, 2147483647] : vector<4xf32>
  llvm.store %1, %p : vector<4xf32>, !llvm.ptr
  llvm.return
}
"""
    with pytest.raises(nova.NovaError):
        nova.translate(text, start_from="llvm", emit="obj", targets="x86_64")


# --- limits that the caller already has ----------------------------------------------------------


@pytest.mark.parametrize("gigabytes", [3, 7])
def test_a_hard_limit_on_memory_is_kept(gigabytes: int, tmp_path: Path) -> None:
    path = tmp_path / "p.mlir"
    path.write_text(PROGRAM)
    command = f"ulimit -v {gigabytes << 20}; exec {sys.executable} -m nova.tools.nova_translate"
    completed = subprocess.run(
        ["bash", "-c", f"{command} {path} -o {tmp_path / 'p.nova'}"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert completed.returncode == 0, completed.stderr
    x = np.ones((4, 4), "f4")
    np.testing.assert_allclose(nova.load(tmp_path / "p.nova").run([x]), np.tanh(x), rtol=1e-5)


LOW = """
import resource, sys, numpy as np, nova
from nova.errors import CompileMemoryError
x = nova.tensor(np.ones((64, 64), np.float32), name="x")
ready = nova.compile(nova.relu(x @ x), inputs=[x])
nova.knobs.threads, nova.knobs.cache = 8, False
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
np.testing.assert_array_equal(ready.run([np.ones((64, 64), "f4")]), np.full((64, 64), 64, "f4"))
try:
    got = nova.compile(nova.tanh(x @ x) + 1, inputs=[x]).run([np.ones((64, 64), "f4")])
    np.testing.assert_allclose(got, 2.0, rtol=1e-5)
    print("compiled")
except CompileMemoryError as error:
    print("refused", error)
"""


@pytest.mark.parametrize(("room", "outcome"), [(160, "compiled"), (16, "refused")])
def test_little_address_space(room: int, outcome: str) -> None:
    """Programs run, and a compile goes on or is refused: nothing ends the process."""
    completed = subprocess.run(
        [sys.executable, "-c", LOW, str(room)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(outcome), completed.stdout


def test_no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile goes on serially."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    x = nova.tensor(np.ones((8, 8), np.float32), name="x")
    with nova.knobs.override(threads=4, cache=False, progress="on"):
        program = nova.compile(nova.exp(x @ x) - 3.25, inputs=[x])
    arguments = np.eye(8, dtype="f4")
    np.testing.assert_allclose(program.run([arguments]), np.exp(arguments) - 3.25, rtol=1e-5)


def test_close_children_leaves_none() -> None:
    call("process")
    assert sandbox._idle
    close_children()
    assert not sandbox._idle
