"""torch's initializers: the same distributions, and the same values where nothing is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nova import nn
from nova.errors import AttributeValueError, ShapeError
from nova.nn import init

DRAWN: list[tuple[str, dict[str, Any]]] = [
    ("uniform_", {"a": -1.0, "b": 3.0}),
    ("normal_", {"mean": 1.0, "std": 2.0}),
    ("trunc_normal_", {"mean": 0.5, "std": 1.5, "a": -1.0, "b": 2.0}),
    ("xavier_uniform_", {"gain": 2.0}),
    ("xavier_normal_", {}),
    ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
    ("kaiming_normal_", {"a": 0.2}),
    ("orthogonal_", {"gain": 1.5}),
    ("sparse_", {"sparsity": 0.3, "std": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), DRAWN, ids=[name for name, _ in DRAWN])
def test_distributions_are_those_of_torch(name: str, options: dict[str, Any]) -> None:
    """Quantiles of 120,000 elements."""
    nn.manual_seed(0)
    torch.manual_seed(0)
    parameter = nn.Parameter(np.zeros((300, 400), "f4"))
    assert getattr(init, name)(parameter, **options) is parameter
    expected = getattr(torch.nn.init, name)(torch.zeros(300, 400), **options).numpy()
    levels = np.linspace(0.02, 0.98, 25)
    actual, expected_levels = (np.quantile(x, levels) for x in (parameter.data, expected))
    np.testing.assert_allclose(actual, expected_levels, atol=0.03 * np.abs(expected_levels).max())
    assert parameter.data.min() >= expected.min() - 0.1 * np.abs(expected).max()


def test_fixed_values() -> None:
    for name, shape, args in (
        ("dirac_", (4, 3, 3, 5), ()),
        ("dirac_", (4, 2, 3), (2,)),
        ("eye_", (3, 5), ()),
        ("ones_", (2, 2), ()),
        ("zeros_", (2, 2), ()),
        ("constant_", (2, 2), (0.25,)),
    ):
        parameter = getattr(init, name)(nn.Parameter(np.full(shape, 7.0, "f4")), *args)
        want = getattr(torch.nn.init, name)(torch.zeros(shape), *args)
        np.testing.assert_array_equal(parameter.data, want)
    q = init.orthogonal_(nn.Parameter(np.zeros((3, 2, 4), "f8"))).data.reshape(3, 8)
    np.testing.assert_allclose(q @ q.T, np.eye(3), atol=1e-12)
    for name in ("linear", "conv2d", "tanh", "relu", "selu", "leaky_relu", "sigmoid"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))


def test_errors() -> None:
    vector = nn.Parameter(np.zeros(3, "f4"))
    for name in ("eye_", "dirac_", "orthogonal_", "xavier_normal_"):
        with pytest.raises(ShapeError):
            getattr(init, name)(vector)
    with pytest.raises(AttributeValueError, match="fan_in"):
        init.kaiming_normal_(nn.Parameter(np.zeros((2, 2), "f4")), mode="fan")
    with pytest.raises(AttributeValueError, match="nonlinearity"):
        init.calculate_gain("swish")
