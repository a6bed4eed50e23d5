"""`nova.fit` around a step in numpy: order, checkpoints, resuming, progress, NaN and Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from plain_step import PlainStep, make_arrays

import nova
from nova import errors
from nova.data import Batches
from nova.frontends.safetensors import read_metadata, read_safetensors, write_safetensors
from nova.train import History, progress
from nova.train.checkpoint import CheckpointFile


def make_batches(**options) -> Batches:
    return Batches(*make_arrays(), **{"batch_size": 7, "seed": 3, **options})


def fit(step, batches=None, epochs=3, **options) -> History:
    return nova.fit(step, batches or make_batches(), epochs, **{"progress": "off", **options})


@pytest.fixture
def whole() -> tuple[PlainStep, History]:
    step = PlainStep()
    return step, fit(step)


def test_same_as_a_loop(whole):
    step, history = whole
    plain, losses = PlainStep(), []
    batches = make_batches()
    for _ in range(3):
        losses += [float(plain(*batch)) for batch in batches]
    assert step.bits() == plain.bits() and history.losses.tolist() == losses
    assert history.epoch_ends == (5, 10, 15)


def test_fit_is_a_function_whatever_was_imported_before():
    import nova.train
    import nova.train.loop

    assert callable(nova.fit) and nova.fit is nova.train.fit


def test_goes_on_from_the_position(whole):
    step, batches = PlainStep(), make_batches()
    first = fit(step, batches, 1)
    second = fit(step, batches, 3)
    assert step.bits() == whole[0].bits()
    assert [*first.losses, *second.losses] == whole[1].losses.tolist()
    with pytest.raises(errors.TrainingError, match="3 epochs are complete, and epochs=3"):
        fit(step, batches, 3)


# --- checkpoints ----------------------------------------------------------------------------------


class Stop(Exception):
    pass


class Stopping(PlainStep):
    """Fails at one step, before it has changed anything."""

    def __init__(self, after: int):
        super().__init__()
        self.after = after

    def __call__(self, x, y):
        if self.count == self.after:
            raise Stop
        return super().__call__(x, y)


@pytest.mark.parametrize("every", [1, 2, 4, 5, 100, None])
def test_resumed_is_the_same_as_uninterrupted(tmp_path, whole, every):
    for after in range(15):
        path = tmp_path / f"{after}.safetensors"
        with pytest.raises(Stop):
            fit(Stopping(after), checkpoint=path, every=every)
        saved = 0 if every == 100 else (every or 5) * (after // (every or 5))
        step = PlainStep()
        history = fit(step, checkpoint=path, every=every)
        assert len(step.seen) == 15 - saved
        assert step.bits() == whole[0].bits()
        assert history.losses.tobytes() == whole[1].losses.tobytes()
        assert history.epoch_ends == whole[1].epoch_ends


def test_what_a_finished_run_leaves(tmp_path, whole):
    path = tmp_path / "runs" / "a.safetensors"
    fit(PlainStep(), checkpoint=path, every=4)
    assert sorted(os.listdir(path.parent)) == ["a.safetensors", "a.safetensors.previous"]
    tensors = read_safetensors(path)
    assert tensors["state.weight"].tobytes() == whole[0].weight.tobytes()
    assert read_metadata(path)["format"] == "nova-checkpoint"
    assert int(read_safetensors(f"{path}.previous")["state.count"]) == 12
    again = PlainStep()
    history = fit(again, checkpoint=path, every=4)
    assert not again.seen and again.bits() == whole[0].bits() and history.steps == 15
    longer = PlainStep()
    fit(longer, epochs=4, checkpoint=path)
    assert len(longer.seen) == 5 and int(longer.count) == 20


def test_resume_false_starts_anew(tmp_path, whole):
    path = tmp_path / "a.safetensors"
    fit(PlainStep(), checkpoint=path)
    step = PlainStep()
    fit(step, checkpoint=path, resume=False)
    assert len(step.seen) == 15 and step.bits() == whole[0].bits()


def test_tied_arrays_are_stored_once(tmp_path):
    class Tied(PlainStep):
        def state_dict(self):
            return {**super().state_dict(), "again": self.weight}

        def load_state_dict(self, state):
            PlainStep.load_state_dict(self, {**state, "again": None})

    path = tmp_path / "a.safetensors"
    fit(Tied(), checkpoint=path)
    assert sorted(read_safetensors(path)) == [
        *("history.epoch_ends", "history.losses"),
        *("state.count", "state.speed", "state.weight"),
    ]


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_middle, "do not have the hash"),
        (lambda p: p.write_bytes(p.read_bytes()[:-5]), "damaged"),
        (lambda p: p.write_bytes(b""), "damaged"),
        (lambda p: p.write_bytes(b"PK\3\4" * 100), "damaged"),
        (lambda p: write_safetensors(p, {"w": np.ones(3)}), "not a checkpoint of nova.fit"),
        (
            lambda p: write_safetensors(
                p, read_safetensors(p), {**read_metadata(p), "version": "2"}
            ),
            "version 2",
        ),
        (
            lambda p: write_safetensors(
                p, read_safetensors(p), {**read_metadata(p), "training": "{}"}
            ),
            "do not have the hash",
        ),
    ],
    ids=["bit", "cut", "empty", "foreign", "other-tensors", "version", "metadata"],
)
def test_damaged_and_foreign_files(tmp_path, whole, damage, message):
    path = tmp_path / "a.safetensors"
    fit(PlainStep(), checkpoint=path, every=4)
    damage(path)
    step = PlainStep()
    with pytest.raises(errors.CheckpointError, match=message) as caught:
        fit(step, checkpoint=path, every=4)
    assert caught.value.where == str(path) and not step.seen and not step.weight.any()
    assert "rename a.safetensors.previous to a.safetensors" in caught.value.hint
    os.replace(f"{path}.previous", path)
    fit(step, checkpoint=path, every=4)
    assert len(step.seen) == 3 and step.bits() == whole[0].bits()


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    fit(PlainStep(), checkpoint=path)
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 0x10
        path.write_bytes(broken)
        with pytest.raises(errors.CheckpointError):
            CheckpointFile(path).load()


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (lambda: make_batches(seed=4), "seed was 3, is 4"),
        (lambda: make_batches(batch_size=8), "batch_size was 7, is 8"),
        (lambda: make_batches(drop_last=False), "drop_last was True, is False"),
        (lambda: Batches(*make_arrays(41), batch_size=7, seed=3), "rows was 40, is 41"),
    ],
)
def test_checkpoint_of_other_data(tmp_path, batches, message):
    fit(PlainStep(), checkpoint=tmp_path / "a", epochs=1)
    with pytest.raises(errors.CheckpointError, match=message):
        fit(PlainStep(), batches(), checkpoint=tmp_path / "a")


def test_checkpoint_of_another_model(tmp_path):
    def step(width):
        model = nova.nn.Linear(3, width)
        optimizer = nova.optim.SGD(model.parameters(), lr=0.1)
        return nova.train_step(model, lambda m, x: (m(x) ** 2).mean(), optimizer)

    batches = Batches(np.ones((8, 3), "f4"), batch_size=4)
    fit(step(2), batches, 1, checkpoint=tmp_path / "a")
    with pytest.raises(errors.CheckpointError, match=r"other training[\s\S]*shape") as caught:
        fit(step(4), batches, 2, checkpoint=tmp_path / "a")
    assert "resume=False" in caught.value.hint


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "a", "/proc/nova/a"):
        step = PlainStep()
        with pytest.raises(errors.CheckpointError, match="cannot be written") as caught:
            fit(step, checkpoint=path)
        assert caught.value.where == str(path) and not step.seen


def test_full_disk_keeps_the_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "a"
    fit(PlainStep(), checkpoint=path, epochs=1)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.CheckpointError, match="No space left"):
        fit(PlainStep(), checkpoint=path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a"]


def test_checkpoint_path_is_fixed_at_the_start(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    fit(PlainStep(), checkpoint="a", plot="a.png", on_epoch=lambda e, h: os.chdir("/"))
    assert sorted(os.listdir(tmp_path)) == ["a", "a.png", "a.previous"]


# --- callbacks, mistakes --------------------------------------------------------------------------


def test_on_epoch(tmp_path):
    calls = []
    path = tmp_path / "a"

    def on_epoch(epoch, history):
        calls.append((epoch, history.steps, len(history.epoch_losses), path.exists()))

    fit(PlainStep(), on_epoch=on_epoch, checkpoint=path)
    assert calls == [(0, 5, 1, False), (1, 10, 2, True), (2, 15, 3, True)]


def test_plot(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    fit(PlainStep(), plot=tmp_path / "loss.png")
    pixels = image.imread(tmp_path / "loss.png")
    assert pixels.shape[:2] == (540, 960) and len(np.unique(pixels.reshape(-1, 4), axis=0)) > 10


def test_plot_without_matplotlib_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    step = PlainStep()
    with pytest.raises(errors.MissingPackageError, match="needs matplotlib"):
        fit(step, plot=tmp_path / "loss.png")
    assert step.count == 0 and not list(tmp_path.iterdir())


class NotANumber(PlainStep):
    def __call__(self, x, y):
        loss = super().__call__(x, y)
        return np.array(np.nan) if self.count == 8 else loss


def test_nan_stops(tmp_path):
    pytest.importorskip("matplotlib")
    step = NotANumber()
    with pytest.raises(errors.TrainingError, match=r"step 8 is nan \(epoch 1, batch 2") as caught:
        fit(step, checkpoint=tmp_path / "a", plot=tmp_path / "a.png")
    assert caught.value.history.steps == 8 and "NOVA_CHECK=nan" in caught.value.hint
    assert caught.value.where.startswith(__file__)
    assert int(read_safetensors(tmp_path / "a")["state.count"]) == 5
    assert (tmp_path / "a.png").exists()
    history = fit(NotANumber(), on_nan="continue")
    assert history.steps == 15 and np.isnan(history.losses).sum() == 1 and "┤" in str(history)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, errors.AttributeValueError, "epochs is 0"),
        ({"epochs": 1.5}, errors.AttributeValueError, "epochs is 1.5"),
        ({"every": 5}, errors.AttributeValueError, "checkpoint None"),
        ({"every": 0, "checkpoint": "a"}, errors.AttributeValueError, "every is 0"),
        ({"progress": "loud"}, errors.AttributeValueError, "progress is 'loud'"),
        ({"on_nan": "pray"}, errors.AttributeValueError, "on_nan is 'pray'"),
        ({"batches": 3}, errors.DataError, "batches is a int"),
        ({"step": print}, errors.AttributeValueError, "step is a builtin"),
    ],
)
def test_mistakes(options, error, message):
    with pytest.raises(error, match=message) as caught:
        fit(**{"step": PlainStep(), **options})
    assert caught.value.where.startswith(__file__)


# --- progress -------------------------------------------------------------------------------------


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_lines(capsys):
    fit(PlainStep(), progress="auto")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(re.search(r"loss [\d.]+  \d+ steps/s  ", n) for n in lines)
    assert lines[0].startswith("epoch 1/3  loss ") and "ETA 0:00" in lines[0]
    assert lines[2].startswith("epoch 3/3") and lines[2].endswith("done")


def show_on_screen(monkeypatch):
    """Make stderr a terminal. Not a fixture: pytest replaces stderr again after them."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "90", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return screen


