"""Calls with a signature that has a program compile nothing: counted at the compile driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova import knobs, nn, optim
from nova.api.compile import clear_memory_cache
from nova.compiler import driver


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A list that gets an entry for every compile; no program comes from a cache that is older."""
    created: list[str] = []
    real = driver.build

    def counted(plan: Any, *rest: Any) -> Any:
        created.append(str(plan))
        return real(plan, *rest)

    monkeypatch.setattr(driver, "build", counted)
    clear_memory_cache()
    with knobs.override(cache=False):
        yield created


def arrays(rows: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 6)).astype(dtype)


def test_jit_compiles_once_a_signature(builds: list[str]) -> None:
    f = nova.jit(lambda x: nova.tanh(x) * 1.625)
    for _ in range(3):
        for rows in (4, 5):
            np.testing.assert_allclose(f(arrays(rows)), np.tanh(arrays(rows)) * 1.625, rtol=1e-5)
    assert len(builds) == 2
    f(np.asfortranarray(arrays(4)))
    f(arrays(8)[::2])
    assert len(builds) == 2, "the layout of an argument is not part of its signature"
    f(arrays(4, np.float64))
    assert len(builds) == 3


def test_another_function_with_the_same_program_compiles_nothing(builds: list[str]) -> None:
    for _ in range(2):
        nova.jit(lambda x: nova.tanh(x) * 1.75)(arrays(4))
    assert len(builds) == 1


def test_train_step_compiles_once_a_signature(builds: list[str]) -> None:
    nn.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6))
    step = nova.train_step(
        model, lambda m, x, y: nova.mse_loss(m(x), y), optim.AdamW(model.parameters(), lr=0.0625)
    )
    losses = [float(step(arrays(8), arrays(8))) for _ in range(4)]
    assert len(builds) == 1 and losses[-1] < losses[0]
    for _ in range(2):
        step(arrays(7), arrays(7))
        step(arrays(8), arrays(8))
    assert len(builds) == 2
