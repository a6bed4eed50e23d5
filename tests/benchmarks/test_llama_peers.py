"""The steps that `benchmarks/llama.py` measures write the same tokens as the example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")

CONTEXT, COUNT = 32, 10


@pytest.fixture(scope="module")
def case() -> tuple[Any, Any, dict[str, np.ndarray]]:
    from llama_peers import load_example

    example = load_example()
    config = example.Config(vocab_size=64, num_hidden_layers=2)
    # Weights that are bf16 numbers, and large enough for clear decisions.
    weights = {
        name: torch.from_numpy(3 * w).bfloat16().float().numpy()
        for name, w in example.random_weights(config).items()
    }
    return example, config, weights


def example_tokens(example: Any, config: Any, weights: dict[str, np.ndarray]) -> list[int]:
    import nova

    program = example.compile_generator(example.Llama(config, weights, nova.bf16), CONTEXT, 8)
    return list(example.generate(program, [1], COUNT))


@pytest.mark.slow
def test_peers_write_the_same_tokens(case: Any) -> None:
    from llama_peers import jax_step, jax_weights, torch_step

    example, config, weights = case
    expected = example_tokens(example, config, weights)
    step, caches = torch_step(config, weights, CONTEXT)
    token, by_torch = torch.tensor([1]), []
    for position in range(COUNT):
        token = step(token, torch.tensor([position]), caches)
        by_torch.append(int(token))
    assert by_torch == expected
    shape = (config.num_hidden_layers, 2, config.num_key_value_heads, CONTEXT, config.head_dim)
    caches, token, by_jax = jnp.zeros(shape, jnp.bfloat16), jnp.array([1]), []
    for position in range(COUNT):
        arguments = jax_weights(config, weights), token, jnp.int32(position), caches
        token, caches = jax_step(config)(*arguments)
        by_jax.append(int(token[0]))
    assert by_jax == expected
