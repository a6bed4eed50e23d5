"""Rotary positions (Su et al., 2021): the angles of a configuration, with their scalings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nova.pretrained.config import ModelConfig

_TYPES = ("default", "linear", "llama3")


def rope_frequencies(config: ModelConfig, width: int) -> np.ndarray:
    """The angle per position of each pair of a head, in f32."""
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    options = config.get(key) or {}
    if not isinstance(options, Mapping):
        raise config.error(key, f"it must be a table, not {options!r}")
    rope = ModelConfig({"rope_theta": config.get("rope_theta"), **options}, config.source)
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type not in _TYPES:
        raise config.error(
            f"{key}.rope_type", f"{rope_type!r} is not supported", f"supported: {', '.join(_TYPES)}"
        )
    for table in (config, rope):
        table.require("partial_rotary_factor", 1.0)
    pairs = np.arange(0, width, 2, dtype=np.float64) / width
    angles = rope.number("rope_theta", 10000.0) ** -pairs
    if rope_type == "linear":
        angles = angles / rope.number("factor", 1.0)
    elif rope_type == "llama3":
        angles = _llama3(rope, angles)
    return angles.astype(np.float32)


def _llama3(rope: ModelConfig, angles: np.ndarray) -> np.ndarray:
    """Llama 3.1: long waves are stretched, short ones stay, those between are averaged."""
    missing: Any = -1
    old = rope.number("original_max_position_embeddings", missing)
    low, high = rope.number("low_freq_factor", missing), rope.number("high_freq_factor", missing)
    if low >= high:
        raise rope.error("high_freq_factor", f"{high} is not above low_freq_factor, {low}")
    share = np.clip((old * angles / (2 * np.pi) - low) / (high - low), 0, 1)
    return (1 - share) * angles / rope.number("factor", missing) + share * angles
