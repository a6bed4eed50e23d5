"""A value that `causal` hides from a row never reaches it, whatever it is; nor do its gradients.

torch multiplies such a value by a weight of 0, which NaN and infinity survive: results are compared
with those of finite values instead, which torch confirms.
"""

from __future__ import annotations

import numpy as np
import pytest

import nova
from nova.graph.interpret import evaluate
from nova.targets import parse_target

SHAPES = {
    "one block": ((2, 37, 16), (2, 37, 16), (2, 37, 16)),
    "several blocks": ((1, 300, 32), (1, 300, 32), (1, 300, 48)),
    "more keys": ((1, 5, 8), (1, 9, 8), (1, 9, 24)),
    "decomposed": ((1, 20, 300), (1, 20, 300), (1, 20, 7)),
}
WORST = {"nan": np.nan, "inf": np.inf}


def _runnable(name: str) -> bool:
    host, target = parse_target("cpu"), parse_target(name)
    return host.arch == target.arch and set(target.features) <= set(host.features)


LEVELS = [n for n in ("cpu", "x86_64-v3", "x86_64") if _runnable(n)]


def operands(name: str, dtype=np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES[name]]


def attend(tensors):
    return nova.scaled_dot_product_attention(*tensors, causal=True)


def compiled(build, arrays, **options):
    tensors = [nova.tensor(a, name=n) for a, n in zip(arrays, "qkv", strict=True)]
    return nova.compile(build(tensors), inputs=tensors, **options).run(arrays)


def spoiled(arrays, key: int, value: float) -> list[np.ndarray]:
    q, k, v = (a.copy() for a in arrays)
    v[:, key] = value
    return [q, k, v]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("name", SHAPES)
def test_hidden_values(name, worst, level):
    arrays = operands(name)
    clean = compiled(attend, arrays, target=level)
    rows, keys = arrays[0].shape[1], arrays[1].shape[1]
    for key in (keys - 1, keys // 2, 1):
        got = compiled(attend, spoiled(arrays, key, WORST[worst]), target=level)
        # One program for all of them: the same bits, above; below, the value is seen.
        np.testing.assert_array_equal(got[:, :key], clean[:, :key])
        np.testing.assert_array_equal(got[:, key:], np.full_like(got[:, key:], WORST[worst]))
        assert got.shape[1] == rows


@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("name", SHAPES)
def test_hidden_values_in_the_interpreter(name, worst):
    arrays = operands(name)
    key = arrays[1].shape[1] // 2
    tensors = [nova.tensor(a) for a in spoiled(arrays, key, WORST[worst])]
    (got,) = evaluate([attend(tensors)])
    (clean,) = evaluate([attend([nova.tensor(a) for a in arrays])])
    np.testing.assert_array_equal(got[:, :key], clean[:, :key])
    np.testing.assert_array_equal(got[:, key:], np.full_like(got[:, key:], WORST[worst]))


@pytest.mark.parametrize("level", LEVELS[:1])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_rows_that_do_not_see_it(name, level):
    arrays = operands(name)
    key = arrays[1].shape[1] // 2
    above = (np.arange(arrays[0].shape[1]) < key)[:, None]

    def by_q(tensors):
        seen = nova.where(nova.tensor(above), attend(tensors), 0.0)
        return nova.graph.gradients(nova.square(seen).sum(), [tensors[0]])[0]

    got = compiled(by_q, spoiled(arrays, key, np.nan), target=level)
    clean = compiled(by_q, arrays, target=level)
    np.testing.assert_array_equal(got[:, :key], clean[:, :key])
    assert np.abs(clean[:, 1:key]).max() > 0


def test_finite_values_against_torch():
    torch = pytest.importorskip("torch")
    for name in SHAPES:
        arrays = operands(name)
        tensors = [torch.tensor(a)[:, None] for a in arrays]
        want = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
        got = compiled(attend, arrays)
        np.testing.assert_allclose(got, want.numpy()[:, 0], rtol=2e-5, atol=2e-6)
