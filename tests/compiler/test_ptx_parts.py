"""Kernels of a large program are compiled to PTX in parts; the joined module has all of them."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.artifact.device_image import DeviceImage
from nova.compiler.gpu import emit_ptx
from nova.compiler.gpu.join_sizes import add_suffix, join_images


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


PTX = """
.version 8.0
.target sm_80
.address_size 64

	// .globl	scale
.extern .shared .align {align} .b8 memory[];
.global .align 4 .f32 table[2] = {{0f3F800000, 0f40000000}};
.shared .align 8 .b8 tile[64];
.func (.param .b32 result) half(
	.param .b32 half_param_0
)
{{
	ret;
}}
.visible .entry scale(
	.param .u64 scale_param_0
)
{{
$L__scale:
	ld.global.f32 %table, [table+4];
	st.shared.f32 [memory], %table;
	mov.u64 %rd1, tile;
	call.uni (result), half, (%table);
	bra $L__scale;
}}
"""


def test_a_suffix_renames_what_a_module_defines() -> None:
    text = add_suffix(PTX.format(align=16), "$8")
    for name in ("scale$8(", "table$8[2]", "[table$8+4]", "tile$8[64]", " tile$8;", " half$8("):
        assert name in text
    assert "(result), half$8, (%table)" in text
    # Names of a function's own, and the shared memory of all kernels.
    for name in ("scale_param_0", "half_param_0", "$L__scale:", "%table,", "[memory]", "memory[]"):
        assert name in text
    assert add_suffix(text, "") == text


def test_code_for_sizes_is_joined_to_one_module() -> None:
    images = [DeviceImage("ptx", "sm_80", PTX.format(align=n).encode()) for n in (4, 16, 8)]
    [image] = join_images(images[:1], [("$1_2", images[1:2]), ("$3_4", images[2:])])
    text = image.data.decode()
    assert (image.kind, image.arch) == ("ptx", "sm_80")
    assert [text.count(f".entry scale{s}(") for s in ("", "$1_2", "$3_4")] == [1, 1, 1]
    assert text.count(".extern .shared") == text.count(".align 16 .b8 memory[];") == 1
    assert text.count(".version") == text.count(".target") == 1
