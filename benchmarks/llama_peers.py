"""One step of the Llama decoder of `llama.py` in torch and in jax, with the same static cache.

In: the sizes and weights of examples/llama.py. Out: functions from a token and its position to the
next token; the cache is updated in place in torch, and returned in jax.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def load_example() -> Any:
    """examples/llama.py as a module."""
    path = Path(__file__).parents[1] / "examples" / "llama.py"
    spec = importlib.util.spec_from_file_location("llama_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _layers(config: Any, weights: Mapping[str, np.ndarray]) -> list[list[np.ndarray]]:
    """The two norms and the four matrices of each layer, joined as in the example."""
    layers = []
    for i in range(config.num_hidden_layers):
        part = {
            name: weights[f"model.layers.{i}.{name}.weight"]
            for name in (
                *(f"self_attn.{p}_proj" for p in "qkvo"),
                *(f"mlp.{p}_proj" for p in ("gate", "up", "down")),
                "input_layernorm",
                "post_attention_layernorm",
            )
        }
        layers.append(
            [
                part["input_layernorm"],
                np.concatenate([part[f"self_attn.{p}_proj"] for p in "qkv"]),
                part["self_attn.o_proj"],
                part["post_attention_layernorm"],
                np.concatenate([part["mlp.gate_proj"], part["mlp.up_proj"]]),
                part["mlp.down_proj"],
            ]
        )
    return layers


def torch_step(
    config: Any, weights: Mapping[str, np.ndarray], context: int, device: str = "cpu"
) -> tuple[Callable[..., Any], list[Any]]:
    """The step, and the caches of the layers, which it updates."""
    import torch
    import torch.nn.functional as tf

    def tensor(array: np.ndarray) -> Any:
        if array.dtype == np.float32:
            return torch.from_numpy(array).to(device).to(torch.bfloat16)
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)

    heads, keys, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    layers = [[tensor(w) for w in layer] for layer in _layers(config, weights)]
    embedding = tensor(weights["model.embed_tokens.weight"])
    head, last_norm = tensor(weights["lm_head.weight"]), tensor(weights["model.norm.weight"])
    frequencies = torch.from_numpy(config.frequencies().astype(np.float32)).to(device)
    caches = [
        torch.zeros((2, 1, keys, context, width), dtype=torch.bfloat16, device=device)
        for _ in range(config.num_hidden_layers)
    ]
    places = torch.arange(context, device=device)

    def norm(x: Any, weight: Any) -> Any:
        return tf.rms_norm(x, (x.shape[-1],), weight, config.rms_norm_eps)

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.float().chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)

    def step(token: Any, position: Any, caches: list[Any]) -> Any:
        x = embedding[token]
        angles = position * frequencies
        cos, sin = angles.cos(), angles.sin()
        mask = (places <= position)[None, None, None]
        for (norm1, qkv, out, norm2, gate_up, down), cache in zip(layers, caches, strict=True):
            parts = tf.linear(norm(x, norm1), qkv).view(heads + 2 * keys, width)
            rotated = rotate(parts[: heads + keys], cos, sin)
            cache[0].index_copy_(2, position, rotated[heads:].view(1, keys, 1, width))
            cache[1].index_copy_(2, position, parts[heads + keys :].view(1, keys, 1, width))
            q = rotated[:heads].view(1, heads, 1, width)
            attended = tf.scaled_dot_product_attention(
                q, cache[0], cache[1], attn_mask=mask, enable_gqa=True
            )
            x = x + tf.linear(attended.reshape(1, heads * width), out)
            gate, up = tf.linear(norm(x, norm2), gate_up).chunk(2, dim=-1)
            x = x + tf.linear(tf.silu(gate) * up, down)
        return tf.linear(norm(x, last_norm), head)[0].argmax().reshape(1)

    return step, caches


def jax_weights(config: Any, weights: Mapping[str, np.ndarray]) -> Any:
    """The weights as a tree of bf16 arrays."""
    import jax.numpy as jnp

    def array(value: np.ndarray) -> Any:
        return jnp.asarray(value, jnp.bfloat16)

    names = ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")
    layers = [[array(w) for w in layer] for layer in _layers(config, weights)]
    return [*(array(weights[n]) for n in names), layers]


def jax_step(config: Any) -> Callable[..., Any]:
    """(weights, token, position, caches) -> (next token, caches)."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    heads, keys, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    frequencies = config.frequencies().astype(np.float32)

    def norm(x: Any, weight: Any) -> Any:
        wide = x.astype(jnp.float32)
        scale = lax.rsqrt((wide * wide).mean(-1, keepdims=True) + config.rms_norm_eps)
        return (wide * scale * weight).astype(x.dtype)

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = jnp.split(x.astype(jnp.float32), 2, -1)
        rotated = [first * cos - second * sin, second * cos + first * sin]
        return jnp.concatenate(rotated, -1).astype(x.dtype)

    def product(x: Any, weight: Any) -> Any:
        return jnp.einsum("bi,oi->bo", x, weight, preferred_element_type=jnp.float32).astype(
            x.dtype
        )

    def step(weights: Any, token: Any, position: Any, caches: Any) -> Any:
        embedding, head, last_norm, layers = weights
        x = embedding[token]
        angles = position.astype(jnp.float32) * frequencies
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        hidden = jnp.arange(caches.shape[3]) > position
        for i, (norm1, qkv, out, norm2, gate_up, down) in enumerate(layers):
            parts = product(norm(x, norm1), qkv).reshape(heads + 2 * keys, width)
            rotated = rotate(parts[: heads + keys], cos, sin)
            new = jnp.stack([rotated[heads:], parts[heads + keys :]])[None, :, :, None]
            caches = lax.dynamic_update_slice(caches, new, (i, 0, 0, position, 0))
            q = rotated[:heads].reshape(keys, heads // keys, width)
            scores = jnp.einsum("kgd,ksd->kgs", q, caches[i, 0], preferred_element_type=jnp.float32)
            scores = jnp.where(hidden, -jnp.inf, scores * width**-0.5)
            shares = jax.nn.softmax(scores, -1).astype(x.dtype)
            attended = jnp.einsum("kgs,ksd->kgd", shares, caches[i, 1])
            x = x + product(attended.reshape(1, heads * width), out)
            gate, up = jnp.split(product(norm(x, norm2), gate_up), 2, -1)
            x = x + product(jax.nn.silu(gate) * up, down)
        scores = product(norm(x, last_norm), head)
        return scores[0].argmax().reshape(1), caches

    return step
