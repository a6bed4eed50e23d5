"""Models of GGUF files: metadata as a configuration, tensors by the names of Hugging Face.

Called by `nova.from_pretrained`. Quantized weights stay packed: `Matrix` computes from the blocks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from nova.core.dtypes import DType
from nova.errors import PretrainedError
from nova.frontends.gguf import GgufFile, PackedTensor
from nova.pretrained.config import ModelConfig
from nova.pretrained.decoder import LlamaModel, LlamaSizes, read_sizes
from nova.pretrained.weights import Weights

# Architecture -> its variant in `decoder.py`, and whether rotary pairs are neighbours: the
# converter reorders the rows of Llama's queries and keys.
_ARCHITECTURES = {
    "llama": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
}
_FACTORS = "rope_freqs.weight"
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Key of the metadata, after the architecture -> key of a config.json.
_KEYS = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
    "rope.freq_base": "rope_theta",
}


def build_gguf(file: GgufFile, source: str, target: DType | None) -> LlamaModel:
    """The model of a file."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise PretrainedError(
            f"general.architecture: {architecture!r} is not supported",
            where=source,
            hint=f"supported: {', '.join(_ARCHITECTURES)}",
        )
    variant, interleaved = _ARCHITECTURES[architecture]
    tensors = {_hugging_face_name(name): tensor for name, tensor in file.tensors.items()}
    factors = tensors.pop(_FACTORS, None)
    config = _read_config(file, architecture, source, tensors)
    sizes = replace(read_sizes(config, variant), interleaved=interleaved)
    if factors is not None:
        sizes = _scale_frequencies(sizes, factors, source)
    weights = Weights(tensors, source, target)
    model = LlamaModel(sizes, weights)
    weights.check_all_used()
    return model


def _read_config(
    file: GgufFile, architecture: str, source: str, tensors: dict[str, Any]
) -> ModelConfig:
    """The metadata under the keys of a config.json; errors name the key of the metadata."""
    metadata = {key.removeprefix(f"{architecture}."): value for key, value in file.metadata.items()}
    keys = ModelConfig(metadata, source)
    keys.require("expert_count", 0)
    values = {new: metadata[old] for old, new in _KEYS.items() if old in metadata}
    width = keys.size("embedding_length")
    heads = keys.size("attention.head_count")
    head_width = keys.size("attention.key_length", width // heads)
    keys.require("rope.dimension_count", head_width)
    keys.require("attention.value_length", head_width)
    embedding = tensors.get("model.embed_tokens.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise PretrainedError("the file has no matrix token_embd.weight", where=source)
    values["vocab_size"] = int(embedding.shape[0])
    values["tie_word_embeddings"] = "lm_head.weight" not in tensors
    scaling = keys.get("rope.scaling.type")
    if scaling not in (None, "none"):
        values["rope_scaling"] = {
            "rope_type": scaling,
            "factor": keys.number("rope.scaling.factor", 1.0),
        }
    if keys.get("attention.sliding_window"):
        raise keys.error("attention.sliding_window", "it is not supported in GGUF files")
    return ModelConfig(values, source)


def _scale_frequencies(sizes: LlamaSizes, factors: Any, source: str) -> LlamaSizes:
    """The frequencies divided by the factors of the file (the scaling of Llama 3.1)."""
    if isinstance(factors, PackedTensor) or factors.shape != sizes.frequencies.shape:
        raise PretrainedError(f"{_FACTORS} has shape {factors.shape}", where=source)
    frequencies = sizes.frequencies / np.asarray(factors, np.float32)
    return replace(sizes, frequencies=frequencies)


def _hugging_face_name(name: str) -> str:
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if layer is not None and layer[2] in _LAYER_NAMES:
        return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
    base, _, suffix = name.rpartition(".")
    return f"{_NAMES[base]}.{suffix}" if base in _NAMES else name
