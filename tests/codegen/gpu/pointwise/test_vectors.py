"""Elementwise kernels load vectors: of shared channels, at computed positions, several a thread."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova.codegen.gpu.pointwise import elementwise, strategy

_BF16 = ml_dtypes.bfloat16


def _draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(_BF16)


def _as_f32(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.astype(np.float32))


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few threads are enough to fill the device."""
    monkeypatch.setattr(elementwise, "_MANY_VECTORS", 16)
    monkeypatch.setattr(strategy, "_FULL_BLOCKS", 2)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.usefixtures("small_device")
def test_rows_share_the_channels(target: str) -> None:
    x, scale = _draw(1024, 64), np.linspace(-1, 1, 64, dtype=np.float32)
    X, S = nova.tensor(x, name="X"), nova.tensor(scale, name="S")
    y = nova.cast(nova.relu(nova.cast(X, "f32") * S + X), "bf16")
    program = nova.compile(y, inputs=[X, S], target=target, run_mode="sim")
    expected = torch.relu(_as_f32(x) * torch.from_numpy(scale) + _as_f32(x)).to(torch.bfloat16)
    np.testing.assert_array_equal(program(x, scale).astype(np.float32), expected.float().numpy())
    # A thread has four vectors of 8 elements of X, and one of S, in two loads.
    assert len(re.findall(r"ld\.global[.\w]*\.v4\.b32", program.stages["ptx"])) == 4 + 2
    first_store = program.stages["ptx"].index("st.global")
    assert "ld.global" not in program.stages["ptx"][first_store:]


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("channels", [8, 24])
@pytest.mark.usefixtures("small_device")
def test_pads_load_vectors(target: str, channels: int) -> None:
    x = _draw(2, 5, 6, channels)
    X = nova.tensor(x, name="X")
    y = nova.pad(X, (0, 1, 2, 0), (0, 1, 0, 0))
    program = nova.compile(y, inputs=[X], target=target, run_mode="sim")
    expected = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (2, 0), (0, 0)))
    np.testing.assert_array_equal(program(x).astype(np.float32), expected)
    assert re.search(r"ld\.global[.\w]*\.v4\.b32", program.stages["ptx"])
    assert not re.search(r"ld\.global[.\w]*\.b16", program.stages["ptx"])


@pytest.mark.usefixtures("small_device")
def test_padded_channels_are_constants() -> None:
    """Where a thread has all channels of a pixel, those that are padded are not loaded."""
    x = _draw(2, 5, 6, 3)
    X = nova.tensor(x, name="X")
    y = nova.pad(X, (0, 1, 1, 0), (0, 1, 1, 5))
    program = nova.compile(y, inputs=[X], target="cuda:sm_90a", run_mode="sim")
    expected = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 5)))
    np.testing.assert_array_equal(program(x).astype(np.float32), expected)
    assert len(re.findall(r"ld\.global[.\w]*\.b16", program.stages["ptx"])) == 3
    assert len(re.findall(r"st\.global[.\w]*\.v4\.b32", program.stages["ptx"])) == 1


@pytest.mark.parametrize("channels", [64, 33])
@pytest.mark.usefixtures("small_device")
def test_gathered_rows(channels: int) -> None:
    table, rows = _draw(40, channels), np.random.default_rng(1).integers(0, 40, 96)
    T, R = nova.tensor(table, name="T"), nova.tensor(rows, name="R")
    program = nova.compile(
        nova.take(T, R, axis=0), inputs=[T, R], target="cuda:sm_90a", run_mode="sim"
    )
    expected = table.astype(np.float32)[rows]
    np.testing.assert_array_equal(program(table, rows).astype(np.float32), expected)
    is_vector = bool(re.search(r"ld\.global[.\w]*\.v4\.b32", program.stages["ptx"]))
    assert is_vector == (channels % 8 == 0)
