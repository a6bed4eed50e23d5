"""Threads of MLIR: the same module with and without them, and systems that refuse threads."""

from __future__ import annotations

import resource
import threading
from typing import Any

import pytest

from nova import knobs
from nova.compiler.stages import start_from_text
from nova.passes.base import UpstreamPass, run_pipeline
from nova.passes.mlir_threads import can_start

_MODULE = """
  gpu.module @m{0} {{
    gpu.func @f(%x: memref<{0}xf32>) kernel {{
      %c = arith.constant 1 : index
      %v = memref.load %x[%c] : memref<{0}xf32>
      %w = arith.addf %v, %v : f32
      memref.store %w, %x[%c] : memref<{0}xf32>
      gpu.return
    }}
  }}
"""
_TEXT = "".join(_MODULE.format(number) for number in range(8, 24))


def _lowered(threads: int) -> str:
    module = start_from_text(_TEXT, "threads.mlir")
    step = UpstreamPass("gpu.module(convert-gpu-to-nvvm,reconcile-unrealized-casts)", parallel=True)
    with knobs.override(threads=threads):
        run_pipeline(module, [step])
    return str(module)


def test_threads_do_not_change_the_result() -> None:
    assert "llvm.fadd" in _lowered(1)
    assert _lowered(1) == _lowered(4)


def test_ops_with_code_in_python_are_processed_by_the_caller() -> None:
    functions = "".join(
        f"""
  func.func @f{number}(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %dead = "nova.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %y = "nova.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }}
"""
        for number in range(16)
    )
    module = start_from_text(functions, "functions.mlir")
    with knobs.override(threads=4):
        run_pipeline(module, [UpstreamPass("any(canonicalize,cse)", parallel=True)])
    assert "nova.tanh" in str(module) and "nova.exp" not in str(module)


def test_a_system_may_refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    assert can_start(3)
    expected = _lowered(4)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not can_start(3)
    assert _lowered(4) == expected


def test_no_threads_with_a_limit_of_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 30, resource.RLIM_INFINITY))
    assert not can_start(1)
