"""Whole programs on a device: random graphs, their gradients, and the GPT of the examples."""

from __future__ import annotations

import sys
from pathlib import Path

import graph_strategies
import numpy as np
import pytest
from device import OPTIONS
from hypothesis import given, settings
from test_random_graphs import _SETTINGS

import nova
from nova import optim
from nova.graph.interpret import evaluate

pytestmark = pytest.mark.device


def check(leaves, outputs, rtol):
    expected = evaluate(outputs)
    results = nova.compile(outputs, inputs=leaves, **OPTIONS).run([leaf.data for leaf in leaves])
    results = results if isinstance(results, tuple) else (results,)
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


@settings(max_examples=40, **_SETTINGS)
@given(graph_strategies.programs())
def test_random_program_f64(program):
    check(*program, rtol=1e-9)


@settings(max_examples=25, **_SETTINGS)
@given(graph_strategies.programs(dtype=np.float32, max_ops=15))
def test_random_program_in_many_blocks(program):
    with nova.knobs.override(serial_work=0):
        check(*program, rtol=2e-3)


@settings(max_examples=25, **_SETTINGS)
@given(graph_strategies.programs(max_ops=20))
def test_random_gradients(program):
    leaves, outputs = program
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    check(leaves, nova.graph.gradients(loss, leaves), rtol=1e-7)


def test_the_gpt_of_the_examples_trains_as_on_the_cpu():
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from gpt import GPT, Config

    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 32, (2, 17))
    batch = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    steps = []
    for options in ({}, OPTIONS):
        model = GPT(Config(32, 16, 24, 2, 2))
        drawn = np.random.default_rng(1)
        for _, param in model.named_parameters():
            param.data[...] = 0.1 * drawn.standard_normal(param.shape)
        optimizer = optim.AdamW(model.parameters(), 1e-2)
        step = nova.train_step(model, lambda m, x, y: m.loss(x, y), optimizer, **options)
        steps.append((model, [float(step(*batch)) for _ in range(4)]))
    (here, losses), (there, device_losses) = steps
    np.testing.assert_allclose(device_losses, losses, rtol=2e-5)
    assert losses[-1] < losses[0]
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(there.state_dict()[name], value, rtol=1e-3, atol=1e-4)
