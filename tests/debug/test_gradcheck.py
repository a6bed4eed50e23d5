"""`nova.gradcheck`: right gradients pass, wrong ones are pointed at."""

from __future__ import annotations

import numpy as np
import pytest
from planted_bugs import wrong_vjp

import nova
from nova.errors import AttributeValueError, GradcheckError, GradientError

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2)).astype("f4")


def test_right_gradients() -> None:
    report = nova.gradcheck(lambda a, b: nova.softmax(nova.tanh(a @ b)), (A, B), order=2)
    assert report and report.order == 2
    assert [a.compared for a in report.arguments] == [12, 8]
    assert "argument 0" in str(report) and "ok" in str(report)


def test_nested_and_other_arguments() -> None:
    def f(model, ids, factor):
        rows = nova.take(model["table"], ids, axis=0)
        return nova.sum(rows, axis=0) * factor, rows * model["scale"][0]

    model = {"table": RNG.standard_normal((5, 3)), "scale": [np.float32(2.0)]}
    report = nova.gradcheck(f, (model, np.array([1, 1, 4]), 3.0))
    assert len(report.arguments) == 2 and report.ok
    assert len(nova.gradcheck(nova.jit(lambda a, b: a @ b), (A, B), argnums=1).arguments) == 1


def test_large_arguments_are_sampled() -> None:
    report = nova.gradcheck(lambda a: nova.sum(a * a), RNG.standard_normal((40, 40)))
    assert report.arguments[0].compared == 256


def test_wrong_gradient() -> None:
    bug = wrong_vjp("sin", lambda F, p, g, out, x: (F.where(x > 1.0, p[0] * 1.01, p[0]),))
    x = np.array([0.1, 0.3, 2.5, 0.2])
    with bug, nova.knobs.override(cache=False):
        with pytest.raises(GradcheckError, match=r"argument 0 at \[2\]") as caught:
            nova.gradcheck(nova.sin, x)
        assert caught.value.where.startswith(__file__)
        (argument,) = caught.value.report.arguments
        assert argument.index == (2,) and not argument.ok
        assert argument.gradient == pytest.approx(argument.slope * 1.01, rel=1e-5)
        report = nova.gradcheck(nova.sin, x, raise_error=False)
        assert not report and "WRONG" in str(report)


def test_wrong_second_derivative() -> None:
    bug = wrong_vjp("cos", lambda F, p, g, out, x: (p[0] * 0.5,))
    with bug, nova.knobs.override(cache=False):
        nova.gradcheck(nova.sin, A)
        with pytest.raises(GradcheckError):
            nova.gradcheck(nova.sin, A, order=2)


def test_mistakes() -> None:
    with pytest.raises(GradientError, match="no argument is a float"):
        nova.gradcheck(lambda x: x, np.arange(3))
    with pytest.raises(GradientError, match="no float tensor"):
        nova.gradcheck(lambda x: x > 0, A)
    with pytest.raises(AttributeValueError, match="order must be 1 or 2"):
        nova.gradcheck(nova.sin, A, order=3)
