"""Texts that are packed while their stages run are those that a file packs at its end."""

from __future__ import annotations

from itertools import pairwise

import nova
from nova.artifact.texts import TextPacker, pack_texts, unpack_texts
from nova.artifact.write import write_artifact
from nova.core.constants import StageTexts

TEXTS = {"stablehlo": "a\0b\n" * 900, "linalg": 'quoted "text" \\ é', "ll": ""}
PROGRAM = """
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}"""


def test_texts_one_by_one_are_the_block_of_all():
    packer = TextPacker()
    for name, text in TEXTS.items():
        packer.add_plain(name, text)
    packed = packer.finish()
    assert packed == pack_texts(TEXTS, b"")
    unpacked = unpack_texts(packed, memoryview(b""))
    assert dict(unpacked) == TEXTS and list(unpacked) == list(TEXTS)
    assert dict(unpack_texts(TextPacker().finish(), memoryview(b""))) == {}


def test_the_file_of_a_translation_is_that_of_its_contents():
    with nova.knobs.override(cache=False):
        translation, again = (nova.translate(PROGRAM) for _ in range(2))
    assert translation.contents is not None
    assert isinstance(translation.contents.stages, StageTexts)
    assert write_artifact(translation.contents) == translation.data == again.data
    names = list(translation.stages)
    assert names[0] == "stablehlo" and names[-1] == "ll"
    assert all(translation.stages[a] != translation.stages[b] for a, b in pairwise(names))


def test_a_file_with_constants_packs_its_texts_at_the_end():
    numbers = ", ".join(str(n / 7) for n in range(64))
    program = PROGRAM.replace(
        "stablehlo.add %x, %x",
        f"stablehlo.constant dense<[{numbers}]> : tensor<64xf32>\n"
        "  %1 = stablehlo.reshape %0 : (tensor<64xf32>) -> tensor<16x4xf32>\n"
        "  %2 = stablehlo.slice %1 [0:4, 0:4] : (tensor<16x4xf32>) -> tensor<4x4xf32>\n"
        "  %3 = stablehlo.add %x, %2",
    ).replace("return %0", "return %3")
    translation = nova.translate(program)
    assert translation.contents is not None
    assert write_artifact(translation.contents) == translation.data