def frames(screen):
    """The states of the line, without the control sequences between them."""
    text = re.sub(r"\x1b\[\?25[lh]|\x1b\[0m", "", screen.getvalue())
    return [frame.strip() for frame in re.split(r"(?:\r|\x1b\[\d?[A-K])+", text) if frame.strip()]


def test_terminal(monkeypatch):
    screen = show_on_screen(monkeypatch)
    monkeypatch.setattr(progress, "_REFRESH_SECONDS", 0)
    fit(PlainStep(), progress="on")
    drawn = frames(screen)
    assert any(re.match(r"epoch 2/3  batch 2/5 ━+.* loss ", frame) for frame in drawn)
    assert re.fullmatch(r"epoch 3/3  batch 5/5 ━+ loss [\d.]+  \d+ steps/s  done", drawn[-1])
    assert all("\n" not in frame and len(frame) < 90 for frame in drawn)
    assert {frame.split(" ━")[0] for frame in drawn} >= {
        f"epoch {epoch}/3  batch {batch}/5" for epoch in (1, 2, 3) for batch in (1, 2, 3, 4, 5)
    }
    assert screen.getvalue().count("\n") == 1, "the line stays, and the next output is below it"


def test_a_terminal_is_not_flooded(monkeypatch):
    screen = show_on_screen(monkeypatch)
    monkeypatch.setattr(progress, "_REFRESH_SECONDS", 1000)
    fit(PlainStep(), progress="on")
    titles = [frame.split(" ━")[0] for frame in frames(screen)]
    assert set(titles) == {"epoch 1/3  batch 1/5", "epoch 3/3  batch 5/5"} and len(titles) <= 5


