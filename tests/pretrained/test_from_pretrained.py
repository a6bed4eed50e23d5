"""`nova.from_pretrained` against `transformers`: folders of `save_pretrained`, random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import nova
from nova.errors import (
    ArtifactError,
    AttributeValueError,
    PretrainedError,
    ShapeError,
    UnknownKeywordError,
)
from tests.support.pretrained import MODELS, greedy, reference, tokens

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

DECODERS = [label for label in MODELS if not label.startswith(("bert", "t5"))]


def sweep(labels: list[str], *quick: str) -> list[Any]:
    slow = pytest.mark.slow
    return [label if label in quick else pytest.param(label, marks=slow) for label in labels]


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("label", sweep(DECODERS, "qwen3"))
def test_logits(label: str, tmp_path: Path) -> None:
    theirs = reference(label)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    batch = tokens(2, 21)
    with torch.no_grad():
        close(nova.jit(mine)(batch), theirs(torch.tensor(batch)).logits)


@pytest.mark.parametrize("label", sweep(DECODERS, "gpt2"))
def test_greedy_tokens(label: str, tmp_path: Path) -> None:
    theirs = reference(label)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    for length in (1, 21):
        prompt = tokens(length).tolist()
        assert mine.generate(prompt, 10) == greedy(theirs, prompt, 10)


@pytest.mark.parametrize("label", ["bert", pytest.param("bert masked", marks=pytest.mark.slow)])
def test_bert(label: str, tmp_path: Path) -> None:
    theirs = reference(label)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    batch, types = tokens(2, 13), np.arange(26).reshape(2, 13) % 2
    mask = np.ones((2, 13), np.int64)
    mask[1, 9:] = 0
    with torch.no_grad():
        expected = theirs(*map(torch.tensor, (batch, mask, types)))
    actual = nova.jit(mine)(batch, mask, types)
    if label == "bert":
        close(actual[0], expected.last_hidden_state)
        close(actual[1], expected.pooler_output)
    else:
        close(actual, expected.logits)


@pytest.mark.slow
def test_bert_classes(tmp_path: Path) -> None:
    theirs = reference("bert classes")
    theirs.save_pretrained(tmp_path)
    batch = tokens(3, 8)
    with torch.no_grad():
        expected = theirs(torch.tensor(batch)).logits
    close(nova.jit(nova.from_pretrained(tmp_path))(batch), expected)


@pytest.mark.parametrize("label", ["t5", pytest.param("t5 gated", marks=pytest.mark.slow)])
def test_t5(label: str, tmp_path: Path) -> None:
    theirs = reference(label)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    # Distances beyond all buckets but the last one.
    source, target = tokens(2, 40), tokens(2, 11, seed=1)
    mask = np.ones((2, 40), np.int64)
    mask[1, 30:] = 0
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(mask),
            decoder_input_ids=torch.tensor(target),
        ).logits
    close(nova.jit(mine)(source, target, mask), expected)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["t5", "t5 gated"])
def test_t5_greedy_tokens(label: str, tmp_path: Path) -> None:
    theirs = reference(label)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    source = tokens(1, 40)
    written = theirs.generate(
        torch.tensor(source), max_new_tokens=9, min_new_tokens=9, do_sample=False
    )
    assert mine.generate(source[0].tolist(), 9, stop=-1) == written[0, 1:].tolist()


def test_gpt2_refuses_more_tokens_than_positions(tmp_path: Path) -> None:
    theirs = reference("gpt2")
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    longest = theirs.config.n_positions
    assert mine(tokens(1, longest)).shape[1] == longest
    with pytest.raises(ShapeError, match=f"{longest + 1} tokens, and the model has {longest}"):
        mine(tokens(1, longest + 1))


WRONG_PROMPTS: list[Any] = [
    *([10**6], np.array([10**6]), [-1], [1.5], [], [[1, 2]], [[1], [2, 3]], "abc", None, 3),
]


def test_t5_refuses_sources_that_are_no_tokens(tmp_path: Path) -> None:
    reference("t5").save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    for source in WRONG_PROMPTS:
        with pytest.raises(AttributeValueError, match="the prompt"):
            mine.generate(source, 2)


def test_weights_stay_mapped_and_in_their_dtype(tmp_path: Path) -> None:
    theirs = reference("llama").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    mine = nova.from_pretrained(tmp_path)
    assert {p.dtype for p in mine.parameters()} == {nova.bf16}
    assert not any(p.data.flags.owndata for p in mine.parameters())
    files = {p.name: p.read_bytes() for p in tmp_path.glob("*.safetensors")}
    mine.embedding.weight.data[:] = 0  # private: the file keeps its values
    assert files == {p.name: p.read_bytes() for p in tmp_path.glob("*.safetensors")}
    assert nova.from_pretrained(tmp_path, precision="f32").dtype is nova.f32


@pytest.mark.slow
def test_bf16_is_as_near_to_f32_as_torchs(tmp_path: Path) -> None:
    theirs = reference("qwen3")
    batch = torch.tensor(tokens(1, 24))
    with torch.no_grad():
        exact = theirs(batch).logits.numpy()
        theirs = theirs.to(torch.bfloat16)
        rounded = theirs(batch).logits.float().numpy()
    theirs.save_pretrained(tmp_path)
    actual = np.asarray(nova.jit(nova.from_pretrained(tmp_path))(batch.numpy()))
    assert np.abs(actual - exact).max() <= 2 * np.abs(rounded - exact).max()


def edited(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    reference("llama").save_pretrained(folder)
    return folder


REFUSED = {
    "architectures": (["MambaForCausalLM"], "architectures: 'MambaForCausalLM'"),
    "rope_parameters": (
        {"rope_type": "yarn", "factor": 2.0},
        r"rope_parameters\.rope_type: 'yarn'",
    ),
    "hidden_act": ("quick_gelu", "hidden_act: 'quick_gelu'"),
    "hidden_size": ("32", "hidden_size: it must be a positive integer"),
    "num_hidden_layers": (True, "num_hidden_layers: it must be a positive integer"),
    "rms_norm_eps": (-1, "rms_norm_eps: it must be a positive number"),
    "attention_bias": ("no", "attention_bias: it must be true or false"),
    "num_key_value_heads": (3, "num_key_value_heads: 4 heads are not groups of 3"),
    "head_dim": (7, "head_dim: rotary positions need an even width"),
    "partial_rotary_factor": (0.5, "partial_rotary_factor: 0.5"),
    "layer_types": (["sliding_attention"] * 2, "layer_types:"),
    "quantization_config": ({"bits": 4}, "quantization_config:"),
    "vocab_size": (95, r"'model.embed_tokens.weight' has shape \(96, 32\)"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_refused_configurations(key: str, saved: Path, tmp_path: Path) -> None:
    value, message = REFUSED[key]
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(PretrainedError, match=message) as caught:
        nova.from_pretrained(edited(tmp_path, **{key: value}))
    assert str(tmp_path) in (caught.value.where or "")


def test_weights_of_another_model(saved: Path, tmp_path: Path) -> None:
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edited(tmp_path, num_hidden_layers=3)
    with pytest.raises(PretrainedError, match=r"has a weight 'model\.layers\.2\.[\s\S]*not"):
        nova.from_pretrained(tmp_path)
    edited(tmp_path, num_hidden_layers=1)
    with pytest.raises(PretrainedError, match=r"'model\.layers\.1\.\S+ and 8 more, and the model"):
        nova.from_pretrained(tmp_path)
    edited(tmp_path, num_hidden_layers=2)
    path = tmp_path / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    arrays["model.norm.weight"] = arrays["model.norm.weight"].astype("i4")
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(PretrainedError, match=r"'model\.norm\.weight' is int32"):
        nova.from_pretrained(tmp_path)


def test_refused_calls(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(AttributeValueError, match="precision 'int8'"):
        nova.from_pretrained(saved, precision="int8")
    with pytest.raises(PretrainedError, match="is not a folder with"):
        nova.from_pretrained(tmp_path)
    with pytest.raises(AttributeValueError, match="130, and the model has 128 positions"):
        nova.from_pretrained(saved).generate([1] * 100, 30)
    mine = nova.from_pretrained(saved)
    for prompt, new, options in (
        *((prompt, 2, {}) for prompt in WRONG_PROMPTS),
        ([1], 0, {}),
        ([1], 1.5, {}),
        ([1], 2, {"temperature": -1.0}),
        ([1], 2, {"temperature": "hot"}),
        ([1], 2, {"top_p": 2.0}),
        ([1], 2, {"top_k": -3}),
        ([1], 2, {"seed": 1.5}),
        ([1], 2, {"stop": "."}),
        ([1] * 30, 10, {"context": 32}),
        ([1], 10, {"context": 4096}),
    ):
        with pytest.raises(AttributeValueError):
            mine.generate(prompt, new, **options)
    with pytest.raises(UnknownKeywordError, match="no keyword 'temp'"):
        mine.generate([1], 2, temp=0.5)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "model_type": "bert"}')
    with pytest.raises(ArtifactError, match="key 'model_type' occurs twice"):
        nova.from_pretrained(tmp_path)
