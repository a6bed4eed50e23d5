"""`Weights`: the tensors of a file or folder, given to a model by name.

In: arrays by name (mapped files). Out: parameters on the same memory, checked for shape, in one
float dtype. `check_all_used` refuses a file with tensors that the model did not ask for: they would
silently not take part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nova.core.dtypes import DType, dtype
from nova.errors import DTypeError, PretrainedError
from nova.frontends.gguf import PackedTensor
from nova.nn import Parameter

# Buffers that old versions of the libraries stored, and that follow from the configuration.
_DERIVED = re.compile(
    r"(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias|embeddings\.position_ids)$"
)


class Weights:
    """Tensors below a prefix. A scope shares the record of used names with its parent."""

    def __init__(
        self,
        arrays: Mapping[str, Any],
        source: str,
        target: DType | None = None,
        prefix: str = "",
        used: set[str] | None = None,
    ):
        self.arrays, self.source, self.prefix = arrays, source, prefix
        self.dtype = target
        self._used: set[str] = set() if used is None else used

    def scope(self, name: str) -> Weights:
        """The tensors whose names begin with `name` and a dot."""
        return Weights(self.arrays, self.source, self.dtype, f"{self.prefix}{name}.", self._used)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.arrays

    def ignore(self, name: str) -> None:
        """Let a name count as used: a copy of another tensor, which some files have."""
        self._used.add(self.prefix + name)

    def take(self, name: str) -> Any:
        """The tensor of a name, which then counts as used."""
        path = self.prefix + name
        if path not in self.arrays:
            raise PretrainedError(
                f"the model has a weight {path!r}, and the file does not",
                where=self.source,
                hint="the configuration and the weights are of different models, or one is cut",
            )
        self._used.add(path)
        return self.arrays[path]

    def packed(self, name: str, shape: tuple[int, ...]) -> PackedTensor | None:
        """The tensor of a name if it is quantized, checked for its shape."""
        tensor = self.take(name)
        if not isinstance(tensor, PackedTensor):
            return None
        self._check_shape(name, tensor.shape, shape)
        return tensor

    def parameter(self, name: str, shape: tuple[int, ...]) -> Parameter:
        """The parameter of a name, on the memory of the file unless its dtype changes."""
        array, path = self.take(name), self.prefix + name
        self._check_shape(name, array.shape, shape)
        if isinstance(array, PackedTensor):
            raise PretrainedError(
                f"weight {path!r} is quantized ({array.format}), and only matrices may be",
                where=self.source,
            )
        stored = _float_dtype(array, path, self.source)
        return Parameter(array, requires_grad=False, dtype=self.dtype or stored, copy=False)

    def _check_shape(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if shape != expected:
            raise PretrainedError(
                f"weight {self.prefix + name!r} has shape {shape}, the configuration says "
                f"{expected}",
                where=self.source,
            )

    def check_all_used(self) -> None:
        """Refuse tensors that no part of the model took."""
        unused = [n for n in self.arrays if n not in self._used and not _DERIVED.search(n)]
        if unused:
            count = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
            raise PretrainedError(
                f"the file has a weight {unused[0]!r}{count}, and the model does not",
                where=self.source,
                hint="the configuration and the weights are of different models",
            )


def _float_dtype(array: np.ndarray, path: str, source: str) -> DType:
    try:
        stored = dtype(array.dtype)
    except DTypeError:
        stored = None
    if stored is None or not stored.is_float:
        raise PretrainedError(
            f"weight {path!r} is {array.dtype}, which models do not compute in",
            where=source,
            hint="store f32, f16 or bf16 weights, or use a GGUF file for quantized ones",
        )
    return stored