def test_an_error_before_the_first_step_leaves_no_bar(monkeypatch):
    screen = show_on_screen(monkeypatch)

    class Broken(PlainStep):
        def __call__(self, x, y):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(Broken(), progress="on")
    assert frames(screen) == []


def test_off(capsys):
    fit(PlainStep(), progress="off")
    with nova.knobs.override(progress="off"):
        fit(PlainStep(), progress="auto")
    assert capsys.readouterr().err == ""


def test_clock():
    assert [progress.clock(s) for s in (0.2, 65, 3665)] == ["0:00", "1:05", "1:01:05"]


def test_imports_load_neither_rich_nor_matplotlib():
    code = "import sys, nova.train; print({'rich', 'matplotlib'} & set(sys.modules))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "set()\n"


# --- Ctrl-C ---------------------------------------------------------------------------------------


class Interrupted(PlainStep):
    """Ctrl-C arrives inside of step 7."""

    def __call__(self, x, y):
        if self.count == 6:
            signal.raise_signal(signal.SIGINT)
        return super().__call__(x, y)


def test_ctrl_c(tmp_path, whole):
    handler = signal.getsignal(signal.SIGINT)
    path, step, batches = tmp_path / "a", Interrupted(), make_batches()
    with pytest.raises(errors.TrainingInterrupted, match="after step 7") as caught:
        fit(step, batches, checkpoint=path)
    assert isinstance(caught.value, KeyboardInterrupt) and str(path) in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is handler
    assert caught.value.history.steps == 7 and batches.position == (1, 2)
    resumed = PlainStep()
    history = fit(resumed, checkpoint=path)
    assert len(resumed.seen) == 8 and resumed.bits() == whole[0].bits()
    assert history.losses.tobytes() == whole[1].losses.tobytes()
    fit(step, batches)
    assert step.bits() == whole[0].bits(), "the same process can go on too"


