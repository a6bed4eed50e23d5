"""Optimizers against torch's from the same state, with every option, for 50 steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from optimizer_cases import CASES, IDS

import nova
from nova import optim
from nova.errors import AttributeValueError, GraphError, UnknownKeywordError

STEPS = 50
TOLERANCE = {"f4": 1e-5, "f8": 1e-10}
SHAPES = ((4, 3), (3,))


def start(kind: str, count: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s).astype(kind) for s in SHAPES[:count]]


def slopes(kind: str) -> np.ndarray:
    """Of step i: the gradient is `slope * (param - 0.5)`, so that errors would feed back."""
    return np.random.default_rng(8).uniform(-0.5, 1.5, (STEPS, 4, 3)).astype(kind)


def gradient(param: Any, slope: Any) -> Any:
    return (param - 0.5) * (slope if len(param.shape) == 2 else slope[0])


def parameters(kind: str, count: int = 2) -> list[Any]:
    return [nova.tensor(a, requires_grad=True) for a in start(kind, count)]


def train(optimizers: list[Any], kind: str) -> list[list[np.ndarray]]:
    """All parameters of each optimizer after every step; one program does them all."""
    slope = nova.tensor(slopes(kind)[0], name="slope")
    leaves, updates, where = [], {}, []
    for optimizer in optimizers:
        params = optimizer.params
        state = {n: nova.tensor(a) for n, a in optimizer.init_state().items()}
        grads = [gradient(p, slope) for p in params]
        new, new_state = optimizer.apply(params, grads, state)
        where.append(range(len(leaves), len(leaves) + len(params)))
        leaves += [*params, *state.values()]
        updates |= dict(zip(params, new, strict=True))
        updates |= {state[n]: value for n, value in new_state.items()}
    compiled = nova.compile([], inputs=[slope], params=leaves, updates=updates)
    arrays = [p.data.copy() for p in leaves]
    history: list[list[np.ndarray]] = [[] for _ in optimizers]
    for arguments in slopes(kind):
        compiled(arguments, *arrays)
        for private, positions in zip(history, where, strict=True):
            private.append(np.concatenate([arrays[i].ravel() for i in positions]))
    return history


def torch_history(make: Any, kind: str, count: int = 2, clip: Any = None) -> list[np.ndarray]:
    params = [torch.tensor(a, requires_grad=True) for a in start(kind, count)]
    optimizer = make(params)
    history = []
    for inputs in slopes(kind):
        for p in params:
            p.grad = gradient(p.detach(), torch.tensor(inputs))
        if clip is not None:
            clip(params)
        optimizer.step()
        history.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return history


def assert_close(actual: list[np.ndarray], reference: list[np.ndarray], kind: str) -> None:
    for i, (a, b) in enumerate(zip(actual, reference, strict=True)):
        error = np.abs(a - b).max() / np.abs(b).max()
        assert error < TOLERANCE[kind], f"step {i}: {error}"


@pytest.fixture(scope="module", params=["f4", "f8"])
def trained(request: pytest.FixtureRequest) -> tuple[str, list[list[np.ndarray]]]:
    """Every case, trained by one program."""
    mode = request.param
    optimizers = [actual(parameters(mode, 1), **options) for _, actual, _, options in CASES]
    return mode, train(optimizers, mode)


@pytest.mark.parametrize("index", range(len(CASES)), ids=IDS)
def test_every_option_as_torch(trained: Any, index: int) -> None:
    mode, history = trained
    _, _, reference, options = CASES[index]
    expected = torch_history(lambda params: reference(params, **options), mode, 1)
    assert_close(history[index], expected, mode)


CLIPS: list[tuple[dict[str, Any], Any]] = [
    ({"clip_norm": 0.1}, lambda p: torch.nn.utils.clip_grad_norm_(p, 0.1)),
    ({"clip_norm": 100.0}, lambda p: torch.nn.utils.clip_grad_norm_(p, 100.0)),
    (
        {"clip_norm": 0.05, "clip_norm_type": np.inf},
        lambda p: torch.nn.utils.clip_grad_norm_(p, 0.05, float("inf")),
    ),
    (
        {"clip_norm": 0.2, "clip_norm_type": 1.0},
        lambda p: torch.nn.utils.clip_grad_norm_(p, 0.2, 1.0),
    ),
    (
        {"clip_norm": 0.1, "clip_norm_type": 3.0},
        lambda p: torch.nn.utils.clip_grad_norm_(p, 0.1, 3.0),
    ),
    ({"clip_value": 0.02}, lambda p: torch.nn.utils.clip_grad_value_(p, 0.02)),
]


@pytest.mark.parametrize("mode", ["f4", "f8"])
def test_clipping_as_torch(mode: str) -> None:
    def reference(params: list[Any]) -> Any:
        return torch.optim.SGD(params, 0.1, momentum=0.5)

    history = train([optim.SGD(parameters(mode), 0.1, 0.5, **clip) for clip, _ in CLIPS], mode)
    for actual, (_, clip) in zip(history, CLIPS, strict=True):
        assert_close(actual, torch_history(reference, mode, clip=clip), mode)


def test_groups_as_torch() -> None:
    def grouped(params: list[Any]) -> list[dict[str, Any]]:
        first, second = params
        return [{"params": [first], "lr": 0.2}, {"params": second, "weight_decay": 0.3}]

    history = train([optim.AdamW(grouped(parameters("f8")), 0.01)], "f8")
    reference = torch_history(lambda params: torch.optim.AdamW(grouped(params), 0.01), "f8")
    assert_close(history[0], reference, "f8")


def test_norm_and_finiteness_of_special_gradients() -> None:
    bad = nova.tensor(np.array([1.0, np.nan], "f4"))
    inf = nova.tensor(np.array([1.0, np.inf], "f4"))
    good = nova.tensor(np.array([3.0, 4.0], "f4"))
    zero = nova.tensor(np.zeros(2, "f4"))
    norms = [optim.global_norm(g) for g in ([good], [bad, good], [inf], [zero])]
    clipped = [optim.clip_grad_norm([zero], 1.0)[0][0], optim.clip_grad_norm([inf], 1.0)[0][0]]
    norm, nan, infinite, none, still_zero, spoiled = nova.compile([*norms, *clipped])()
    assert norm == 5.0 and np.isnan(nan) and np.isinf(infinite) and none == 0.0
    assert not still_zero.any() and spoiled[0] == 0 and np.isnan(spoiled[1])  # as torch's


def test_state_has_names() -> None:
    weight, bias = parameters("f4")
    state = optim.Adam([("layer.w", weight), ("layer.b", bias)], amsgrad=True).init_state()
    assert list(state) == [
        "step",
        "exp_avg.layer.w",
        "exp_avg_sq.layer.w",
        "max_exp_avg_sq.layer.w",
        "exp_avg.layer.b",
        "exp_avg_sq.layer.b",
        "max_exp_avg_sq.layer.b",
    ]
    assert state["step"].dtype == np.int64 and state["step"].shape == ()
    assert list(optim.SGD([weight, bias], momentum=0.9).init_state()) == [
        "step",
        "momentum_buffer.0",
        "momentum_buffer.1",
    ]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: optim.SGD(p, -1.0), AttributeValueError, "learning rate of -1.0"),
        (lambda p: optim.SGD(p, "fast"), AttributeValueError, "learning rate"),
        (lambda p: optim.SGD(p, 1.0, nesterov=True), AttributeValueError, "nesterov"),
        (lambda p: optim.SGD(p, 1.0, momentum=-1), AttributeValueError, "momentum"),
        (lambda p: optim.SGD(p, 1.0, weight_decay=-1), AttributeValueError, "weight_decay"),
        (lambda p: optim.SGD(p, 1.0, clip_norm=0.0), AttributeValueError, "clip_norm"),
        (lambda p: optim.SGD(p, 1.0, clip_value=-2.0), AttributeValueError, "clip_value"),
        (lambda p: optim.Adam(p, betas=(1.0, 0.9)), AttributeValueError, "betas"),
        (lambda p: optim.Adam(p, eps=-1.0), AttributeValueError, "eps"),
        (lambda p: optim.Adam([]), GraphError, "no parameters"),
        (lambda p: optim.Adam([*p, p[0]]), GraphError, "twice"),
        (lambda p: optim.Adam([np.ones(3)]), GraphError, "is not a parameter"),
        (lambda p: optim.Adam([{"params": p, "rate": 1}]), UnknownKeywordError, "rate"),
    ],
)
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        make(parameters("f4"))
    assert __file__ in caught.value.where  # type: ignore[attr-defined]
