"""Contexts that compiles use one after the other: which are lent again, and what they leave."""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.compiler import context_pool
from nova.compiler.context_pool import reused_context
from nova.ir.resources import constants_of


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_pool, "_idle", [])


def test_a_context_is_lent_again_and_never_twice_at_once() -> None:
    with reused_context(1) as first, reused_context(1) as second:
        assert first is not second
    with reused_context(1) as again:
        assert again is first


def test_a_context_is_lent_for_a_limited_number_of_ops() -> None:
    with reused_context(context_pool._MOST_OPS) as first:
        pass
    with reused_context(1) as again:
        assert again is first
    with reused_context(1) as other:
        assert other is not first


def test_a_context_with_an_error_or_with_large_constants_is_not_lent_again() -> None:
    with pytest.raises(ValueError, match="stop"), reused_context(1):
        raise ValueError("stop")
    assert not context_pool._idle
    with reused_context(1) as context:
        constants_of(context).add(bytes(4096))
    assert not context_pool._idle


def test_a_program_has_the_same_texts_in_a_context_that_others_have_used() -> None:
    def compile_one() -> nova.Compiled:
        X = nova.tensor(np.zeros((4, 6), "f4"), name="X")
        return nova.compile(nova.softmax(X @ X.T) * 2.0, inputs=[X])

    with nova.knobs.override(cache=False):
        first = compile_one()
        [(context, spent)] = context_pool._idle
        Y = nova.tensor(np.zeros(5, "f8"), name="Y")
        nova.compile(nova.exp(Y), inputs=[Y])
        again = compile_one()
    [(same, more)] = context_pool._idle
    assert same is context and more > spent
    assert dict(first.stages) == dict(again.stages)
