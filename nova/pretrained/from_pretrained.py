"""`nova.from_pretrained`: a model from a folder of Hugging Face, or from a GGUF file.

`ARCHITECTURES` is the table from the name in `config.json` to the function that builds the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nova.api.precision import PRECISIONS, parse_precision
from nova.core.dtypes import DType, dtype, f32
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError, MissingFileError, PretrainedError
from nova.frontends.gguf import PackedTensor, map_gguf
from nova.frontends.weights import map_folder, read_json
from nova.nn import Module
from nova.pretrained.bert import BertForMaskedLM, BertForSequenceClassification, BertModel
from nova.pretrained.config import ModelConfig
from nova.pretrained.decoder import LlamaModel, read_sizes
from nova.pretrained.gguf_model import build_gguf
from nova.pretrained.gpt2 import GPT2Model
from nova.pretrained.t5 import T5Model
from nova.pretrained.weights import Weights

Builder = Callable[[ModelConfig, Weights], Module]


def _decoder(variant: str) -> Builder:
    return lambda config, weights: LlamaModel(read_sizes(config, variant), weights)


ARCHITECTURES: dict[str, Builder] = {
    "LlamaForCausalLM": _decoder("llama"),
    "MistralForCausalLM": _decoder("mistral"),
    "Qwen2ForCausalLM": _decoder("qwen2"),
    "Qwen3ForCausalLM": _decoder("qwen3"),
    "GPT2LMHeadModel": GPT2Model,
    "BertModel": BertModel,
    "BertForMaskedLM": BertForMaskedLM,
    "BertForSequenceClassification": BertForSequenceClassification,
    "T5ForConditionalGeneration": T5Model,
}
# Folders without `architectures`: the model of the type that a language model is.
_BY_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertModel",
    "t5": "T5ForConditionalGeneration",
}
_PRECISIONS = {"f32": f32, **PRECISIONS}


@user_facing
def from_pretrained(path: str | os.PathLike[str], *, precision: str | None = None) -> Any:
    """The model of a Hugging Face folder (`config.json` and safetensors), or of a GGUF file.

    The weights are mapped. They stay in their dtype, on the pages of the files, unless `precision`
    ("f32", "bf16" or "f16") converts them; quantized weights of GGUF files stay packed, and compute
    in f32. The result is an `nn.Module` for inference; decoders and T5 have `generate`. See
    docs/weights.md.
    """
    target = None if precision is None else parse_precision(precision, _PRECISIONS)
    folder = Path(path)
    if folder.suffix == ".gguf":
        return _read_gguf(folder, target)
    source = folder / "config.json"
    if not source.is_file():
        raise MissingFileError(
            f"{str(path)!r} is not a folder with a config.json",
            where=str(source),
            hint="give a folder that save_pretrained wrote, or a .gguf file; nothing is downloaded",
        )
    config = ModelConfig(read_json(source), str(source))
    build = ARCHITECTURES[_architecture(config)]
    if config.get("quantization_config") is not None:
        raise config.error("quantization_config", "quantized weights are read from GGUF files only")
    arrays = map_folder(folder)
    weights = Weights(arrays, str(folder), target or _common_dtype(arrays))
    model = build(config, weights)
    weights.check_all_used()
    return model.eval()


def _read_gguf(path: Path, target: DType | None) -> Module:
    file = map_gguf(path)
    is_packed = any(isinstance(t, PackedTensor) for t in file.tensors.values())
    if is_packed and target not in (None, f32):
        raise AttributeValueError(
            f"precision {target} of a file with quantized weights",
            where=str(user_location()),
            hint="quantized weights compute in f32: leave precision out",
        )
    default = f32 if is_packed else _common_dtype(file.tensors)
    return build_gguf(file, str(path), target or default).eval()


def _architecture(config: ModelConfig) -> str:
    names = config.get("architectures")
    if isinstance(names, list) and names:
        key, name = "architectures", names[0]
    else:
        key, name = "model_type", _BY_TYPE.get(str(config.get("model_type")))
        name = name or config.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise PretrainedError(
            f"{key}: {name!r} is not supported",
            where=config.source,
            hint=f"supported: {', '.join(ARCHITECTURES)}; nova.from_torch takes other models",
        )
    return name


def _common_dtype(arrays: Mapping[str, Any]) -> DType | None:
    """The float dtype of most of the weights' bytes: norms may be stored in a wider one."""
    sizes: dict[Any, int] = {}
    for array in arrays.values():
        if array.dtype in [precision.numpy for precision in _PRECISIONS.values()]:
            sizes[array.dtype] = sizes.get(array.dtype, 0) + array.nbytes
    return dtype(max(sizes, key=lambda d: sizes[d])) if sizes else None
