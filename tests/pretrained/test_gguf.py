"""GGUF files: against the gguf package and `transformers`, packed weights, hostile files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova
from nova.errors import ArtifactError, AttributeValueError, PretrainedError
from nova.frontends.gguf import PackedTensor, map_gguf
from nova.ops.loops.block_formats import FORMATS
from tests.support.gguf_files import SIZES, random_blocks, write_llama
from tests.support.pretrained import greedy, reference, tokens

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"]
QUICK = {"Q4_K"}


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_are_decoded_as_by_the_package(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    type_ = gguf.GGMLQuantizationType[name.upper()]
    blocks = random_blocks(type_, (7, 768), np.random.default_rng(1))
    expected = gguf.quants.dequantize(blocks, type_)
    layout = FORMATS[name]
    assert (layout.size, layout.nbytes) == gguf.GGML_QUANT_SIZES[type_]
    decoded = layout.decode(blocks.reshape(-1, layout.nbytes)).reshape(7, 768)
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TYPES]
)
def test_a_llama(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    theirs = reference("llama", **SIZES)
    write_llama(tmp_path / "m.gguf", theirs, name)
    mine = nova.from_pretrained(tmp_path / "m.gguf")
    batch = tokens(2, 5)
    with torch.no_grad():
        expected = theirs(torch.tensor(batch)).logits.numpy()
    actual = np.asarray(nova.jit(mine)(batch))
    if name in ("F16", "BF16"):
        # Weights are stored so, and the model computes so.
        spread = {"F16": 0.01, "BF16": 0.08}[name] * expected.std()
        assert np.abs(actual - expected).std() < spread
        return
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * expected.std())
    packed = {p.dtype for p in mine.parameters() if len(p.shape) == 2}
    assert packed == ({nova.f32} if name == "F32" else {nova.u8})
    assert not any(p.data.flags.owndata for p in mine.parameters() if p.dtype is nova.u8)
    if name == "Q8_0":
        prompt = batch[0].tolist()
        assert mine.generate(prompt, 6) == greedy(theirs, prompt, 6)


def test_quantized_matmul_reads_the_packed_blocks() -> None:
    """No kernel of a matvec has room for the expanded weights."""
    X = nova.input((1, 512), nova.f32, name="X")
    W = nova.input((300, 288), nova.u8, name="W")
    program = nova.compile(nova.quantized_matmul(X, W, format="q4_k"), inputs=[X, W])
    assert program.workspace_size < 300 * 512


# --- files by hand --------------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, type_: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_) + value


def entry(name: bytes, shape: tuple[int, ...], type_: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", type_, offset)


def packed(
    pairs: list[bytes], entries: list[bytes], data: bytes = b"", version: int = 3, **counts: int
) -> bytes:
    header = b"GGUF" + struct.pack(
        "<IQQ", version, counts.get("tensors", len(entries)), counts.get("keys", len(pairs))
    )
    head = header + b"".join(pairs) + b"".join(entries)
    return head + bytes(-len(head) % 32) + data


SOUND = packed(
    [
        pair(b"a", 4, struct.pack("<I", 7)),
        pair(b"b", 8, text(b"hello")),
        pair(b"c", 9, struct.pack("<IQ", 5, 3) + struct.pack("<3i", 1, -2, 3)),
        pair(b"d", 9, struct.pack("<IQ", 8, 2) + text(b"x") + text(b"y")),
        pair(b"e", 7, b"\x01"),
    ],
    [entry(b"x", (3, 2)), entry(b"q", (32, 2), 8, 32)],
    np.arange(6, dtype="<f4").tobytes() + bytes(8) + bytes(68),
)


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(SOUND)
    file = map_gguf(path)
    assert file.metadata == {"a": 7, "b": "hello", "c": [1, -2, 3], "d": ["x", "y"], "e": True}
    x, q = file.tensors["x"], file.tensors["q"]
    assert isinstance(x, np.ndarray) and x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(q, PackedTensor) and (q.format, q.shape) == ("q8_0", (2, 32))
    assert q.blocks.shape == (2, 34) and not q.blocks.flags.owndata


HUGE = 1 << 60
DAMAGED = {
    "empty": (b"", "it is empty"),
    "magic": (b"GGML" + bytes(20), "does not begin"),
    "short": (b"GGU", "it ends at byte 3"),
    "version 1": (packed([], [], version=1), "version 1"),
    "big endian": (packed([], [], version=3 << 24), "big endian"),
    "key count": (packed([], [], keys=HUGE), "it ends"),
    "tensor count": (packed([], [], tensors=HUGE), "it ends"),
    "long key": (packed([struct.pack("<Q", HUGE)], []), "it ends"),
    "value type": (packed([pair(b"a", 13, b"")], []), "metadata of type 13"),
    "long array": (packed([pair(b"a", 9, struct.pack("<IQ", 10, HUGE))], []), "it ends"),
    "array of texts": (packed([pair(b"a", 9, struct.pack("<IQ", 8, HUGE))], []), "it ends"),
    "nested": (packed([pair(b"a", 9, struct.pack("<IQ", 9, 1) * 99)], []), "nested"),
    "key twice": (packed([pair(b"a", 7, b"\0")] * 2, []), "key 'a' occurs twice"),
    "tensor twice": (packed([], [entry(b"x", (1,))] * 2, bytes(64)), "'x' occurs twice"),
    "axes": (packed([], [entry(b"x", (1,) * 5)], bytes(64)), "5 axes"),
    "tensor type": (packed([], [entry(b"x", (1,), 99)], bytes(64)), "number 99"),
    "known type": (packed([], [entry(b"x", (256,), 13)], bytes(999)), "type q5_k"),
    "blocks": (packed([], [entry(b"x", (33, 2), 8)], bytes(99)), "no number of whole blocks"),
    "no axis": (packed([], [entry(b"x", (), 8)], bytes(99)), "no number of whole blocks"),
    "huge shape": (packed([], [entry(b"x", (HUGE, HUGE))], bytes(64)), "after the file"),
    "beyond": (packed([], [entry(b"x", (8,), 0, 64)], bytes(64)), "ends 32 bytes after the file"),
    "far": (packed([], [entry(b"x", (8,), 0, HUGE)], bytes(64)), "after the file"),
    "unaligned": (packed([], [entry(b"x", (1,), 0, 4)], bytes(64)), "not aligned"),
    "overlap": (
        packed([], [entry(b"x", (16,)), entry(b"y", (1,), 0, 32)], bytes(64)),
        "'y' at 32 overlaps",
    ),
    "alignment": (
        packed([pair(b"general.alignment", 4, struct.pack("<I", 0))], []),
        "general.alignment is 0",
    ),
}


@pytest.mark.parametrize("label", DAMAGED)
def test_damaged(label: str, tmp_path: Path) -> None:
    data, message = DAMAGED[label]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=message) as caught:
        map_gguf(path)
    assert caught.value.where == str(path) and len(str(caught.value)) < 1000


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    for end in range(len(SOUND)):
        path.write_bytes(SOUND[:end])
        with pytest.raises(ArtifactError):
            map_gguf(path)


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, len(SOUND) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read(at: int, byte: int, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(SOUND[:at] + bytes([byte]) + SOUND[at + 1 :])
    try:
        file = map_gguf(path)
    except ArtifactError as error:
        assert error.where == str(path)
    else:
        assert sum(t.nbytes for t in file.tensors.values()) <= len(SOUND)


def test_models_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    with pytest.raises(ArtifactError, match="No such file"):
        nova.from_pretrained(path)
    path.write_bytes(SOUND)
    with pytest.raises(PretrainedError, match=r"general\.architecture: None"):
        nova.from_pretrained(path)
    with pytest.raises(AttributeValueError, match="precision bf16 of a file with quantized"):
        nova.from_pretrained(path, precision="bf16")
    sizes = {
        "embedding_length": 32,
        "attention.head_count": 4,
        "rope.dimension_count": 4,
    }
    pairs = [pair(b"general.architecture", 8, text(b"llama"))]
    pairs += [pair(f"llama.{k}".encode(), 4, struct.pack("<I", v)) for k, v in sizes.items()]
    path.write_bytes(packed(pairs, []))
    with pytest.raises(PretrainedError, match=r"rope\.dimension_count: 4 is not supported"):
        nova.from_pretrained(path)
    path.write_bytes(packed([*pairs, pair(b"llama.expert_count", 4, struct.pack("<I", 8))], []))
    with pytest.raises(PretrainedError, match="expert_count: 8"):
        nova.from_pretrained(path)
    path.write_bytes(packed(pairs[:3], []))
    with pytest.raises(PretrainedError, match=r"no matrix token_embd\.weight"):
        nova.from_pretrained(path)
