"""The host half and the device half of a file: made at the same time, and always the same bytes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import nova
from nova.api.compiled import Compiled
from nova.compiler.cpu import backend as driver
from nova.compiler.gpu import backend as device
from nova.errors import CodegenError

PROGRAM = """func.func @main(%x: tensor<64x96xf32>, %w: tensor<96x32xf32>) -> tensor<64x32xf32> {
  %0 = "nova.matmul"(%x, %w) : (tensor<64x96xf32>, tensor<96x32xf32>) -> tensor<64x32xf32>
  %1 = "nova.tanh"(%0) : (tensor<64x32xf32>) -> tensor<64x32xf32>
  return %1 : tensor<64x32xf32>
}
"""
TARGETS = ("x86_64", "cuda:sm_80", "cuda:sm_90a")


def program() -> Compiled:
    """A program of Nova's own, which is translated in this process: its functions are replaced."""
    x = nova.tensor(np.ones((64, 96), "f4"), name="x")
    w = nova.tensor(np.ones((96, 32), "f4"), name="w")
    return nova.compile(nova.tanh(x @ w), inputs=[x, w])


def test_they_are_made_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device code is not there before objects are begun: each waits for the other here."""
    begun = threading.Event()
    compile_ptx, job = device.compile_ptx, driver.LlvmJob

    def ptx(*arguments: Any) -> str:
        assert begun.wait(60), "the host half waits for the device half"
        return compile_ptx(*arguments)

    def objects(*arguments: Any) -> Any:
        begun.set()
        return job(*arguments)

    monkeypatch.setattr(device, "compile_ptx", ptx)
    monkeypatch.setattr(driver, "LlvmJob", objects)
    with nova.knobs.override(threads=2):
        assert nova.translate(program(), targets=TARGETS).data
    assert begun.is_set()


def test_the_same_bytes_for_any_number_of_threads() -> None:
    files = []
    for threads in (1, 2, 7):
        with nova.knobs.override(threads=threads):
            files.append(nova.translate(PROGRAM, targets=TARGETS).data)
    assert files[0] == files[1] == files[2]


def test_both_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    with nova.knobs.override(log="compile"):
        nova.translate(PROGRAM, targets=TARGETS)
    output = capfd.readouterr().err
    for stage in ("object@x86_64", "ptx@cuda:sm_80", "ptx@cuda:sm_90a", "outlined@cuda:sm_80"):
        assert f"[compile] {stage}: " in output


@pytest.mark.parametrize("threads", [1, 3])
def test_a_mistake_in_the_device_half_is_told(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> str:
        raise CodegenError("no device code today")

    monkeypatch.setattr(device, "compile_ptx", fail)
    with (
        nova.knobs.override(threads=threads),
        pytest.raises(CodegenError, match="no device code today"),
    ):
        nova.translate(program(), targets=TARGETS)
