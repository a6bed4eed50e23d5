"""Models of transformers: text, speech and vision. Each entry makes (module, args)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_zoo.vision import import_torchvision

Case = tuple[nn.Module, tuple[Any, ...]]

_VOCABULARY, _LENGTH, _BATCH = 99, 16, 2


class Wrapped(nn.Module):
    """A model of transformers as a function of tensors, which returns tensors."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *args: torch.Tensor) -> Any:
        out = self.model(**dict(zip(self.names, args, strict=True)), **self.fixed)
        return out[0]


def _tokens() -> torch.Tensor:
    return torch.randint(1, _VOCABULARY, (_BATCH, _LENGTH))


_SMALL = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def _model(module: str, name: str, names: tuple[str, ...], args: Any, **options: Any) -> Any:
    """A case of the class `name` of a folder of transformers, with a configuration of options."""
    fixed = options.pop("fixed", {})
    config_name = options.pop("config", None)

    def make() -> Case:
        import_torchvision()  # transformers imports it where it is installed
        package = importlib.import_module(f"transformers.models.{module}")
        config_class = getattr(package, config_name or f"{name_prefix(name)}Config")
        model = getattr(package, name)(config_class(**options))
        return Wrapped(model, names, **fixed), tuple(make_arg() for make_arg in args)

    return make


def name_prefix(name: str) -> str:
    """`Bert` of `BertModel` and `BertForMaskedLM`."""
    return name.split("For")[0].removesuffix("Model").removesuffix("LMHead")


def _text(module: str, name: str, **options: Any) -> Any:
    return _model(module, name, ("input_ids",), (_tokens,), **{**_SMALL, **options})


def _decoder(module: str, name: str, **options: Any) -> Any:
    fixed = {"use_cache": False}
    return _text(module, name, fixed=fixed, **options)


def _pixels(size: int = 32) -> Any:
    return lambda: torch.randn(_BATCH, 3, size, size)


def _vision(module: str, name: str, size: int = 32, **options: Any) -> Any:
    sizes = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    options = {**sizes, "image_size": size, "patch_size": 8, **options}
    return _model(module, name, ("pixel_values",), (_pixels(size),), **options)


_SEQ2SEQ = ("input_ids", "decoder_input_ids")
_BART = {
    "vocab_size": _VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}
_NO_CACHE = {"use_cache": False}


def _clip() -> Case:
    import_torchvision()
    from transformers.models.clip import CLIPConfig, CLIPModel

    small = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    config = CLIPConfig(
        text_config={**_SMALL, "max_position_embeddings": 32, "eos_token_id": 2},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    return Wrapped(CLIPModel(config), ("input_ids", "pixel_values")), (_tokens(), _pixels()())


def _siglip() -> Case:
    import_torchvision()
    from transformers.models.siglip import SiglipConfig, SiglipModel

    small = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    config = SiglipConfig(
        text_config={**_SMALL, "max_position_embeddings": _LENGTH},
        vision_config={**small, "image_size": 32, "patch_size": 8},
    )
    return Wrapped(SiglipModel(config), ("input_ids", "pixel_values")), (_tokens(), _pixels()())


def _detr() -> Case:
    import_torchvision()
    from transformers.models.detr import DetrConfig, DetrModel
    from transformers.models.resnet import ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    options = {k: v for k, v in _BART.items() if k not in ("vocab_size", "max_position_embeddings")}
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=4,
        **options,
    )
    return Wrapped(DetrModel(config), ("pixel_values",)), (_pixels(64)(),)


MODELS: dict[str, Callable[[], Case]] = {
    "bert": _text("bert", "BertForMaskedLM"),
    "roberta": _text("roberta", "RobertaForMaskedLM", max_position_embeddings=40),
    "distilbert": _model(
        "distilbert",
        "DistilBertForMaskedLM",
        ("input_ids",),
        (_tokens,),
        vocab_size=_VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        config="DistilBertConfig",
    ),
    "albert": _text("albert", "AlbertForMaskedLM", embedding_size=16),
    "electra": _text("electra", "ElectraForMaskedLM", embedding_size=16),
    "deberta_v2": _text(
        "deberta_v2",
        "DebertaV2ForMaskedLM",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=8,
    ),
    "mpnet": _text("mpnet", "MPNetForMaskedLM"),
    "gpt2": _model(
        "gpt2",
        "GPT2LMHeadModel",
        ("input_ids",),
        (_tokens,),
        vocab_size=_VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=32,
        fixed=_NO_CACHE,
        config="GPT2Config",
    ),
    "gpt_neox": _decoder("gpt_neox", "GPTNeoXForCausalLM"),
    "gptj": _model(
        "gptj",
        "GPTJForCausalLM",
        ("input_ids",),
        (_tokens,),
        vocab_size=_VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=32,
        rotary_dim=4,
        fixed=_NO_CACHE,
    ),
    "opt": _decoder(
        "opt", "OPTForCausalLM", ffn_dim=64, max_position_embeddings=32, word_embed_proj_dim=32
    ),
    "bloom": _model(
        "bloom",
        "BloomForCausalLM",
        ("input_ids",),
        (_tokens,),
        vocab_size=_VOCABULARY,
        hidden_size=32,
        n_layer=2,
        n_head=4,
        fixed=_NO_CACHE,
    ),
    "llama": _decoder("llama", "LlamaForCausalLM", num_key_value_heads=2),
    "qwen2": _decoder("qwen2", "Qwen2ForCausalLM", num_key_value_heads=2),
    "qwen3": _decoder("qwen3", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=8),
    "mistral": _decoder("mistral", "MistralForCausalLM", num_key_value_heads=2, sliding_window=8),
    "gemma": _decoder("gemma", "GemmaForCausalLM", num_key_value_heads=2, head_dim=8),
    "phi": _decoder("phi", "PhiForCausalLM"),
    "mamba": _decoder("mamba", "MambaForCausalLM", state_size=4),
    "t5": _model(
        "t5",
        "T5ForConditionalGeneration",
        _SEQ2SEQ,
        (_tokens, _tokens),
        vocab_size=_VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        fixed=_NO_CACHE,
    ),
    "bart": _model(
        "bart",
        "BartForConditionalGeneration",
        _SEQ2SEQ,
        (_tokens, _tokens),
        fixed=_NO_CACHE,
        **_BART,
    ),
    "pegasus": _model(
        "pegasus",
        "PegasusForConditionalGeneration",
        _SEQ2SEQ,
        (_tokens, _tokens),
        fixed=_NO_CACHE,
        **_BART,
    ),
    "whisper": _model(
        "whisper",
        "WhisperForConditionalGeneration",
        ("input_features", "decoder_input_ids"),
        (lambda: torch.randn(_BATCH, 8, 32), _tokens),
        fixed=_NO_CACHE,
        **{k: v for k, v in _BART.items() if k != "max_position_embeddings"},
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    "clip": _clip,
    "siglip": _siglip,
    "vit (transformers)": _vision("vit", "ViTForImageClassification"),
    "deit": _vision("deit", "DeiTForImageClassification"),
    "beit": _vision("beit", "BeitForImageClassification", use_relative_position_bias=True),
    "dinov2": _vision("dinov2", "Dinov2ForImageClassification", mlp_ratio=2),
    "segformer": _model(
        "segformer",
        "SegformerForSemanticSegmentation",
        ("pixel_values",),
        (_pixels(64),),
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 16, 32],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=16,
        drop_path_rate=0.0,
    ),
    "detr": _detr,
}
