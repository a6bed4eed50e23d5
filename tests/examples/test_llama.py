"""The Llama example against `transformers`, from the same weights: logits, greedy tokens, sampling.

Weights are random and go through the folders that `save_pretrained` writes.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from tests.support.pretrained import greedy

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import llama

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
CONTEXT = 96
SIZES = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True, "num_key_value_heads": 6, "head_dim": 12},
    "llama3": {"rope_parameters": LLAMA3, "rms_norm_eps": 1e-5},
}
REAL = {
    # SmolLM-135M and the first layers of TinyLlama-1.1B.
    "smollm": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
    },
    "tinyllama": {
        "vocab_size": 32000,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
    },
}


def reference(sizes: dict[str, Any], dtype: Any = None) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**sizes)
    model = transformers.LlamaForCausalLM(config).eval().to(dtype or torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and parameter.dim() == 2:
                parameter.normal_(0, 1.5 * parameter.shape[1] ** -0.5)
    return model


def prompt_of(length: int, vocabulary: int = 128) -> list[int]:
    return np.random.default_rng(length).integers(0, vocabulary, length).tolist()


def logits_of(model: Any, prompt: list[int]) -> np.ndarray:
    """The logits at all positions, through the cache, in one call."""

    def scores(tokens: Any) -> Any:
        return model.scores(model.rows(tokens, 0, model.caches(CONTEXT))[0])

    return np.asarray(nova.jit(scores)(np.array(prompt, np.int64)))


def expected_logits(model: Any, prompt: list[int]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model(torch.tensor([prompt])).logits[0].float().numpy())


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name: str, tmp_path: Path) -> None:
    theirs = reference({**SIZES, **CONFIGS[name]})
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    prompt = prompt_of(40)
    np.testing.assert_allclose(
        logits_of(mine, prompt), expected_logits(theirs, prompt), rtol=1e-4, atol=1e-4
    )


def test_greedy_tokens(tmp_path: Path) -> None:
    theirs = reference({**SIZES, **CONFIGS["llama3"]})
    theirs.save_pretrained(tmp_path)
    program = llama.compile_generator(nova.from_pretrained(tmp_path), CONTEXT, chunk=16)
    for length in (1, 15, 16, 17, 40):  # around the chunks of the prompt
        prompt = prompt_of(length)
        assert llama.generate(program, prompt, 12) == greedy(theirs, prompt, 12)


def test_a_sharded_folder(tmp_path: Path) -> None:
    theirs = reference(SIZES)
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    mine = nova.from_pretrained(tmp_path)
    prompt = prompt_of(9)
    np.testing.assert_allclose(
        logits_of(mine, prompt), expected_logits(theirs, prompt), rtol=1e-4, atol=1e-4
    )


def test_bf16(tmp_path: Path) -> None:
    theirs = reference(SIZES, torch.bfloat16)
    theirs.save_pretrained(tmp_path)
    mine = nova.from_pretrained(tmp_path)
    assert mine.dtype == nova.bf16
    prompt = prompt_of(30)
    assert_as_near_to_f32(mine, theirs, prompt)


def assert_as_near_to_f32(mine: Any, theirs: Any, prompt: list[int]) -> None:
    """The logits of bf16 weights are about as far from those of f32 arithmetic as theirs."""
    rounded = expected_logits(theirs, prompt)
    exact = expected_logits(theirs.float(), prompt)
    error, other = (np.std(x - exact) for x in (logits_of(mine, prompt), rounded))
    assert error < 1.2 * other < 0.1 * exact.std()


# --- the program ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Any:
    config = llama.Config(vocab_size=32)
    return llama.compile_generator(llama.Llama(config, llama.random_weights(config)), 64, chunk=8)


def test_it_stops_at_a_token_and_at_the_context(small: Any) -> None:
    tokens = llama.generate(small, [1, 2, 3], 1000)
    assert len(tokens) == 61  # the context
    stop = tokens[5]
    assert llama.generate(small, [1, 2, 3], 1000, stop=stop) == tokens[: tokens.index(stop) + 1]
    with pytest.raises(ValueError, match="a prompt has"):
        llama.generate(small, [0] * 64)


def test_seeds_decide_the_tokens(small: Any) -> None:
    runs = [llama.generate(small, [5], 20, temperature=1.0, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_64-v2", "x86_64-v3"])
def test_older_processors(target: str) -> None:
    """bf16 weights without instructions for them."""
    config = llama.Config()
    model = llama.Llama(config, llama.random_weights(config), nova.bf16)
    programs = [llama.compile_generator(model, 64, 8, target=t) for t in (None, target)]
    first, second = (llama.generate(p, [1, 2, 3], 12) for p in programs)
    assert first[:4] == second[:4]  # sums in another order: later tokens may differ


def test_a_c_program_runs_the_file(small: Any, tmp_path: Path) -> None:
    small.save(tmp_path / "llama.nova", weights="embed")
    binary = tmp_path / "llama"
    source = ROOT / "examples" / "c" / "llama.c"
    include = ROOT / "native" / "include"
    subprocess.run(
        ["gcc", "-O1", "-Werror", "-I", include, source, "-o", binary, "-ldl"], check=True
    )
    command = [binary, tmp_path / "llama.nova", "20", "0", "1", "2", "3"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [int(t) for t in printed.split()] == llama.generate(small, [1, 2, 3], 20)


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.8), (1.0, 9, 0.6)]
)
def test_draws_have_the_distribution_of_transformers(
    temperature: float, top_k: int, top_p: float
) -> None:
    """4,000 draws: only tokens that its warpers leave, each about as often as its probability."""
    logits = np.random.default_rng(1).normal(size=24).astype(np.float32) * 2
    warpers = transformers.LogitsProcessorList(
        [transformers.TemperatureLogitsWarper(temperature)]
        + ([transformers.TopKLogitsWarper(top_k)] if top_k else [])
        + ([transformers.TopPLogitsWarper(top_p)] if top_p < 1 else [])
    )
    warped = warpers(torch.zeros((1, 1), dtype=torch.long), torch.from_numpy(logits)[None])
    expected = torch.softmax(warped[0], -1).numpy()
    count = 4000

    @nova.jit
    def draws(logits: Any, temperature: Any, top_k: Any, top_p: Any) -> Any:
        def step(carry: Any, position: Any) -> Any:
            sampling = llama.Sampling(temperature, top_k, top_p, np.int64(3))
            return carry, llama.sample(logits, sampling, position)

        return nova.scan(step, 0, np.arange(count))[1]

    drawn = draws(logits, np.float32(temperature), np.int64(top_k), np.float32(top_p))
    counts = Counter(np.asarray(drawn).tolist())
    frequencies = np.array([counts[i] for i in range(24)]) / count
    assert not frequencies[expected == 0].any()
    assert (np.abs(frequencies - expected) < 5 * np.sqrt(expected / count) + 1e-9).all()


# --- real sizes -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_configurations(name: str, dtype: str, tmp_path: Path) -> None:
    theirs = reference(REAL[name], getattr(torch, dtype))
    theirs.save_pretrained(tmp_path, max_shard_size="200MB")
    mine = nova.from_pretrained(tmp_path)
    prompt = prompt_of(21, REAL[name]["vocab_size"])
    if dtype == "bfloat16":
        assert_as_near_to_f32(mine, theirs, prompt)
        return
    expected = expected_logits(theirs, prompt)
    np.testing.assert_allclose(logits_of(mine, prompt), expected, atol=1e-3)
    program = llama.compile_generator(mine, CONTEXT, chunk=16)
    assert llama.generate(program, prompt, 8) == greedy(theirs, prompt, 8)
