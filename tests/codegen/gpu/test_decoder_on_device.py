"""A decoder with its cache and sampling loop on a simulated device, against the CPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova

SIM: dict[str, Any] = {"target": "cuda:sm_90a", "run_mode": "sim"}


def load_example() -> Any:
    path = Path(__file__).parents[3] / "examples" / "llama.py"
    spec = importlib.util.spec_from_file_location("llama_on_device", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_tokens_of_a_llama_equal_those_of_the_cpu() -> None:
    example = load_example()
    config = example.Config(
        vocab_size=384,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = example.Llama(config, example.random_weights(config), nova.bf16)
    prompt = [1, 2, 3, 4, 5]
    expected = example.generate(example.compile_generator(model, 128), prompt, 8)
    program = example.compile_generator(model, 128, **SIM)
    assert example.generate(program, prompt, 8) == expected


@pytest.mark.parametrize("dtype", ["f4", "i4", "?", ml_dtypes.bfloat16], ids=str)
def test_a_loop_updates_slices_in_place(dtype: Any) -> None:
    def write(x: Any, update: Any, first: Any, end: Any) -> Any:
        def body(state: Any) -> Any:
            position, x = state
            return position + 1, nova.dynamic_update_slice(x, update, (0, position, 0))

        return nova.while_loop(lambda state: state[0] < end, body, (first, x))[1]

    x, update = np.zeros((4, 40, 8)).astype(dtype), np.ones((4, 1, 8)).astype(dtype)
    expected = np.zeros((4, 40, 8))
    expected[:, 3:9] = 1
    result = nova.jit(write, **SIM)(x, update, 3, 9)
    np.testing.assert_array_equal(np.asarray(result).astype("f8"), expected)


@pytest.mark.graph_launch
def test_a_token_takes_five_launches_a_layer() -> None:
    """Projections, attention with rotations and the update of the cache, three of matrices."""
    example = load_example()
    counts = []
    for layers in (1, 3):
        config = example.Config(
            vocab_size=384,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=32,
        )
        model = example.Llama(config, example.random_weights(config), nova.bf16)
        text = example.compile_generator(model, 128, **SIM).stages["device"]
        bodies = [body.split("  return")[0] for body in text.split("func.func")]
        tokens = [body for body in bodies if "nova.region" in body and "_branch_" in body]
        counts.append(max(body.count("call @") for body in tokens))
    assert (counts[1] - counts[0]) / 2 <= 5


@pytest.mark.parametrize("shape", [(1, 1, 8), (4, 3, 8), (2, 40, 8), (4, 1, 1)], ids=str)
def test_slices_of_any_shape_are_written_in_place(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, update = (rng.standard_normal(s).astype("f4") for s in ((4, 40, 8), shape))

    def write(x: Any, update: Any, end: Any) -> Any:
        def body(state: Any) -> Any:
            position, x = state
            at = (position, position * 5, 0)
            return position + 1, nova.dynamic_update_slice(x, update, at)

        return nova.while_loop(lambda state: state[0] < end, body, (0, x))[1]

    expected = nova.jit(write)(x, update, 3)
    result = nova.jit(write, **SIM)(x, update, 3)
    np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
