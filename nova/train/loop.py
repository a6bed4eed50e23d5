"""`nova.fit`: runs a step over batches for some epochs.

In: a step (`nova.train_step`, or any callable that takes a batch, returns the loss and has
`state_dict` and `load_state_dict`), a `Batches` or any iterable. Out: a `History`. The checkpoint
after step n, and all that follows, is the same whether or not the run was killed before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from math import isfinite
from time import monotonic
from typing import Any, Protocol

import numpy as np

from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.data import Batches
from nova.errors import (
    AttributeValueError,
    CheckpointError,
    DataError,
    StateDictError,
    TrainingError,
    TrainingInterrupted,
)
from nova.train.checkpoint import CheckpointFile, Saved
from nova.train.early_stopping import EarlyStopping
from nova.train.history import History
from nova.train.interrupt import DeferredInterrupt
from nova.train.iterables import IterableBatches, as_batch
from nova.train.loggers import Logger
from nova.train.png_chart import check_matplotlib
from nova.train.progress import Quiet, choose_progress

# Short epochs do not draw a picture each: drawing takes at most a twentieth of the time.
_PLOT_SHARE = 20
_PLOT_SECONDS = 2.0


class Step(Protocol):
    """The interface of a step for `fit`; all values that its runs change are in its state."""

    def __call__(self, *batch: Any) -> Any: ...

    def state_dict(self) -> dict[str, np.ndarray]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any: ...


@user_facing
def fit(
    step: Step,
    batches: Batches | Iterable[Any],
    epochs: int,
    *,
    steps_per_epoch: int | None = None,
    validation: Batches | Iterable[Any] | None = None,
    early_stopping: EarlyStopping | None = None,
    loggers: Sequence[Logger] = (),
    on_step: Callable[[int, Any], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | None = None,
    resume: bool = True,
    progress: str = "auto",
    plot: str | os.PathLike[str] | None = None,
    on_epoch: Callable[[int, History], Any] | None = None,
    on_nan: str = "stop",
) -> History:
    """Train from `batches.position` until `epochs` epochs are complete, counted from the first.

    `batches` is a `Batches` or an iterable, such as a torch DataLoader; `steps_per_epoch` is the
    length of an epoch for an iterable without one. `validation` has batches for `step.evaluate`
    after each epoch; `early_stopping` may end the training then. `loggers` get the loss and the
    scalar auxiliary results of every step and the losses of every epoch. `on_step(number, result)`
    is called after each step with what it returned.
    `checkpoint` is a file that is written after every `every` steps (None: after every epoch) and
    at the end. With `resume`, a run that finds one resumes from it. `plot` is a PNG of the loss,
    redrawn by matplotlib during the training. `on_epoch(epoch, history)` is called after each
    epoch, before its checkpoint. `progress` is "auto" (as the knob says), "on" or "off". A NaN or
    infinite loss is a TrainingError unless `on_nan="continue"`. Ctrl-C finishes the step, writes
    the checkpoint and raises TrainingInterrupted, a KeyboardInterrupt; a second one acts at once.
    """
    source = _as_batches(batches, steps_per_epoch)
    _check(step, epochs, every, checkpoint, on_nan)
    if validation is not None and not hasattr(step, "evaluate"):
        raise AttributeValueError(
            f"validation needs a step with a method evaluate, not a {type(step).__name__}",
            hint="nova.train_step(model, loss, optimizer) makes one",
        )
    if plot is not None:
        check_matplotlib()
    bar = choose_progress(progress)
    file = None if checkpoint is None else CheckpointFile(checkpoint)
    watch = _Watch(step, validation, early_stopping, tuple(loggers), on_step)
    run = _Run(step, source, int(epochs), file, every, bar, on_nan == "stop", watch)
    resumed = run.prepare(resume)
    if not resumed and source.position[0] >= epochs:
        raise TrainingError(
            f"nothing to train: {source.position[0]} epochs are complete, and epochs={epochs}",
            hint="epochs counts from the first; to start again, batches.position = (0, 0)",
        )
    picture = _Picture(plot, run.history)
    try:
        run.train(on_epoch, picture)
    except (TrainingError, TrainingInterrupted) as error:
        error.history = run.history
        picture.draw()
        raise
    finally:
        bar.close()
        watch.close()
    picture.draw()
    return run.history


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        step: Step,
        batches: Batches | IterableBatches,
        epochs: int,
        file: CheckpointFile | None,
        every: int | None,
        bar: Quiet,
        stop_at_nan: bool,
        watch: _Watch,
    ):
        self.step, self.batches, self.epochs = step, batches, epochs
        self.file, self.every, self.bar = file, every, bar
        self.stop_at_nan = stop_at_nan
        self.watch = watch
        self.history = History()

    def prepare(self, resume: bool) -> bool:
        """Resume from the checkpoint if there is one; returns whether there was."""
        if self.file is None:
            return False
        self.file.prepare()
        saved = self.file.load() if resume else None
        if saved is None:
            return False
        try:
            _check_same_data(saved.data, _description(self.batches))
            self.step.load_state_dict(saved.state)
            self.batches.position = saved.position
        except (CheckpointError, DataError, StateDictError) as error:
            raise CheckpointError(
                f"the checkpoint is of other training: {error.what}",
                where=str(self.file.path),
                hint="train the same model on the same data, or pass resume=False to start anew",
            ) from error
        self.history = saved.history
        return True

    def train(self, on_epoch: Callable[[int, History], Any] | None, picture: _Picture) -> None:
        batches, history = self.batches, self.history
        count = len(batches)
        epoch, batch = batches.position
        started = False
        with DeferredInterrupt() as interrupt, closing(batches.stream(self.epochs)) as stream:
            for arrays in stream:
                if not started:
                    started = True
                    self._compile(arrays)
                    self.bar.start(self.epochs * count, epoch * count + batch, self.epochs)
                    interrupt.arm()
                result = self.step(*arrays)
                loss = float(result[0] if isinstance(result, tuple) else result)
                history.record(loss)
                self.watch.after_step(history.steps, loss, result)
                if self.stop_at_nan and not isfinite(loss):
                    raise self._not_finite(loss, epoch, batch)
                ended = batch + 1 == count
                if ended:
                    history.end_epoch()
                self.bar.step(epoch, batch, count, history)
                stopped = False
                if ended:
                    stopped = self.watch.after_epoch(history)
                    self.bar.end_epoch(epoch, history)
                    picture.redraw()
                    if on_epoch is not None:
                        on_epoch(epoch, history)
                epoch, batch = batches.position
                stopping = interrupt.pending  # read once: it may change at any time
                if stopping or stopped or self._is_due(ended):
                    self._save()
                if stopped:
                    return
                if stopping:
                    raise self._interrupted()

    def _compile(self, arrays: tuple[np.ndarray, ...]) -> None:
        """Compile before the clock starts, and while Ctrl-C still acts at once."""
        lower = getattr(self.step, "lower", None)
        if lower is not None:
            lower(*arrays)

    def _is_due(self, ended: bool) -> bool:
        if self.every is None or self.batches.position[0] >= self.epochs:
            return ended
        return self.history.steps % self.every == 0

    def _save(self) -> None:
        if self.file is not None:
            state, position = self.step.state_dict(), self.batches.position
            self.file.save(Saved(state, position, self.history, _description(self.batches)))

    def _not_finite(self, loss: float, epoch: int, batch: int) -> TrainingError:
        note = "; the last checkpoint is from before" if self.file is not None else ""
        return TrainingError(
            f"the loss of step {self.history.steps} is {loss} (epoch {epoch}, batch {batch}, "
            f"counted from 0){note}",
            where=str(user_location()),
            hint="NOVA_CHECK=nan names the op that produced it; on_nan='continue' continues",
        )

    def _interrupted(self) -> TrainingInterrupted:
        note = f"; {self.file.path} continues from here" if self.file is not None else ""
        return TrainingInterrupted(f"interrupted after step {self.history.steps}{note}")


class _Watch:
    """What is done after steps and epochs: validation, early stopping, logs, callbacks."""

    def __init__(
        self,
        step: Any,
        validation: Any,
        early_stopping: EarlyStopping | None,
        loggers: tuple[Logger, ...],
        on_step: Callable[[int, Any], Any] | None,
    ):
        self.step, self.validation, self.early_stopping = step, validation, early_stopping
        self.loggers, self.on_step = loggers, on_step

    def after_step(self, number: int, loss: float, result: Any) -> None:
        if self.loggers:
            values = {"loss": loss}
            if isinstance(result, tuple) and isinstance(result[1], dict):
                values.update((k, float(v)) for k, v in result[1].items() if np.ndim(v) == 0)
            self._log(number, values)
        if self.on_step is not None:
            self.on_step(number, result)

    def after_epoch(self, history: History) -> bool:
        """Validate and log; returns whether the training ends."""
        values = {"epoch_loss": float(history.epoch_losses[-1])}
        metrics = history.epoch_losses
        if self.validation is not None:
            values["validation_loss"] = self._validate()
            history.record_validation(values["validation_loss"])
            metrics = history.validation_losses
        self._log(history.steps, values)
        return self.early_stopping is not None and self.early_stopping.should_stop(list(metrics))

    def _validate(self) -> float:
        """The mean loss over the validation batches, weighted by their rows."""
        total, rows = 0.0, 0
        for batch in self.validation:
            arrays = as_batch(batch)
            result = self.step.evaluate(*arrays)
            count = len(arrays[0]) if np.ndim(arrays[0]) else 1
            total += count * float(result[0] if isinstance(result, tuple) else result)
            rows += count
        if not rows:
            raise DataError(
                "the validation has no batches", hint="pass an iterable that starts again"
            )
        if isinstance(self.validation, Batches):
            self.validation.position = (0, 0)
        return total / rows

    def _log(self, number: int, values: dict[str, float]) -> None:
        for logger in self.loggers:
            logger.log(number, values)

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()


class _Picture:
    """The PNG that is redrawn during the training."""

    def __init__(self, path: str | os.PathLike[str] | None, history: History):
        self._path = None if path is None else os.path.abspath(path)
        self._history = history
        self._next = 0.0

    def redraw(self) -> None:
        """Draw it, unless it was drawn recently."""
        if monotonic() >= self._next:
            self.draw()

    def draw(self) -> None:
        if self._path is not None:
            began = monotonic()
            self._history.save_png(self._path)
            now = monotonic()
            self._next = now + max(_PLOT_SECONDS, _PLOT_SHARE * (now - began))


def _as_batches(batches: Any, steps_per_epoch: int | None) -> Batches | IterableBatches:
    if isinstance(batches, Batches):
        if steps_per_epoch is not None:
            raise DataError("steps_per_epoch is for iterables: a Batches has a length")
        return batches
    if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable):
        raise DataError(
            f"batches is a {type(batches).__name__}",
            hint="nova.data.Batches(x, y, batch_size=32) makes batches of arrays; an iterable of "
            "tuples of arrays does too",
        )
    return IterableBatches(batches, steps_per_epoch)


def _check(step: Any, epochs: Any, every: Any, checkpoint: Any, on_nan: Any) -> None:
    if not (callable(step) and hasattr(step, "state_dict") and hasattr(step, "load_state_dict")):
        raise AttributeValueError(
            f"step is a {type(step).__name__}",
            hint="nova.train_step(model, loss, optimizer) makes one",
        )
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
        raise AttributeValueError(f"epochs is {epochs!r}", hint="it is a number of at least 1")
    if every is not None and (type(every) is not int or every < 1 or checkpoint is None):
        raise AttributeValueError(
            f"every is {every!r} and checkpoint {checkpoint!r}",
            hint="every is a number of steps, at least 1, and belongs to a checkpoint",
        )
    if on_nan not in ("stop", "continue"):
        raise AttributeValueError(f"on_nan is {on_nan!r}", hint="it is 'stop' or 'continue'")


def _description(batches: Batches | IterableBatches) -> dict[str, Any]:
    """The values that determine the order and the shape of the batches."""
    if isinstance(batches, IterableBatches):
        return batches.description()
    return {
        "rows": batches.rows,
        "arrays": [f"{a.dtype}{list(a.shape[1:])}" for a in batches.arrays],
        "batch_size": batches.batch_size,
        "shuffle": batches.shuffle,
        "seed": batches.seed,
        "drop_last": batches.drop_last,
    }


def _check_same_data(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    changed = [f"{k} was {then.get(k)}, is {v}" for k, v in now.items() if then.get(k) != v]
    if changed:
        raise CheckpointError("; ".join(changed))
