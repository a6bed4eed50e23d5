"""Passes that an import skips by the text of the program would not have changed the program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax_features import FEATURES

from nova.frontends.import_mlir import import_program
from nova.frontends.source import read_source
from nova.passes.base import Pass, UpstreamPass
from nova.passes.pipelines import import_linalg, legalize_stablehlo

_X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
_B = np.arange(64, dtype=np.int8).reshape(8, 8)
_MORE: dict[str, Any] = {
    "top_k": (lambda x: lax.top_k(x, 2), (_X,)),
    "sort": (lambda x: jnp.sort(x, axis=0), (_X,)),
    "erf": (lambda x: lax.erf(x) + lax.digamma(x * x + 1), (_X,)),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * c + 1, x), (_X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (_X,)),
    "scatter": (lambda x: x.at[jnp.array([0, 2])].add(1.0), (_X,)),
    "fft": (lambda x: jnp.fft.rfft(x).real, (_X,)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(4)), (_X,)),
    "unsigned": (lambda x: (x.astype("uint8") >> 1).astype("f4"), (_X,)),
    "integer_product": (lambda x, y: lax.dot(x, y, preferred_element_type="i4"), (_B, _B)),
    "half": (lambda x: jnp.tanh(x.astype(jnp.bfloat16)), (_X,)),
}


def exported(function: Any, arguments: Any) -> Any:
    return export.export(jax.jit(function))(*arguments)


def _lowered(text: str) -> str:
    return str(import_program(read_source(text)).module)


@pytest.mark.parametrize("name", [*FEATURES, *_MORE])
def test_skipped_passes_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments = {**FEATURES, **_MORE}[name]
    with jax.enable_x64(True):
        text = str(exported(function, arguments).mlir_module())
    result = _lowered(text)
    for pass_class in (Pass, UpstreamPass):
        monkeypatch.setattr(pass_class, "concerns_source", lambda self, text: True)
    assert result == _lowered(text)


def test_a_program_of_plain_ops_skips_most_passes() -> None:
    text = str(exported(lambda x: jnp.sin(x @ x.T), (_X,)).mlir_module())
    passes = [*legalize_stablehlo(), *import_linalg()]
    assert sum(step.concerns_source(text) for step in passes) < len(passes) / 2 + 3
