"""Models that torch.onnx and skl2onnx export, against torch and scikit-learn."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("skl2onnx")

import torch
from skl2onnx import to_onnx as from_sklearn
from sklearn import ensemble, linear_model, neural_network, pipeline, preprocessing, svm
from torch import nn

import nova

RNG = np.random.default_rng(3)


def convolutional() -> tuple[nn.Module, Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return model, torch.randn(2, 3, 12, 12)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 1, stride=2)
        self.skip = nn.Conv2d(4, 4, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + self.skip(x))


class UpDown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(5, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = nn.functional.interpolate(self.down(x), scale_factor=2, mode="bilinear")
        y = self.up(torch.nn.functional.silu(self.down(x))) + wide
        return self.out(torch.cat([x, y], 1))


class Recurrent(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Decoder(nn.Module):
    """Token and position embeddings, causal attention, a gelu MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.norm, self.qkv = nn.LayerNorm(16), nn.Linear(16, 48)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 16))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + attended.transpose(1, 2).reshape(batch, length, 16)
        return self.mlp(x) @ self.tokens.weight.T


def encoder() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return layer, torch.randn(2, 5, 16)


TORCH: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "convolutional": convolutional,
    "residual": lambda: (Residual(), torch.randn(1, 4, 8, 8)),
    "up_down": lambda: (UpDown(), torch.randn(1, 1, 8, 8)),
    "lstm": lambda: (Recurrent(nn.LSTM), torch.randn(2, 4, 6)),
    "gru": lambda: (Recurrent(nn.GRU), torch.randn(2, 4, 6)),
    "decoder": lambda: (Decoder(), torch.randint(0, 20, (2, 8))),
    "encoder": encoder,
}


def check_torch(name: str) -> None:
    torch.manual_seed(0)
    module, x = TORCH[name]()
    module.eval()
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    assert program is not None
    buffer = io.BytesIO()
    program.save(buffer)
    with torch.no_grad():
        expected = module(x).numpy()
    result = nova.from_onnx(buffer.getvalue())(x.numpy())
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TORCH)
def test_models_of_torch(name: str) -> None:
    check_torch(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_torch_with_external_data(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 7)).eval()
    x = torch.randn(3, 64)
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    assert program is not None
    program.save(tmp_path / "model.onnx", external_data=True)
    assert len(list(tmp_path.iterdir())) == 2
    result = nova.from_onnx(tmp_path / "model.onnx")(x.numpy())
    np.testing.assert_allclose(result, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


X = RNG.standard_normal((60, 5)).astype("f4")
CLASSES = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype("i8") + (X[:, 2] > 0.8)
NUMBERS = (X[:, 0] * 2 + np.sin(X[:, 1])).astype("f4")
CLASSIFIERS = {
    "logistic": lambda: linear_model.LogisticRegression(),
    "forest": lambda: ensemble.RandomForestClassifier(8, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0),
    "perceptron": lambda: neural_network.MLPClassifier((8,), max_iter=60, random_state=0),
    "scaled": lambda: pipeline.make_pipeline(
        preprocessing.StandardScaler(), linear_model.LogisticRegression()
    ),
}
REGRESSORS = {
    "linear": lambda: linear_model.LinearRegression(),
    "forest": lambda: ensemble.RandomForestRegressor(8, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=6, random_state=0),
    "support_vectors": lambda: svm.SVR(C=2.0),
    "scaled": lambda: pipeline.make_pipeline(preprocessing.MinMaxScaler(), linear_model.Ridge()),
}


def mostly_slow(names: Any, quick: str) -> list[Any]:
    """The names, all but one marked slow."""
    return [n if n == quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", mostly_slow(CLASSIFIERS, "forest"))
def test_classifiers_of_scikit_learn(name: str) -> None:
    model = CLASSIFIERS[name]().fit(X, CLASSES)
    proto = from_sklearn(model, X[:1], options={"zipmap": False}, target_opset=21)
    labels, shares = nova.from_onnx(proto)(X)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_allclose(shares, model.predict_proba(X), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["logistic", "forest"])
def test_classifiers_with_labels_of_strings(name: str) -> None:
    """As skl2onnx exports them by default: labels by the host, and a map of shares per row."""
    words = np.array(["low", "middle", "high"])[CLASSES]
    model = CLASSIFIERS[name]().fit(X, words)
    labels, shares = nova.from_onnx(from_sklearn(model, X[:1], target_opset=21))(X)
    assert labels.tolist() == model.predict(X).tolist()
    assert list(shares[0]) == model.classes_.tolist()
    table = [[row[label] for label in model.classes_] for row in shares]
    np.testing.assert_allclose(table, model.predict_proba(X), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", mostly_slow(REGRESSORS, "linear"))
def test_regressors_of_scikit_learn(name: str) -> None:
    model = REGRESSORS[name]().fit(X, NUMBERS)
    proto = from_sklearn(model, X[:1], target_opset=21)
    result = nova.from_onnx(proto)(X)
    np.testing.assert_allclose(result[:, 0], model.predict(X), rtol=1e-4, atol=1e-4)
