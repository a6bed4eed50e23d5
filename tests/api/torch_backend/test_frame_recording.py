"""dynamo's record for profilers: left out of frames of Nova, kept in all others."""

import contextlib
import dis
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo import config  # noqa: E402

from nova.api.torch_backend.backend import nova_backend  # noqa: E402


@pytest.fixture
def frames():
    """The names that frames compiled during the test use."""
    torch._dynamo.reset()
    codes: list[set[str]] = []

    def hook(before: Any, after: Any) -> None:
        codes.append({str(i.argval) for i in dis.get_instructions(after)})

    handle = torch._dynamo.convert_frame.register_bytecode_hook(hook)
    before = config.record_runtime_overhead
    yield codes
    handle.remove()
    config.record_runtime_overhead = before
    torch._dynamo.reset()


def add(a, b):
    return a + b


def is_recorded(names: set[str]) -> bool:
    return "record_pregraph_bytecode_enter" in names


def run(backend: Any, grad: bool = False) -> None:
    a = torch.rand(8, requires_grad=grad)
    assert torch.equal(torch.compile(add, backend=backend)(a, a.detach()), add(a, a.detach()))


@pytest.mark.parametrize("grad", [False, True])
def test_frames_of_nova_have_no_record_and_the_setting_returns(frames, grad):
    config.record_runtime_overhead = True
    run("nova", grad)
    assert len(frames) == 1 and not is_recorded(frames[0])
    assert config.record_runtime_overhead is True
    torch._dynamo.reset()
    run("eager")
    assert is_recorded(frames[1])


def test_callbacks_of_others_run(frames):
    config.record_runtime_overhead = True
    calls = []

    def backend(module: Any, examples: Any) -> Any:
        compiled = nova_backend(module, examples)
        torch._dynamo.callback.on_compile_end(calls.append)  # after that of Nova
        return compiled

    run(backend)
    assert len(calls) == 1 and config.record_runtime_overhead is True


def test_a_setting_of_the_user_stays_off(frames):
    config.record_runtime_overhead = False
    run("nova")
    assert config.record_runtime_overhead is False


def test_a_profiler_keeps_the_record(frames):
    config.record_runtime_overhead = True
    with torch.profiler.profile() as profile:
        run("nova")
    assert is_recorded(frames[0])
    assert any(event.name == "Pregraph bytecode" for event in profile.events())


def test_a_failed_compile_returns_the_setting(frames):
    config.record_runtime_overhead = True
    with contextlib.suppress(Exception):
        torch.compile(add, backend="nova", options={"fallback": "no such"})(
            torch.rand(2), torch.rand(2)
        )
    with contextlib.suppress(Exception):
        torch.compile(lambda x: torch.linalg.det(x), backend="nova", options={"fallback": False})(
            torch.eye(2)
        )
    assert config.record_runtime_overhead is True
