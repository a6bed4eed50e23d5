"""A Llama-style decoder that writes: prefill, KV cache and sampling loop in one program.

    python examples/llama.py FOLDER OUT.nova        # a folder as Hugging Face has it
    python examples/llama.py --random OUT.nova      # small, with random weights

The model has rotary positions, grouped heads, RMS norms and SwiGLU. `compile_generator` makes one
program of all: it takes a prompt of any length up to `context`, reads it in chunks into the cache,
and draws tokens until a stop token or a limit. The file runs from Python, and from C without
anything else (examples/c/llama.c).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nova
from nova import nn
from nova.frontends.weights import map_folder


class Sampling(NamedTuple):
    """How tokens are drawn: arrays, or tensors of a program.

    At temperature 0 it is the most likely one. `top_k` (0: all) limits it to that many tokens, then
    `top_p` to the fewest with that probability. The random numbers are a function of seed and
    position (Philox).
    """

    temperature: Any
    top_k: Any
    top_p: Any
    seed: Any


Caches = list[tuple[nova.Tensor, nova.Tensor]]
"""The keys and values of each layer: tensors of (key heads, context, head width)."""


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
    rope_scaling: Mapping[str, Any] | None = None
    tie_word_embeddings: bool = False

    @staticmethod
    def read(path: str | Path) -> Config:
        """The sizes in a `config.json`."""
        return Config.of(json.loads(Path(path).read_text()))

    @staticmethod
    def of(values: Mapping[str, Any]) -> Config:
        """The sizes in the values of a `config.json`, of all versions of its layout."""
        for name in ("attention_bias", "mlp_bias"):
            if values.get(name):
                raise ValueError(f"{name}: layers with biases are not supported")
        rope = dict(values.get("rope_parameters") or values.get("rope_scaling") or {})
        heads = values["num_attention_heads"]
        fields = {name: values[name] for name in Config.__dataclass_fields__ if name in values}
        fields["num_key_value_heads"] = values.get("num_key_value_heads") or heads
        fields["head_dim"] = values.get("head_dim") or values["hidden_size"] // heads
        fields["rope_theta"] = rope.get("rope_theta") or values.get("rope_theta") or 10000.0
        scaled = rope.get("rope_type", rope.get("type", "default")) != "default"
        return Config(**{**fields, "rope_scaling": rope if scaled else None})

    def frequencies(self) -> np.ndarray:
        """The angle per position of each pair of a head."""
        pairs = np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        angles = self.rope_theta**-pairs
        scaling = self.rope_scaling
        if scaling is None:
            return angles
        if scaling.get("rope_type", scaling.get("type")) != "llama3":
            raise ValueError(f"rope_scaling: only llama3 is supported, not {dict(scaling)}")
        # Llama 3.1: long waves are stretched, short ones stay, those between are averaged.
        waves = 2 * np.pi / angles
        old = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        share = np.clip((old / waves - low) / (high - low), 0, 1)
        return (1 - share) * angles / scaling["factor"] + share * angles


# --- weights --------------------------------------------------------------------------------------


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


# --- the model ------------------------------------------------------------------------------------


class Layer(nn.Module):
    """Attention over the cache and SwiGLU, each after an RMS norm, with residual connections.

    The matrices that have the same operand are one matrix: queries, keys and values; gate and up.
    """

    def __init__(self, config: Config, weights: Mapping[str, np.ndarray], dtype: Any):
        def parameter(*names: str) -> nn.Parameter:
            values = [np.asarray(weights[f"{name}.weight"]) for name in names]
            return nn.Parameter(np.concatenate(values), requires_grad=False, dtype=dtype)

        self.config = config
        self.norm1 = parameter("input_layernorm")
        self.qkv = parameter(*(f"self_attn.{part}_proj" for part in "qkv"))
        self.out = parameter("self_attn.o_proj")
        self.norm2 = parameter("post_attention_layernorm")
        self.gate_up = parameter("mlp.gate_proj", "mlp.up_proj")
        self.down = parameter("mlp.down_proj")

    def forward(
        self, x: Any, start: Any, angles: tuple[Any, Any], visible: Any, cache: tuple[Any, Any]
    ) -> tuple[Any, tuple[Any, Any]]:
        """New rows of x at positions from `start` on, and the cache with their keys and values."""
        config, count = self.config, x.shape[0]
        heads, keys, width = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        projected = nova.rms_norm(x, self.norm1, eps=config.rms_norm_eps) @ self.qkv.T
        parts = projected.reshape((count, heads + 2 * keys, width)).transpose((1, 0, 2))
        rotated = nova.rope(parts[: heads + keys], *angles)
        k = nova.dynamic_update_slice(cache[0], rotated[heads:], (0, start, 0))
        v = nova.dynamic_update_slice(cache[1], parts[heads + keys :], (0, start, 0))
        # Heads of a group attend to the same keys: their rows are those of one attention.
        group = heads // keys
        q = rotated[:heads].reshape((keys, group * count, width))
        mask = nova.broadcast_to(visible, (group, *visible.shape))
        attended = nova.scaled_dot_product_attention(
            q, k, v, mask.reshape((group * count, visible.shape[1]))
        )
        attended = attended.reshape((heads, count, width)).transpose((1, 0, 2))
        x = x + attended.reshape((count, heads * width)) @ self.out.T
        hidden = nova.rms_norm(x, self.norm2, eps=config.rms_norm_eps) @ self.gate_up.T
        return x + nova.swiglu(hidden) @ self.down.T, (k, v)


class Llama(nn.Module):
    """A decoder with weights by the names of Hugging Face, converted to `dtype`."""

    def __init__(self, config: Config, weights: Mapping[str, np.ndarray], dtype: Any = nova.f32):
        def parameter(name: str) -> nn.Parameter:
            return nn.Parameter(np.asarray(weights[name]), requires_grad=False, dtype=dtype)

        self.config = config
        self.dtype = dtype
        self.embedding = parameter("model.embed_tokens.weight")
        self.layers = nn.ModuleList(
            [
                Layer(config, _layer_weights(weights, f"model.layers.{i}."), dtype)
                for i in range(config.num_hidden_layers)
            ]
        )
        self.norm = parameter("model.norm.weight")
        tied = config.tie_word_embeddings
        self.head = self.embedding if tied else parameter("lm_head.weight")

    @staticmethod
    def read(folder: str | Path, dtype: Any = None) -> Llama:
        """The model of a Hugging Face folder, in the dtype of its weights or another."""
        weights = map_folder(folder)
        dtype = dtype or nova.tensor(weights["model.norm.weight"]).dtype
        return Llama(Config.read(Path(folder) / "config.json"), weights, dtype)

    def caches(self, context: int) -> Caches:
        """Empty caches."""
        shape = (self.config.num_key_value_heads, context, self.config.head_dim)
        empty = nova.zeros(shape, dtype=self.dtype)
        return [(empty, empty) for _ in self.layers]

    def forward(self, tokens: Any, start: Any, caches: Caches) -> tuple[Any, Caches]:
        """The hidden rows of tokens at positions from `start` on, and the caches with them."""
        context = caches[0][0].shape[1]
        positions = start + nova.arange(tokens.shape[0])
        phases = nova.cast(positions, dtype=nova.f32)[:, None] * self._frequencies()
        angles = (nova.cos(phases), nova.sin(phases))
        visible = nova.arange(context) <= positions[:, None]
        x = nova.embedding(self.embedding, tokens)
        updated = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, start, angles, visible, cache)
            updated.append(cache)
        return x, updated

    def scores(self, x: Any) -> Any:
        """The logits of hidden rows, in f32."""
        x = nova.rms_norm(x, self.norm, eps=self.config.rms_norm_eps)
        return nova.cast(x @ self.head.T, dtype=nova.f32)

    def _frequencies(self) -> Any:
        return nova.tensor(self.config.frequencies().astype(np.float32))

    # --- generation -----------------------------------------------------------------------------

    def read_prompt(self, tokens: Any, length: Any, caches: Caches, chunk: int) -> tuple[Any, Any]:
        """The last hidden row of a prompt and the caches, read `chunk` tokens at a time.

        The last chunk may end after the prompt. Its other rows are overwritten before a token may
        attend to them.
        """

        def read(state: Any) -> Any:
            start, _, caches = state
            part = nova.dynamic_slice(tokens, (start,), (chunk,))
            rows, caches = self.forward(part, start, caches)
            last = nova.minimum(length - 1 - start, chunk - 1)
            row = nova.dynamic_slice(rows, (last, 0), (1, self.config.hidden_size))
            return start + chunk, row, caches

        row = nova.zeros((1, self.config.hidden_size), dtype=self.dtype)
        state = nova.while_loop(lambda state: state[0] < length, read, (0, row, caches))
        return state[1], state[2]

    def generate(
        self,
        tokens: Any,
        length: Any,
        limit: Any,
        sampling: Sampling,
        stop: Any,
        chunk: int = 32,
    ) -> tuple[Any, Any]:
        """`tokens` with those after the prompt of `length` replaced by new ones, and their end.

        It ends at `limit` tokens or after a token `stop`. At least one token is drawn.
        """
        context = tokens.shape[0]
        if context % chunk:
            raise ValueError(f"a context of {context} is not a multiple of {chunk}")
        row, caches = self.read_prompt(tokens, length, self.caches(context), chunk)
        token = sample(self.scores(row)[0], sampling, length)
        tokens = nova.dynamic_update_slice(tokens, token[None], (length,))

        def write(state: Any) -> Any:
            count, token, tokens, caches = state
            row, caches = self.forward(token[None], count - 1, caches)
            token = sample(self.scores(row)[0], sampling, count)
            tokens = nova.dynamic_update_slice(tokens, token[None], (count,))
            return count + 1, token, tokens, caches

        def goes_on(state: Any) -> Any:
            return (state[0] < nova.minimum(limit, context)) & (state[1] != stop)

        state = nova.while_loop(goes_on, write, (length + 1, token, tokens, caches))
        return state[2], state[0]


def _layer_weights(weights: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


# --- sampling -------------------------------------------------------------------------------------


def sample(logits: Any, sampling: Sampling, position: Any) -> Any:
    """The token of a position, drawn by its logits."""
    temperature, top_k, top_p, seed = sampling

    def draw() -> Any:
        scaled = logits / temperature
        scaled = scaled - scaled.max()
        count = nova.where(top_k > 0, top_k, logits.shape[0])
        least = _threshold(scaled, lambda chosen: nova.cast(chosen, dtype=nova.i64).sum() >= count)
        weights = nova.where(scaled >= least, nova.exp(scaled), 0.0)
        mass = weights.sum() * top_p
        least = nova.maximum(
            least, _threshold(scaled, lambda chosen: nova.where(chosen, weights, 0.0).sum() >= mass)
        )
        # The largest of the logits with Gumbel noise is a draw from their softmax.
        uniform = nova.uniform(seed + position * (1 << 32), shape=logits.shape)
        noisy = scaled - nova.log(-nova.log(uniform))
        return nova.argmax(nova.where(scaled >= least, noisy, float("-inf")))

    return nova.cond(temperature > 0, draw, lambda: nova.argmax(logits))


def _threshold(values: Any, enough: Any) -> Any:
    """The largest bound for which the values that reach it are `enough`, by bisection.

    The largest value is 0. Values below -100 have no weight in f32. After 40 steps no other float
    is between the two ends.
    """

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = (low + high) / 2
        fits = enough(values >= middle)
        return nova.where(fits, middle, low), nova.where(fits, high, middle)

    return nova.fori_loop(0, 40, halve, (np.float32(-100), np.float32(1e-6)))[0]


# --- programs -------------------------------------------------------------------------------------


def compile_generator(
    model: Llama, context: int = 256, chunk: int = 32, target: str | None = None, **options: Any
) -> nova.Compiled:
    """One program: tokens and how to go on -> tokens, and the position after the last.

    Its inputs are tokens, length, limit, temperature, top_k, top_p, seed and stop. `options` are
    those of `nova.compile`.
    """
    tokens = nova.input((context,), nova.i64, name="tokens")
    scalars = {
        name: nova.input((), nova.f32 if name in ("temperature", "top_p") else nova.i64, name=name)
        for name in ("length", "limit", "temperature", "top_k", "top_p", "seed", "stop")
    }
    length, limit, *sampling, stop = scalars.values()
    outputs = model.generate(tokens, length, limit, Sampling(*sampling), stop, chunk)
    inputs = [tokens, *scalars.values()]
    params = list(model.parameters())
    return nova.compile(list(outputs), inputs=inputs, params=params, target=target, **options)


def generate(
    program: Any,
    prompt: list[int],
    new: int = 32,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: int = -1,
) -> list[int]:
    """The tokens that a compiled or loaded program writes after a prompt."""
    context = program.signature.inputs[0].shape[0]
    if not 0 < len(prompt) < context:
        raise ValueError(f"a prompt has 1 to {context - 1} tokens, not {len(prompt)}")
    tokens = np.zeros(context, np.int64)
    tokens[: len(prompt)] = prompt
    length = np.int64(len(prompt))
    sampling = np.float32(temperature), np.int64(top_k), np.float32(top_p), np.int64(seed)
    written, end = program.forward(tokens, length, length + new, *sampling, np.int64(stop))
    return [int(t) for t in written[len(prompt) : int(end)]]


def main(source: str, path: str) -> None:
    if source == "--random":
        config = Config()
        model = Llama(config, random_weights(config), nova.bf16)
    else:
        model = Llama.read(source)
    program = compile_generator(model)
    program.save(path, weights="embed")
    print(f"{model.config.num_hidden_layers} layers in {path}")
    print("greedy: ", *generate(nova.load(path), [1, 2, 3], 16))
    print("sampled:", *generate(program, [1, 2, 3], 16, temperature=0.8, top_k=40, top_p=0.95))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
