"""`nova.fit` with iterables, validation, early stopping, loggers and callbacks."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_step import PlainStep, make_arrays
from torch.utils.data import DataLoader, TensorDataset

import nova
from nova import nn, optim
from nova.data import Batches
from nova.errors import AttributeValueError, DataError, MissingPackageError
from nova.train import CSVLogger, EarlyStopping, TensorBoardLogger

RNG = np.random.default_rng(5)
X = RNG.standard_normal((24, 4)).astype("f4")
Y = (X @ RNG.standard_normal((4, 1))).astype("f4")


def make_step(lr: float = 0.1, **options: Any) -> Any:
    nn.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1))

    def loss(m: Any, x: Any, y: Any) -> Any:
        error = m(x) - y
        value = (error * error).mean()
        return (value, {"worst": nova.abs(error).max()}) if options.get("has_aux") else value

    return nova.train_step(model, loss, optim.SGD(model.parameters(), lr), **options)


def fit(step: Any, batches: Any, epochs: int, **options: Any) -> Any:
    return nova.fit(step, batches, epochs, progress="off", **options)


def test_a_list_and_a_data_loader_train_as_batches() -> None:
    arrays = make_arrays()
    plain = Batches(*arrays, batch_size=7, shuffle=False)
    listed = [tuple(a[i : i + 7] for a in arrays) for i in range(0, 35, 7)]
    loader = DataLoader(TensorDataset(*map(torch.tensor, arrays)), batch_size=7, drop_last=True)
    steps = [PlainStep() for _ in range(3)]
    histories = [fit(s, b, 2) for s, b in zip(steps, (plain, listed, loader), strict=True)]
    assert steps[0].bits() == steps[1].bits() == steps[2].bits()
    assert all(h.epoch_ends == histories[0].epoch_ends for h in histories)


def test_generators_and_lengths() -> None:
    arrays = make_arrays()

    def forever() -> Any:
        while True:
            yield tuple(a[:7] for a in arrays)

    history = fit(PlainStep(), forever(), 3, steps_per_epoch=4)
    assert history.epoch_ends == (4, 8, 12)
    with pytest.raises(DataError, match="has no length"):
        fit(PlainStep(), forever(), 1)
    with pytest.raises(DataError, match="has no more batches"):
        fit(PlainStep(), iter([tuple(a[:7] for a in arrays)]), 2, steps_per_epoch=2)
    with pytest.raises(DataError, match="a batch has a str"):
        fit(PlainStep(), [("a", "b")], 1)
    with pytest.raises(DataError, match="without batches"):
        fit(PlainStep(), [], 1)
    with pytest.raises(DataError, match="steps_per_epoch is 0"):
        fit(PlainStep(), forever(), 1, steps_per_epoch=0)
    with pytest.raises(DataError, match="batches is a dict"):
        fit(PlainStep(), {"x": 1}, 1)


def test_an_iterable_resumes_inside_an_epoch(tmp_path: Path) -> None:
    arrays = make_arrays()
    listed = [tuple(a[i : i + 7] for a in arrays) for i in range(0, 35, 7)]
    whole = PlainStep()
    fit(whole, listed, 2)
    step, file = PlainStep(), tmp_path / "run.ckpt"

    def stop(number: int, result: Any) -> None:
        if number == 7:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        fit(step, listed, 2, checkpoint=file, every=3, on_step=stop)
    again = PlainStep()
    history = fit(again, listed, 2, checkpoint=file)
    assert again.bits() == whole.bits() and history.steps == 10
    with pytest.raises(nova.errors.CheckpointError, match="batches was 5, is 4"):
        fit(PlainStep(), listed[:4], 3, checkpoint=file)


def test_validation_and_early_stopping(tmp_path: Path) -> None:
    step = make_step(lr=0.0)
    batches = Batches(X, Y, batch_size=8)
    validation = [(X[:16], Y[:16]), (X[16:], Y[16:])]
    file = tmp_path / "run.ckpt"
    history = fit(
        step,
        batches,
        20,
        validation=validation,
        early_stopping=EarlyStopping(patience=2),
        checkpoint=file,
    )
    assert len(history.validation_losses) == len(history.epoch_ends) == 3, "two without progress"
    model = step.model.eval()
    expected = float(np.mean((model(X).numpy() - Y) ** 2))
    np.testing.assert_allclose(history.validation_losses, expected, rtol=1e-5)
    assert len({*history.validation_losses}) == 1, "eval mode: no dropout"
    resumed = fit(step, batches, 4, validation=validation, checkpoint=file)
    assert len(resumed.validation_losses) == 4
    with pytest.raises(AttributeValueError, match="validation needs a step"):
        fit(PlainStep(), Batches(*make_arrays(), batch_size=7), 1, validation=[])
    with pytest.raises(DataError, match="no batches"):
        fit(make_step(), Batches(X, Y, batch_size=8), 1, validation=[])
    assert not EarlyStopping(2, 0.1).should_stop([1.0, 0.95, 0.8])
    assert EarlyStopping(2, 0.1).should_stop([1.0, 0.95, 0.92])
    for wrong in ({"patience": 0}, {"min_delta": -1.0}):
        with pytest.raises(AttributeValueError):
            EarlyStopping(**wrong)


def test_loggers_and_callbacks(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("tensorboardX")
    step = make_step(has_aux=True)
    results: list[Any] = []
    folder, table = tmp_path / "board", tmp_path / "logs" / "run.csv"
    board = TensorBoardLogger(folder)
    for epochs in (1, 2):
        batches = Batches(X, Y, batch_size=8)
        batches.position = (epochs - 1, 0)
        fit(
            step,
            batches,
            epochs,
            loggers=[CSVLogger(table), board],
            on_step=lambda number, result: results.append((number, result)),
        )
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["name"] for r in rows[:2]] == ["loss", "worst"]
    losses = [float(r["value"]) for r in rows if r["name"] == "loss"]
    assert losses == [float(result[0]) for _, result in results]
    assert [r["name"] for r in rows].count("epoch_loss") == 2
    assert [number for number, _ in results] == [1, 2, 3, 1, 2, 3]
    written = [p.read_bytes() for p in folder.iterdir()]
    assert tensorboard and any(b"worst" in data and b"epoch_loss" in data for data in written)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(MissingPackageError, match="tensorboardX"):
        TensorBoardLogger(tmp_path)
