"""The shared memory of persistent kernels: what is asked for, and what devices refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.codegen.gpu.persistent import kernel
from nova.errors import DeviceCallError
from nova.gpusim.ptx_parser import parse_ptx
from nova.passes.gpu import link_persistent_kernel

DEVICE: dict[str, Any] = {"target": "cuda:sm_90a", "launch": "persistent", "run_mode": "sim"}
_USUAL = 48 << 10


def _product(columns: int = 96) -> Any:
    a, b = nova.input((64, 512)), nova.input((64, columns))
    return nova.compile(a.T @ b, inputs=[a, b], **DEVICE)


def test_declared_memory_counts_where_dynamic_memory_is_asked_for() -> None:
    program = _product()
    dynamic = program.kernels[-1].device.shared
    assert dynamic <= _USUAL < dynamic + kernel.shared_bytes(False)
    a, b = (
        np.random.default_rng(seed).standard_normal(shape, np.float32)
        for seed, shape in enumerate([(64, 512), (64, 96)])
    )
    np.testing.assert_allclose(program(a, b), a.T @ b, rtol=1e-4, atol=1e-4)


def test_the_kernel_declares_what_the_compiler_counts() -> None:
    program = _product()
    parsed = parse_ptx(program.stages["ptx"]).kernels[kernel.PERSISTENT_KERNEL]
    assert parsed.space_bytes("shared") == kernel.shared_bytes(False)
    x = nova.input((512,))
    root = nova.while_loop(lambda v: (v < x).any(), lambda v: v + 1.0, x - 3.0)
    loop = nova.compile(root, inputs=[x], **DEVICE)
    parsed = parse_ptx(loop.stages["ptx"]).kernels[kernel.FLOW_KERNEL]
    assert parsed.space_bytes("shared") == kernel.shared_bytes(True)


def test_a_block_that_does_not_fit_is_refused_with_its_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a device refuses it; the check of the compiler is skipped."""
    monkeypatch.setattr(kernel, "_TABLE_BYTES", 200 << 10)
    monkeypatch.setattr(link_persistent_kernel, "shared_bytes", lambda with_flow: 0)
    columns = 100  # a program that no other test has
    with (
        nova.knobs.override(cache=False),
        pytest.raises(DeviceCallError, match=r"209440 \+ 36864 bytes of shared memory"),
    ):
        _product(columns)(np.zeros((64, 512), np.float32), np.zeros((64, columns), np.float32))
