"""The record of a compile: texts that are packed while the queue works."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.artifact.texts import pack_texts
from nova.compiler.recorder import Recorder
from nova.compiler.stages import CPU_STAGES, DEVICE_STAGES, Stage


def _record(recorder: Recorder, *stages: str) -> None:
    for stage in stages:
        recorder.record(stage, f"the text of {stage}\0", 0.0)


def test_texts_packed_in_advance_are_those_of_the_file() -> None:
    recorder = Recorder()
    _record(recorder, "plan", "nova")
    recorder.pack_texts()
    _record(recorder, "linalg")
    recorder.pack_texts()
    _record(recorder, "ptx")
    assert recorder.packed_texts() == pack_texts(recorder.compact, b"")
    assert recorder.packed_texts() is None


def test_texts_with_constants_are_not_packed_in_advance() -> None:
    recorder = Recorder()
    _record(recorder, "plan")
    recorder.pack_texts()
    recorder.add_constants("nova", {"0" * 64: bytes(1 << 16)})
    _record(recorder, "nova")
    recorder.pack_texts()
    assert recorder.packed_texts() is None


@pytest.mark.parametrize(
    ("target", "table"), [("x86_64-v3", CPU_STAGES), ("cuda:sm_90a", DEVICE_STAGES)]
)
def test_texts_are_in_the_order_of_the_stages(target: str, table: dict[str, Stage]) -> None:
    X = nova.tensor(np.ones((4, 3), np.float32), name="X")
    program = nova.compile(nova.tanh(X), inputs=[X], target=target)
    stages = [name for name in table if name in program.stages]
    assert list(program.stages) == ["plan", *stages]
    assert {"nova", "buffers", "ll"} <= set(stages)
