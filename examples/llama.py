"""A Llama-style decoder that writes: prefill, KV cache and sampling loop in one program.

    python examples/llama.py FOLDER OUT.nova        # a folder as Hugging Face has it
    python examples/llama.py --random OUT.nova      # small, with random weights

The model has rotary positions, grouped heads, RMS norms and SwiGLU (nova/pretrained/decoder.py).
`compile_generator` makes one program of all (nova/pretrained/generation.py): it takes a prompt of
any length up to `context`, reads it in chunks into the cache, and draws tokens until a stop token
or a limit. The file runs from Python, and from C without anything else (examples/c/llama.c).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import nova
from nova.pretrained.config import ModelConfig
from nova.pretrained.decoder import LlamaModel, read_sizes
from nova.pretrained.generation import Sampling, compile_generator, generate, sample
from nova.pretrained.weights import Weights

__all__ = [
    "Config",
    "Llama",
    "Sampling",
    "compile_generator",
    "generate",
    "random_weights",
    "sample",
]


@dataclass(frozen=True)
class Config:
    """The sizes of a model, by the names of its `config.json`."""

    vocab_size: int = 256
    hidden_size: int = 64
    intermediate_size: int = 160
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False

    def frequencies(self) -> np.ndarray:
        """The angle per position of each pair of a head."""
        return read_sizes(ModelConfig(asdict(self), "Config"), "llama").frequencies


class Llama(LlamaModel):
    """A decoder of these sizes, with weights by the names of Hugging Face, converted to `dtype`."""

    def __init__(self, config: Config, weights: Mapping[str, np.ndarray], dtype: Any = nova.f32):
        sizes = read_sizes(ModelConfig(asdict(config), "Config"), "llama")
        super().__init__(sizes, Weights(weights, "weights", dtype))


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every weight, by its name at Hugging Face."""
    width, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (config.vocab_size, width),
        "model.norm": (width,),
    }
    for i in range(config.num_hidden_layers):
        layer = {
            "self_attn.q_proj": (queries, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, queries),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, width)
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def random_weights(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights with the names of Hugging Face."""
    rng = np.random.default_rng(seed)
    return {
        name: _random_weight(rng, shape, norm=name.endswith("norm.weight"))
        for name, shape in weight_shapes(config).items()
    }


def _random_weight(rng: np.random.Generator, shape: tuple[int, ...], norm: bool) -> np.ndarray:
    values = rng.standard_normal(shape, dtype=np.float32)
    return 1 + values / 10 if norm else values / np.float32(shape[-1] ** 0.5)


def main(source: str, path: str) -> None:
    if source == "--random":
        config = Config()
        model: LlamaModel = Llama(config, random_weights(config), nova.bf16)
    else:
        model = nova.from_pretrained(source)
    program = compile_generator(model)
    program.save(path, weights="embed")
    print(f"{len(model.layers)} layers in {path}")
    print("greedy: ", *generate(nova.load(path), [1, 2, 3], 16))
    print("sampled:", *generate(program, [1, 2, 3], 16, temperature=0.8, top_k=40, top_p=0.95))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