def test_second_ctrl_c_acts_at_once():
    class Impatient(PlainStep):
        def __call__(self, x, y):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(Impatient())
    assert not isinstance(caught.value, errors.NovaError)
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_while_compiling_acts_at_once():
    class Compiling(PlainStep):
        def lower(self, x, y):
            signal.raise_signal(signal.SIGINT)

    step = Compiling()
    with pytest.raises(KeyboardInterrupt):
        fit(step)
    assert not step.seen


def test_in_another_thread(whole):
    step = PlainStep()
    thread = threading.Thread(target=fit, args=(step,))
    thread.start()
    thread.join()
    assert step.bits() == whole[0].bits()


# --- the compiled step ----------------------------------------------------------------------------


class Limited:
    """A step that fails after some calls."""

    def __init__(self, step, calls):
        self.step, self.calls = step, calls
        self.state_dict, self.load_state_dict = step.state_dict, step.load_state_dict

    def __call__(self, *batch):
        if not self.calls:
            raise Stop
        self.calls -= 1
        return self.step(*batch)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_compiled_step_resumes_exactly(tmp_path, accumulate):
    """Dropout, a schedule, clipping and half-accumulated gradients are all in the checkpoint."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 5)).astype("f4"), rng.integers(0, 3, 60)

    def make():
        nova.nn.manual_seed(1)
        model = nova.nn.Sequential(
            nova.nn.Linear(5, 8), nova.nn.GELU(), nova.nn.Dropout(0.2), nova.nn.Linear(8, 3)
        )
        rate = nova.optim.CosineAnnealing(0.05, 40)
        optimizer = nova.optim.AdamW(model.named_parameters(), lr=rate, clip_norm=1.0)
        loss = lambda model, x, y: nova.cross_entropy(model(x), y)  # noqa: E731
        return nova.train_step(model, loss, optimizer, accumulate=accumulate)

    def batches():
        return Batches(x, y, batch_size=7, drop_last=False)

    whole = make()
    expected = fit(whole, batches(), 4)
    for stop in (4, 7, 9):
        limited = Limited(make(), stop)
        with pytest.raises(Stop):
            fit(limited, batches(), 4, checkpoint=tmp_path / "a", every=2)
    step = make()
    history = fit(step, batches(), 4, checkpoint=tmp_path / "a", every=2)
    assert history.losses.tobytes() == expected.losses.tobytes() and history.steps == 36
    for name, array in whole.state_dict().items():
        assert array.tobytes() == step.state_dict()[name].tobytes(), name
