"""Optimizers against torch's from the same state, with every option, for 50 steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
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


@pytest.fixture(autouse=True)
def scalars_of_torch_in_f64() -> Iterator[None]:
    """torch keeps the scalars of some optimizers in its default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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


def test_vectors_of_adafactor_as_torch() -> None:
    """A vector keeps its whole second moment."""
    history = train([optim.Adafactor(parameters("f8"), 0.05)], "f8")
    reference = torch_history(lambda params: torch.optim.Adafactor(params, 0.05), "f8")
    assert_close(history[0], reference, "f8")
    state = optim.Adafactor(parameters("f8")).init_state()
    shapes = {name: value.shape for name, value in state.items()}
    assert shapes == {"step": (), "row_var.0": (4, 1), "col_var.0": (1, 3), "variance.1": (3,)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": False, "momentum": 0.5, "weight_decay": 0.0},
        {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
    ],
    ids=["default", "plain", "adamw"],
)
def test_muon_as_torch(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With both iterations in f64: in bf16 they differ by the order of roundings."""

    def reference(params: Any) -> Any:
        return torch.optim.Muon(params, 0.02, **options)

    before, rounded = start("f8", 1)[0].ravel(), torch_history(reference, "f8", 1)[0]
    in_bf16 = train([optim.Muon(parameters("f8", 1), 0.02, **options)], "f8")[0][0]
    assert np.abs(in_bf16 - rounded).max() < 0.12 * np.abs(rounded - before).max()
    monkeypatch.setattr("nova.optim.sign_and_matrix.bf16", nova.f64)
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
    history = train([optim.Muon(parameters("f8", 1), 0.02, **options)], "f8")[0]
    assert_close(history, torch_history(reference, "f8", 1), "f8")


@pytest.mark.parametrize(
    "options", [{}, {"betas": (0.8, 0.95), "weight_decay": 0.1}], ids=["default", "decay"]
)
def test_lion_as_optax(options: dict[str, Any]) -> None:
    history = train([optim.Lion(parameters("f4", 1), 0.01, **options)], "f4")[0]
    b1, b2 = options.get("betas", (0.9, 0.99))
    lion = optax.lion(0.01, b1, b2, weight_decay=options.get("weight_decay", 0.0))
    param = jax.numpy.asarray(start("f4", 1)[0])
    state = lion.init(param)
    reference = []
    for slope in slopes("f4"):
        updates, state = lion.update(gradient(param, slope), state, param)
        param = optax.apply_updates(param, updates)
        reference.append(np.asarray(param).ravel())
    assert_close(history, reference, "f4")


def test_average_of_weights_as_torch() -> None:
    """`ema=` is AveragedModel with an exponential average, updated after each step."""
    optimizer = optim.SGD(parameters("f8", 1), 0.1, ema=0.9)
    state = {n: nova.tensor(a) for n, a in optimizer.init_state().items()}
    slope = nova.tensor(slopes("f8")[0], name="slope")
    new, new_state = optimizer.apply(
        optimizer.params, [gradient(optimizer.params[0], slope)], state
    )
    leaves = [*optimizer.params, *state.values()]
    updates = {optimizer.params[0]: new[0]} | {state[n]: v for n, v in new_state.items()}
    compiled = nova.compile([], inputs=[slope], params=leaves, updates=updates)
    arrays = [leaf.data.copy() for leaf in leaves]

    average_of = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    param = torch.tensor(start("f8", 1)[0])
    average = param.clone()
    for inputs in slopes("f8"):
        compiled(inputs, *arrays)
        param = param - 0.1 * gradient(param, torch.tensor(inputs))
        average_of([average], [param], None)
    np.testing.assert_allclose(arrays[1 + list(state).index("ema.0")], average, rtol=1e-10)


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
        (lambda p: optim.Adam(p, ema=1.5), AttributeValueError, "ema"),
        (lambda p: optim.RMSprop(p, alpha=-1.0), AttributeValueError, "alpha"),
        (lambda p: optim.Adagrad(p, lr_decay=-1.0), AttributeValueError, "lr_decay"),
        (lambda p: optim.Adadelta(p, rho=2.0), AttributeValueError, "rho"),
        (lambda p: optim.NAdam(p, momentum_decay=-1.0), AttributeValueError, "momentum_decay"),
        (lambda p: optim.RAdam(p, betas=(0.9,)), AttributeValueError, "betas"),
        (lambda p: optim.Lion(p, betas=(2.0, 0.9)), AttributeValueError, "betas"),
        (lambda p: optim.Adafactor(p, d=0.5), AttributeValueError, "d is 0.5"),
        (lambda p: optim.Adafactor(p, beta2_decay=1.0), AttributeValueError, "beta2_decay"),
        (lambda p: optim.Muon(p), GraphError, "Muon got the parameter '1'"),
        (lambda p: optim.Muon(p, ns_steps=100), AttributeValueError, "ns_steps"),
        (lambda p: optim.Muon(p, adjust_lr_fn="x"), AttributeValueError, "adjust_lr_fn"),
        (lambda p: optim.Muon(p, ns_coefficients=(1.0,)), AttributeValueError, "ns_coefficients"),
        (lambda p: optim.Adamax(p, rate=1.0), UnknownKeywordError, "rate"),
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


def test_options_of_rprop_are_checked() -> None:
    params = parameters("f4")
    for options in (
        {"lr": optim.StepLR(0.1, 5)},
        {"etas": (1.2, 0.5)},
        {"step_sizes": (1.0, 0.5)},
    ):
        with pytest.raises(AttributeValueError, match="Rprop"):
            optim.Rprop(params, **options)
    with pytest.raises(AttributeValueError, match="lambd"):
        optim.ASGD(params, lambd=-1.0)


def test_the_average_of_asgd_is_that_of_torch() -> None:
    options = {"lr": 0.05, "t0": 10.0, "lambd": 0.01}
    optimizer = optim.ASGD(parameters("f8"), **options)
    params = [torch.tensor(a, requires_grad=True) for a in start("f8")]
    reference = torch.optim.ASGD(params, **options)
    state = {name: nova.tensor(a) for name, a in optimizer.init_state().items()}
    values = optimizer.params
    for slope in slopes("f8")[:20]:
        values, state = optimizer.apply(values, [gradient(p, slope) for p in values], state)
        values = [nova.tensor(v.numpy()) for v in values]
        state = {name: nova.tensor(v.numpy()) for name, v in state.items()}
        for p in params:
            p.grad = gradient(p.detach(), torch.tensor(slope))
        reference.step()
    averages = [state[f"ax.{entry.name}"].numpy() for entry in optimizer.entries]
    for actual, param in zip(averages, params, strict=True):
        np.testing.assert_allclose(actual, reference.state[param]["ax"], rtol=1e-10)
