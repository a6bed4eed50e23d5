"""Kernels of a large program are compiled to PTX in parts; the joined module has all of them."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.compiler.gpu import emit_ptx


def _program() -> nova.Compiled:
    x = nova.tensor(np.zeros((64, 48), np.float32), name="x")
    return nova.compile(
        [nova.softmax(x, axis=1), nova.sum(x * x, axis=0), x @ x.T],
        inputs=[x],
        target="cuda:sm_90a",
        run_mode="sim",
    )


def test_parts_have_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)
    with nova.knobs.override(cache=False):
        together = _program()
        monkeypatch.setattr(emit_ptx, "_PART", 1)
        parts = emit_ptx.split_kernels(together.stages["ll"])
        assert len(parts) == together.stages["ptx"].count(".entry") > 1
        separate = _program()
    assert separate.stages["ptx"].count(".entry") == len(parts)
    assert separate.stages["ptx"].count(".extern .shared") <= 1
    for result, expected in zip(separate(x), together(x), strict=True):
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
    np.testing.assert_allclose(np.asarray(separate(x)[2]), x @ x.T, rtol=1e-4, atol=1e-4)


def test_a_text_with_other_functions_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_ptx, "_PART", 1)
    text = "define ptx_kernel void @a() {\n}\n\ndefine void @b() {\n}\n"
    assert emit_ptx.split_kernels(text) == [text]
