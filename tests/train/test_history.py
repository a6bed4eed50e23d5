"""The curve of the loss: numbers, text, and a PNG that is read back."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from nova import errors
from nova.train import History
from nova.train.axes import Axis, count_label, label, value_axis


def read_png(path: Path) -> np.ndarray:
    """The pixels of a PNG of 960 x 540, as bytes of RGB."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack_from(">II", data, 16) == (960, 540)
    image = pytest.importorskip("matplotlib.image")
    return (image.imread(path)[..., :3] * 255).astype(np.uint8)


def test_numbers():
    history = History()
    for loss in (4.0, 2.0, 1.0, 0.5):
        history.record(loss)
        if history.steps % 2 == 0:
            history.end_epoch()
    assert history.losses.tolist() == [4, 2, 1, 0.5] and history.losses.dtype == np.float64
    assert history.epoch_losses.tolist() == [3, 0.75] and history.epoch_ends == (2, 4)
    assert history.latest_loss() == 0.75
    history.record(8.0)
    assert history.latest_loss() == 8.0
    assert repr(history) == "<History of 5 steps, 2 epochs, the last loss 8>"


def test_text():
    lines = str(History(np.linspace(10, 0, 6400))).splitlines()
    assert lines[0].strip() == "loss" and lines[-1].endswith("6.4k steps")
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == ["10", "5", "0"]
    curve = [line.partition("│")[2] or line.partition("┤")[2] for line in lines[1:-2]]
    lengths = [len(row) for row in curve]
    assert len(curve) == 10 and lengths == sorted(lengths) and lengths[-1] == 64
    assert set("".join(curve)) <= set(" ▁▂▃▄▅▆▇█")


def test_text_on_a_log_scale():
    text = str(History(2 * 10.0 ** -np.linspace(0, 6, 640)))
    assert "(log scale)" in text and "0.1 ┤" in text


@pytest.mark.parametrize(
    "losses",
    [[3.0], [0.0, 0.0], [-1.0, -2.0], [1, np.nan, 2], [np.inf, 1.0], [1e300, -1e300], [1e-320, 1]],
)
def test_odd_losses(losses, tmp_path):
    pytest.importorskip("matplotlib")
    history = History(losses)
    assert "┤" in str(history)
    history.save_png(tmp_path / "odd.png")
    assert is_blue(read_png(tmp_path / "odd.png")).any() or np.isfinite(losses).sum() < len(losses)


@pytest.mark.parametrize("losses", [[], [np.nan, np.inf]])
def test_nothing_to_draw(losses, tmp_path):
    pytest.importorskip("matplotlib")
    assert str(History(losses)) == f"no finite loss in {len(losses)} steps"
    History(losses).save_png(tmp_path / "none.png")
    assert not is_blue(read_png(tmp_path / "none.png")).any()


def is_blue(pixels: np.ndarray) -> np.ndarray:
    red, _, blue = np.moveaxis(pixels.astype(int), 2, 0)
    return blue > red + 80


@pytest.mark.parametrize("steps", [100, 3000, 50_000])
def test_png_shows_the_curve(tmp_path, steps):
    """A line from the upper left to the lower right, and nothing where it should not be."""
    pytest.importorskip("matplotlib")
    History(np.linspace(100, 0, steps), [steps]).save_png(tmp_path / "curve.png")
    blue = is_blue(read_png(tmp_path / "curve.png"))
    rows, columns = np.nonzero(blue)
    remaining, right, top, bottom = columns.min(), columns.max(), rows.min(), rows.max()
    assert right - remaining > 780 and bottom - top > 350
    line = top + (bottom - top) * (columns - remaining) / (right - remaining)
    assert np.abs(rows - line).max() < 6
    assert all(blue[:, remaining : right + 1].any(axis=0))


def test_png_gap_and_log(tmp_path):
    pytest.importorskip("matplotlib")
    losses = np.full(100, 2.0)
    losses[40:60] = np.nan
    History(losses).save_png(tmp_path / "gap.png")
    columns = is_blue(read_png(tmp_path / "gap.png")).any(axis=0)
    assert not columns[460:540].any() and columns[200:300].all() and columns[700:800].all()
    curve = History(np.linspace(1, 9, 100))
    curve.save_png(tmp_path / "linear.png")
    curve.save_png(tmp_path / "log.png", log=True)
    assert (tmp_path / "log.png").read_bytes() != (tmp_path / "linear.png").read_bytes()
    assert not list(tmp_path.glob(".tmp*"))


def test_png_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(errors.MissingPackageError, match="needs matplotlib") as caught:
        History([1.0]).save_png(tmp_path / "loss.png")
    assert "pip install matplotlib" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_labels():
    assert [label(v) for v in (0.0, 1.5, 12345.0, 2e6, 1e-5, -0.25, 0.001)] == [
        *("0", "1.5", "1.23e4", "2e6", "1e-5", "-0.25", "0.001")
    ]
    assert [count_label(n) for n in (0, 999, 1000, 1500, 1234, 2_000_000)] == [
        *("0", "999", "1k", "1.5k", "1234", "2M")
    ]


def test_ticks():
    assert Axis(0, 1).ticks(5) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert Axis(0, 0.35).ticks(4) == [0, 0.1, 0.2, 0.3]
    assert Axis(3, 47).ticks(5) == [10, 20, 30, 40]
    assert Axis(2e-4, 300, log=True).ticks(8) == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100])
    assert Axis(1e-12, 1, log=True).ticks(5) == pytest.approx([1e-12, 1e-9, 1e-6, 1e-3, 1])
    assert Axis(1, 60, log=True).ticks(8) == pytest.approx([1, 2, 5, 10, 20, 50])
    assert value_axis(np.array([1.0, 5.0]), None).low == 0
    assert value_axis(np.array([4.0, 5.0]), None).low > 3.5
