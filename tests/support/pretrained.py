"""Small models of `transformers` with random weights, and their logits and greedy tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

DECODER = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
GPT2 = {
    "vocab_size": 96,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 72,
    "resid_pdrop": 0.0,
}
BERT = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
T5 = {
    "vocab_size": 96,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
# Label -> config class, model class, options.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", DECODER),
    "llama3": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {**DECODER, "rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 12},
    ),
    "llama biases": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            **DECODER,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
        },
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**DECODER, "sliding_window": 9}),
    "mistral full": ("MistralConfig", "MistralForCausalLM", {**DECODER, "sliding_window": None}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", DECODER),
    "qwen2 windows": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**DECODER, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**DECODER, "head_dim": 16}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2),
    "gpt2 scaled": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {
            **GPT2,
            "scale_attn_by_inverse_layer_idx": True,
            "n_inner": 40,
            "activation_function": "relu",
            "tie_word_embeddings": False,
        },
    ),
    "bert": ("BertConfig", "BertModel", BERT),
    "bert masked": ("BertConfig", "BertForMaskedLM", BERT),
    "bert classes": ("BertConfig", "BertForSequenceClassification", {**BERT, "num_labels": 5}),
    "t5": ("T5Config", "T5ForConditionalGeneration", T5),
    "t5 gated": (
        "T5Config",
        "T5ForConditionalGeneration",
        {
            **T5,
            "feed_forward_proj": "gated-gelu",
            "num_decoder_layers": 1,
            "tie_word_embeddings": False,
        },
    ),
}


def reference(label: str, **options: Any) -> Any:
    """A model of `transformers` in f32, with weights large enough to matter."""
    import torch
    import transformers

    config_name, model_name, sizes = MODELS[label]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**{**sizes, **options})
    model = getattr(transformers, model_name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 1.2 * min(parameter.shape) ** -0.5)
            elif "bias" in name:
                parameter.normal_(0, 0.3)
            else:
                parameter.normal_(1, 0.2)
    if hasattr(model, "generation_config"):
        model.generation_config.eos_token_id = None
    return model


def tokens(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, 96, shape)


def greedy(model: Any, prompt: list[int], new: int) -> list[int]:
    import torch

    sequence = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(new):
            last = model(sequence).logits[0, -1].float()
            sequence = torch.cat([sequence, last.argmax().reshape(1, 1)], 1)
    return sequence[0, len(prompt) :].tolist()
