"""Options and modules of torch.nn that few models use: outputs, gradients and names of parameters.

Each module has torch's weights; `state_dict` has torch's names in torch's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations as torch_parametrizations

import nova
from nova import nn
from nova.errors import AttributeValueError, ModuleError, NovaError, ShapeError
from nova.nn.utils import parametrizations, parametrize, rnn

RNG = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def same_weights(layer: Any, reference: Any) -> None:
    state = {name: value.detach().numpy() for name, value in reference.state_dict().items()}
    assert list(layer.state_dict()) == list(state)
    layer.load_state_dict(state)


def flat(values: Any) -> list[Any]:
    if not isinstance(values, tuple | list):
        return [values]
    return [leaf for value in values for leaf in flat(value)]


def check(layer: Any, reference: Any, *args: Any, **kwargs: Any) -> None:
    """Results and the gradients of all parameters, for a sum of squares."""
    same_weights(layer, reference)
    as_torch = [torch.tensor(a) for a in args], {k: torch.tensor(v) for k, v in kwargs.items()}
    expected = flat(reference(*as_torch[0], **as_torch[1]))
    results = flat(layer(*args, **kwargs))
    loss = sum((r * r).sum() for r in results if r.dtype.is_float)
    named = dict(layer.named_parameters())
    values = nova.jit(
        lambda: (results, nova.graph.autodiff.gradients(loss, list(named.values())))
    )()
    for a, b in zip(values[0], expected, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=2e-4, atol=2e-5)
    sum((e * e).sum() for e in expected if e.is_floating_point()).backward()
    for (name, _), grad in zip(named.items(), values[1], strict=True):
        want = dict(reference.named_parameters())[name].grad
        np.testing.assert_allclose(grad, want.numpy(), rtol=2e-3, atol=2e-4, err_msg=name)


PADDING = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1]], bool)


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        ({"kdim": 3, "vdim": 4}, {}),
        ({"kdim": 3, "vdim": 4, "add_bias_kv": True}, {"key_padding_mask": PADDING}),
        (
            {"add_bias_kv": True, "add_zero_attn": True},
            {"attn_mask": RNG.random((5, 6)) > 0.8, "key_padding_mask": PADDING},
        ),
        ({}, {"attn_mask": RNG.random((4, 5, 6)).astype("f4")}),
    ],
    ids=["sizes", "bias", "zeros", "heads"],
)
def test_attention_of_other_keys(options: dict[str, Any], masks: dict[str, Any]) -> None:
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=True, **options)
    layer = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    widths = options.get("kdim", 8), options.get("vdim", 8)
    q, k, v = draw(2, 5, 8), *(draw(2, 6, n) for n in widths)
    check(_WithWeights(layer), _Unchanged(reference), q, k, v, **masks)


class _WithWeights(nn.Module):
    def __init__(self, inner: nn.Module):
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, need_weights=True, **kwargs)


class _Unchanged(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["plain", "deep"]
)
def test_lstm_with_a_projection(options: dict[str, Any]) -> None:
    reference = torch.nn.LSTM(5, 6, proj_size=3, **options)
    check(nn.LSTM(5, 6, proj_size=3, **options), reference, draw(4, 2, 5))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_size(mode: str) -> None:
    reference = torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2)
    layer = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=2)
    check(layer, reference, RNG.integers(0, 7, 9), offsets=np.array([0, 3, 3, 7]))


def test_fractional_pools_of_one_seed() -> None:
    x = draw(2, 3, 9, 8)
    samples = RNG.random((2, 3, 2)).astype("f4")
    options = {"output_ratio": 0.5, "return_indices": True}
    layer = nn.FractionalMaxPool2d(2, _random_samples=samples, **options)
    reference = torch.nn.FractionalMaxPool2d(2, _random_samples=torch.tensor(samples), **options)
    for a, b in zip(layer(x), reference(torch.tensor(x)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    nn.manual_seed(3)
    pool = nova.jit(nn.FractionalMaxPool3d(2, 3))
    first, second = pool(draw(1, 2, 7, 6, 8)), pool(draw(1, 2, 7, 6, 8))
    assert first.shape == (1, 2, 3, 3, 3) and not np.array_equal(first, second)


def test_adaptive_softmax() -> None:
    options = {"cutoffs": [4, 9], "div_value": 2.0, "head_bias": True}
    reference = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 15, **options)
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 15, **options)
    x, target = draw(6, 8), np.array([0, 3, 5, 9, 14, 4])
    check(layer, reference, x, target)
    probabilities = layer.log_prob(x).numpy()
    expected = reference.log_prob(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layer.predict(x).numpy(), expected.argmax(1))


def test_sequences_of_different_lengths() -> None:
    parts = [draw(n, 2) for n in (4, 2, 1)]
    tensors = [torch.tensor(p) for p in parts]
    torch_rnn = torch.nn.utils.rnn
    for options in (
        {},
        {"batch_first": True, "padding_value": 2.0},
        {"padding_side": "left"},
    ):
        want = torch_rnn.pad_sequence(tensors, **options)
        np.testing.assert_array_equal(rnn.pad_sequence(parts, **options).numpy(), want)
    padded = rnn.pad_sequence(parts, batch_first=True)
    for part, back in zip(parts, rnn.unpad_sequence(padded, [4, 2, 1], True), strict=True):
        np.testing.assert_array_equal(back.numpy(), part)
    for part, back in zip(parts, rnn.unpack_sequence(rnn.pack_sequence(parts)), strict=True):
        np.testing.assert_array_equal(back.numpy(), part)


def normalized(name: str, **options: Any) -> tuple[Any, Any]:
    layer, reference = nn.Conv1d(3, 4, 2), torch.nn.Conv1d(3, 4, 2)
    getattr(parametrizations, name)(layer, **options)
    getattr(torch_parametrizations, name)(reference, **options)
    return layer, reference


@pytest.mark.parametrize("options", [{}, {"dim": None}, {"dim": 1}], ids=["rows", "all", "columns"])
def test_weight_norm(options: dict[str, Any]) -> None:
    check(*normalized("weight_norm", **options), draw(2, 3, 6))


def test_spectral_norm_trains_its_vectors() -> None:
    x = draw(2, 3, 6)
    layer, reference = normalized("spectral_norm", n_power_iterations=2)
    check(layer.eval(), reference.eval(), x)
    layer.train(), reference.train()
    run = nova.jit(layer)
    for _ in range(3):  # every call iterates once more
        expected = reference(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(run(x), expected, rtol=2e-4, atol=2e-5)
    for name, value in reference.state_dict().items():
        np.testing.assert_allclose(layer.state_dict()[name], value, rtol=1e-3, atol=1e-4)
    sigma = np.linalg.svd(layer.weight.numpy().reshape(4, -1))[1][0]
    assert abs(sigma - 1.0) < 0.2


def test_a_parametrized_layer_trains_and_becomes_plain_again() -> None:
    layer = parametrizations.weight_norm(nn.Linear(4, 2))
    loss = nn.MSELoss()
    optimizer = nova.optim.SGD(layer.parameters(), 0.1)
    step = nova.train_step(layer, lambda model, x, y: loss(model(x), y), optimizer)
    x, y = draw(8, 4), draw(8, 2)
    losses = [float(step(x, y)) for _ in range(20)]
    assert losses[-1] < losses[0] * 0.9
    before = layer(x).numpy()
    assert parametrize.is_parametrized(layer, "weight")
    parametrize.remove_parametrizations(layer, "weight")
    assert list(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(layer(x).numpy(), before, rtol=1e-6, atol=1e-6)


class _Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return nova.triu(x) + nova.swapaxes(nova.triu(x, k=1), 0, 1)


def test_a_parametrization_of_the_user() -> None:
    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", _Symmetric())
    weight = layer.weight.numpy()
    np.testing.assert_array_equal(weight, weight.T)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    with pytest.raises(ModuleError, match="computed from other parameters"):
        layer.weight = nn.Parameter(weight)


def test_backward_hooks_see_and_change_gradients() -> None:
    x = draw(3, 4)
    layer, reference = nn.Linear(4, 2), torch.nn.Linear(4, 2)
    same_weights(layer, reference)
    t = torch.tensor(x, requires_grad=True)
    reference.register_full_backward_hook(lambda m, i, o: (i[0] * 2.0 + o[0].sum(),))
    reference.register_full_backward_pre_hook(lambda m, o: (o[0] * 3.0,))
    (reference(t) ** 2).sum().backward()
    layer.register_full_backward_hook(lambda m, i, o: (i[0] * 2.0 + o[0].sum(),))
    handle = layer.register_full_backward_pre_hook(lambda m, o: (o[0] * 3.0,))
    X = nova.tensor(x, requires_grad=True)
    (layer(X) ** 2).sum().backward()
    np.testing.assert_allclose(X.grad.numpy(), t.grad, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        layer.weight.grad.numpy(), reference.weight.grad, rtol=1e-4, atol=1e-4
    )
    handle.remove()
    seen: list[Any] = []
    layer = nn.Linear(4, 2)
    layer.register_full_backward_hook(lambda m, i, o: seen.append((i, o)))
    (layer(x) ** 2).sum().backward()  # x needs no gradient
    assert seen[-1][0] == (None,) and seen[-1][1][0].shape == (3, 2)


class _Sums(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a * 2.0, a * b


def test_a_backward_hook_gets_all_gradients_at_once() -> None:
    module = _Sums()
    calls: list[Any] = []

    def hook(_: Any, inputs: Any, outputs: Any) -> Any:
        calls.append((len(inputs), len(outputs)))
        total = sum((g * g).sum() for g in inputs)
        return tuple(g / nova.sqrt(total) for g in inputs)

    module.register_full_backward_hook(hook)
    a, b = (nova.tensor(draw(3), requires_grad=True) for _ in range(2))
    first, second = module(a, b)
    (first.sum() + (second * second).sum()).backward()
    assert calls == [(2, 2)]
    grads = np.concatenate([a.grad.numpy(), b.grad.numpy()])
    assert abs(np.linalg.norm(grads) - 1.0) < 1e-5


def test_a_hook_of_one_gradient() -> None:
    x = draw(4)
    X = nova.tensor(x, requires_grad=True)
    hooked = nn.utils.gradient_hook(X, lambda grad: nova.clamp(grad, -0.1, 0.1))
    (hooked**2).sum().backward()
    np.testing.assert_allclose(X.grad.numpy(), np.clip(2 * x, -0.1, 0.1), rtol=1e-6)


def test_vectors_of_parameters_and_fused_layers() -> None:
    model = nn.Linear(3, 2)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2.0, model.parameters())
    again = nn.utils.parameters_to_vector(model.parameters()).numpy()
    np.testing.assert_array_equal(
        again, np.concatenate([p.data.ravel() for p in model.parameters()])
    )
    conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
    for buffer in (norm.running_mean, norm.running_var):
        buffer.assign(np.abs(draw(4)) + 0.5)
    norm.weight.data[...] = draw(4)
    x = draw(2, 3, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
    np.testing.assert_allclose(fused(x).numpy(), norm(conv(x)).numpy(), rtol=1e-3, atol=1e-4)


ERRORS: list[tuple[Callable[[], Any], type[NovaError], str]] = [
    (lambda: nn.LSTM(3, 4, proj_size=4), AttributeValueError, "proj_size"),
    (lambda: nn.GRU(3, 4, proj_size=2), AttributeValueError, "proj_size"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [5, 3]), AttributeValueError, "cutoffs"),
    (lambda: nn.FractionalMaxPool2d(2), AttributeValueError, "output_size"),
    (lambda: parametrizations.weight_norm(nn.ReLU()), NovaError, "weight"),
    (
        lambda: parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0),
        AttributeValueError,
        "n_power_iterations",
    ),
    (lambda: rnn.pad_sequence([draw(2, 3), draw(2, 4)]), ShapeError, "pad_sequence"),
    (
        lambda: nn.utils.vector_to_parameters(draw(3), nn.Linear(2, 2).parameters()),
        ShapeError,
        "vector_to_parameters",
    ),
    (lambda: nn.utils.weight_norm, NovaError, "parametrizations.weight_norm"),
]


@pytest.mark.parametrize(("call", "error", "says"), ERRORS)
def test_errors(call: Callable[[], Any], error: type[NovaError], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
