"""A value that `causal` hides from a row never reaches it, whatever it is; nor do its gradients.

torch multiplies such a value by a weight of 0, which NaN and infinity survive: results are compared
with those of finite values instead, which torch confirms.
"""

from __future__ import annotations

import numpy as np
import pytest
from processors import runnable

import nova
from nova.graph.interpret import evaluate

SHAPES = {
    "one block": ((2, 37, 16), (2, 37, 16), (2, 37, 16)),
    "several blocks": ((1, 300, 32), (1, 300, 32), (1, 300, 48)),
    "more keys": ((1, 5, 8), (1, 9, 8), (1, 9, 24)),
    "decomposed": ((1, 20, 300), (1, 20, 300), (1, 20, 7)),
}
WORST = {"nan": np.nan, "inf": np.inf}


LEVELS = runnable("cpu", "x86_64-v3", "x86_64")


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
        actual = compiled(attend, spoiled(arrays, key, WORST[worst]), target=level)
        # One program for all of them: the same bits, above; below, the value is seen.
        np.testing.assert_array_equal(actual[:, :key], clean[:, :key])
        np.testing.assert_array_equal(actual[:, key:], np.full_like(actual[:, key:], WORST[worst]))
        assert actual.shape[1] == rows


@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("name", SHAPES)
def test_hidden_values_in_the_interpreter(name, worst):
    arrays = operands(name)
    key = arrays[1].shape[1] // 2
    tensors = [nova.tensor(a) for a in spoiled(arrays, key, WORST[worst])]
    (actual,) = evaluate([attend(tensors)])
    (clean,) = evaluate([attend([nova.tensor(a) for a in arrays])])
    np.testing.assert_array_equal(actual[:, :key], clean[:, :key])
    np.testing.assert_array_equal(actual[:, key:], np.full_like(actual[:, key:], WORST[worst]))


@pytest.mark.parametrize("level", LEVELS[:1])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_rows_that_do_not_see_it(name, level):
    arrays = operands(name)
    key = arrays[1].shape[1] // 2
    above = (np.arange(arrays[0].shape[1]) < key)[:, None]

    def by_q(tensors):
        observed = nova.where(nova.tensor(above), attend(tensors), 0.0)
        return nova.graph.gradients(nova.square(observed).sum(), [tensors[0]])[0]

    actual = compiled(by_q, spoiled(arrays, key, np.nan), target=level)
    clean = compiled(by_q, arrays, target=level)
    np.testing.assert_array_equal(actual[:, :key], clean[:, :key])
    assert np.abs(clean[:, 1:key]).max() > 0


def test_finite_values_against_torch():
    torch = pytest.importorskip("torch")
    for name in SHAPES:
        arrays = operands(name)
        tensors = [torch.tensor(a)[:, None] for a in arrays]
        want = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
        actual = compiled(attend, arrays)
        np.testing.assert_allclose(actual, want.numpy()[:, 0], rtol=2e-5, atol=2e-6)


def gradients(arrays, **options):
    """Those by q, k and v, of a sum of results times the last array."""
    tensors = [nova.tensor(a, name=n) for a, n in zip(arrays, "qkvg", strict=True)]
    loss = nova.sum(attend(tensors[:3]) * tensors[3])
    outputs = nova.graph.gradients(loss, tensors[:3])
    return nova.compile(outputs, inputs=tensors, **options).run(arrays)


HIDDEN_FROM_ALL = {"fused": (40, 150, 16, 24), "decomposed": (20, 31, 300, 7)}


def with_more_keys(name: str, below: int | None = None) -> list[np.ndarray]:
    """q, k, v and a gradient of the results, which is 0 from row `below` on."""
    i, j, e, f = HIDDEN_FROM_ALL[name]
    rng = np.random.default_rng(4)
    shapes = ((2, i, e), (2, j, e), (2, j, f), (2, i, f))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays[3][:, below:] = 0 if below is not None else arrays[3][:, below:]
    return arrays


@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("name", HIDDEN_FROM_ALL)
def test_no_gradient_has_values_hidden_from_all_rows(name, worst):
    arrays = with_more_keys(name)
    rows, keys = arrays[0].shape[1], arrays[1].shape[1]
    clean = gradients(arrays)
    for key in (rows, keys - 1):
        for actual, want in zip(
            gradients([*spoiled(arrays[:3], key, WORST[worst]), arrays[3]]), clean, strict=True
        ):
            np.testing.assert_array_equal(actual, want)
    assert not clean[1][:, rows:].any() and not clean[2][:, rows:].any()


@pytest.mark.parametrize("name", HIDDEN_FROM_ALL)
def test_gradients_against_torch_where_some_rows_see_it(name):
    """NaN is in the gradient of no more than in torch's: there, of k, and of q in rows that see it.

    That of v does not depend on v.
    """
    torch = pytest.importorskip("torch")
    key = HIDDEN_FROM_ALL[name][0] // 2
    arrays = with_more_keys(name, below=key)
    q, k, v = spoiled(arrays[:3], key, np.nan)
    actual = gradients([q, k, v, arrays[3]])
    leaves = [torch.tensor(a[:, None], requires_grad=True) for a in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    out.backward(torch.tensor(arrays[3][:, None]))
    want = [leaf.grad.numpy()[:, 0] for leaf in leaves]
    for computed, reference in zip(actual, want, strict=True):
        assert not (np.isnan(computed) & ~np.isnan(reference)).any()
    np.testing.assert_allclose(actual[2], want[2], rtol=2e-5, atol=2e-6)
    clean = gradients(arrays)
    np.testing.assert_array_equal(actual[0][:, :key], clean[0][:, :key])
    np.testing.assert_array_equal(actual[2], clean[2])
    rows = arrays[0].shape[1]
    assert np.isnan(actual[1][:, :rows]).all() and not actual[1][:, rows:].any()
