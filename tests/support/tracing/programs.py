"""Compiled programs that are large enough to have tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

import nova


def two_chains(**options: Any) -> tuple[nova.Compiled, list[np.ndarray]]:
    """Two independent chains of products and their sum, and arrays to run it with."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((512, 512)).astype("f4") / 23 for _ in range(4)]
    x, a, b, c = (nova.tensor(v, name=n) for n, v in zip("xabc", arrays, strict=True))
    remaining = nova.gelu(x @ a) @ b
    right = nova.tanh(x @ c) @ a
    program = nova.compile(nova.softmax(remaining) + right, inputs=[x, a, b, c], **options)
    return program, arrays
