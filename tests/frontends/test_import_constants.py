"""Constants of imported programs: bf16, and resources that stand behind the text."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nova
from nova.errors import ImportedProgramError, LoweringError, PipelineError

RESOURCES = """
func.func @main(%x: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<4xi1>, tensor<2xbf16>, tensor<3xui8>, tensor<0xf32>) {
  %a = stablehlo.constant dense_resource<"a b"> : tensor<2xf32>
  %b = stablehlo.constant dense_resource<b> : tensor<4xi1>
  %c = stablehlo.constant dense_resource<c> : tensor<2xbf16>
  %d = stablehlo.constant dense_resource<d> : tensor<3xui8>
  %e = stablehlo.constant dense_resource<e> : tensor<0xf32>
  %0 = stablehlo.add %a, %x : tensor<2xf32>
  return %0, %b, %c, %d, %e
    : tensor<2xf32>, tensor<4xi1>, tensor<2xbf16>, tensor<3xui8>, tensor<0xf32>
}
{-# dialect_resources: { builtin: {
  "a b": "0x040000000000803F00000040", b: "0x0400000001000100", c: "0x04000000803F0040",
  d: "0x0400000001FF80", e: "0x04000000"
} } #-}
"""


def test_resources() -> None:
    results = nova.translate(RESOURCES).load()(np.ones(2, np.float32))
    expected = [[2, 3], [True, False, True, False], [1, 2], [1, 255, 128], []]
    for result, values in zip(results, expected, strict=True):
        assert np.array_equal(result, np.array(values, result.dtype))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('b: "0x0400000001000100"', 'b: "0x0400000001"', "the resource b has 1 bytes"),
        ('b: "0x', 'z: "0x', "values of the resource b are not in the program"),
    ],
)
def test_resources_that_are_missing_or_short(old: str, new: str, message: str) -> None:
    with pytest.raises(ImportedProgramError, match=message):
        nova.translate(RESOURCES.replace(old, new))


@pytest.mark.parametrize("shape", [(8,), (20, 20), (0, 3)])
def test_bf16_constants(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).astype(ml_dtypes.bfloat16)
    if values.size:
        values[:5] = [np.nan, -0.0, np.inf, -np.inf, 1e-40]
    values = values.reshape(shape)
    y = nova.tensor(np.zeros(shape, ml_dtypes.bfloat16), name="y")
    result = nova.compile(y * nova.tensor(values), inputs=[y]).run([np.ones_like(values)])
    assert np.array_equal(result.view(np.uint16), values.view(np.uint16))


def test_bf16_constants_of_imported_programs() -> None:
    program = nova.translate(
        "func.func @main() -> tensor<2x1xbf16> {\n"
        "  %0 = stablehlo.constant dense<[[1.5], [0x7F80]]> : tensor<2x1xbf16>\n"
        "  return %0 : tensor<2x1xbf16>\n}"
    )
    assert program.load()().astype(float).tolist() == [[1.5], [np.inf]]


def test_names_need_not_be_utf8() -> None:
    program = nova.translate(
        'func.func @main(%x: tensor<3xf32> {nova.name = "a\\FFb"}) -> tensor<3xf32> {\n'
        "  return %x : tensor<3xf32>\n}"
    )
    assert program.signature is not None and program.signature.args[0].name == "a\ufffdb"


def test_texts_of_another_stage_are_refused() -> None:
    """MLIR's translation to LLVM IR ends the process on ops of other dialects."""
    text = nova.translate(RESOURCES, emit="buffers").data.decode()
    with pytest.raises(PipelineError, match="not of the stage llvm"):
        nova.translate(text, start_from="llvm", emit="ll")
    with pytest.raises(LoweringError, match="not of the stage loops"):
        nova.translate(text, start_from="loops")
