"""True rates in the summary of device runs: flops by a count that is not the compiler's."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

import nova
from nova.tracing.device_run import DeviceRun, Span
from nova.tracing.device_summary import summarize_devices
from nova.tracing.peaks import find_peak


@pytest.mark.parametrize("element", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_flops_of_a_matmul_are_those_that_torch_counts(element: type, target: str) -> None:
    import torch

    m, n, k = 96, 80, 64
    with FlopCounterMode(display=False) as counter:
        torch.zeros(m, k) @ torch.zeros(k, n)
    a, b = (nova.tensor(np.zeros(s, element)) for s in ((m, k), (k, n)))
    program = nova.compile(a @ b, inputs=[a, b], target=target, run_mode="sim")
    (kernel,) = program.kernels
    assert kernel.flops == counter.get_total_flops() == 2 * m * n * k


def test_conversions_and_integers_are_not_flops() -> None:
    x = nova.tensor(np.zeros(1000, np.float32))
    i = nova.tensor(np.zeros(1000, np.int32))
    outputs = [(x * 2 + 1).astype("bf16"), i * 3 + 1]
    program = nova.compile(outputs, inputs=[x, i], target="cuda:sm_80", run_mode="sim")
    assert sum(kernel.flops for kernel in program.kernels) == 2000


def test_known_models_have_a_peak() -> None:
    h200 = find_peak("NVIDIA H200")
    assert h200 is not None and h200.flops == 989e12 and h200.bytes == 4.8e12
    assert find_peak("NVIDIA H100 PCIe") != find_peak("NVIDIA H100 80GB HBM3")
    assert find_peak("simulated device") is None


def test_the_summary_has_the_share_of_the_peak() -> None:
    a, b = (nova.tensor(np.zeros((64, 64), np.float32)) for _ in range(2))
    program = nova.compile(a @ b, inputs=[a, b], target="cuda:sm_80", run_mode="sim")
    with nova.trace() as trace:
        program(a.data, b.data)
    (run,) = trace.runs
    assert isinstance(run, DeviceRun) and all(isinstance(span, Span) for span in run.spans)
    (plain,) = summarize_devices([run])
    assert "of peak" not in str(plain)
    (known,) = summarize_devices([replace(run, model="NVIDIA H200")])
    assert "of peak" in str(known) and " %" in str(known)
