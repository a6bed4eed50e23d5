"""GGUF files of small Llama models, written with the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    "vocab_size": 96,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_SCALE_OFFSETS = {"Q8_0": (0,), "Q4_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}


def random_blocks(gguf_type: Any, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Packed blocks of random numbers, with scales that give weights of about 0.1."""
    import gguf

    size, nbytes = gguf.GGML_QUANT_SIZES[gguf_type]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // size, nbytes), dtype=np.uint8)
    largest = {"Q8_0": 1e-3, "Q4_0": 1e-2, "Q4_K": 2e-4, "Q6_K": 3e-5}[gguf_type.name]
    for offset in _SCALE_OFFSETS[gguf_type.name]:
        scales = (rng.random((*blocks.shape[:-1], 1)) * largest).astype(np.float16)
        blocks[..., offset : offset + 2] = scales.view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def reordered(weight: np.ndarray, heads: int) -> np.ndarray:
    """The rows of queries or keys as llama.cpp's converter orders them: pairs are neighbours."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def ordered_as_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `reordered`."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def write_llama(path: Path, model: Any, type_name: str) -> None:
    """Write a Llama of `transformers`; its matrices become those of the file's type.

    Floats are converted. For a quantized type the matrices are random blocks, and the model gets
    the numbers that the gguf package decodes from them.
    """
    import gguf
    import torch

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_token_list(["a", "b", "c"])
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for i in range(config.num_hidden_layers):
        names |= {f"model.layers.{i}.{old}": f"blk.{i}.{new}" for old, new in _LAYER.items()}
    rng = np.random.default_rng(0)
    for name, parameter in model.state_dict().items():
        heads = {
            "q_proj": config.num_attention_heads,
            "k_proj": config.num_key_value_heads,
        }.get(name.split(".")[-2])
        array = parameter.numpy()
        target = f"{names[name.removesuffix('.weight')]}.weight"
        if array.ndim == 1 or type_name == "F32":
            writer.add_tensor(target, reordered(array, heads) if heads else array)
            continue
        type_ = gguf.GGMLQuantizationType[type_name]
        if type_name in ("F16", "BF16"):
            packed = gguf.quants.quantize(array, type_)
        else:
            packed = random_blocks(type_, array.shape, rng)
        writer.add_tensor(target, packed, raw_dtype=type_)
        decoded = gguf.quants.dequantize(packed, type_).reshape(array.shape)
        with torch.no_grad():
            values = ordered_as_halves(decoded, heads) if heads else decoded
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values, np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
