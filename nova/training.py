"""`nova.train_step`: forward, backward and update of a model as one compiled program.

Comes in: a `Module`, a loss, an optimizer. Goes out: a `TrainStep`; called with a batch it runs the
program, which changes the parameters and the state arrays in place and returns the loss. The
counter of steps, the optimizer's state, the loss scaler, accumulated gradients and the seed of
random ops are all arrays of that state, so saving and loading them continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nova.compiled import Compiled
from nova.compiler import check_target, compile
from nova.dtypes import DType, TensorType, bf16, dtype, f16, f32
from nova.errors import AttributeValueError, GradientError, GraphError, NovaError, SignatureError
from nova.graph.build import cast
from nova.graph.gradients import gradients
from nova.graph.location import user_location
from nova.graph.order import topological
from nova.graph.tensor import Tensor, as_array
from nova.jit import array_type
from nova.nn.module import Module, replaced
from nova.nn.seeds import seeded
from nova.nn.state import LoadReport, copy_into
from nova.ops import F
from nova.optim.optimizer import Optimizer
from nova.optim.scaler import LossScaler, all_finite
from nova.records import record
from nova.resident import Resident
from nova.runtime.device_arrays import type_on_device
from nova.structure import flatten, unflatten

_PRECISIONS: dict[str | None, DType | None] = {None: None, "bf16": bf16, "f16": f16}
# The seeds of two runs are far apart, whatever number of random ops a run has (2**64 / golden
# ratio, as a signed number).
_SEED_STEP = 0x9E3779B97F4A7C15 - 2**64

Loss = Callable[..., Tensor]


def train_step(
    model: Module,
    loss: Loss,
    optimizer: Optimizer,
    *,
    precision: str | None = None,
    accumulate: int = 1,
    seed: int = 0,
    target: str | None = None,
    scaler: LossScaler | None = None,
    tune: float | None = None,
    run_mode: str = "native",
) -> TrainStep:
    """A compiled training step of `model`: `step(*batch)` gives the loss.

    `loss(model, *batch)` returns a scalar tensor. With `precision` "bf16" or "f16" the model
    computes in that type: its parameters and float inputs are cast, what it returns is f32 again,
    and the parameters that are trained stay as they are. "f16" scales the loss with `scaler`.
    With `accumulate=n` gradients are averaged over n calls and the n-th one updates. `seed` is
    that of dropout and other random ops. `tune` seconds of each compile may go into trying
    schedules on this machine (docs/tuning.md). On a device (`target="cuda"`) parameters and state
    stay there between calls; `run_mode="sim"` takes the simulated one.
    """
    try:
        return TrainStep(
            model,
            loss,
            optimizer,
            precision=precision,
            accumulate=accumulate,
            seed=seed,
            target=target,
            scaler=scaler,
            tune=tune,
            run_mode=run_mode,
        )
    except NovaError as error:
        raise error.located(str(user_location())) from None


@record
class _Entry:
    """The program of one batch signature, and the params and their arrays it gets after the batch.

    The arrays are those of the params, or on the device that the program runs on.
    """

    compiled: Compiled
    program: Any
    params: tuple[Tensor, ...]
    arrays: tuple[Any, ...]


class TrainStep:
    """One program a batch signature; parameters and state are updated in place."""

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: Optimizer,
        *,
        precision: str | None,
        accumulate: int,
        seed: int,
        target: str | None,
        scaler: LossScaler | None,
        tune: float | None,
        run_mode: str,
    ):
        if precision not in _PRECISIONS:
            raise AttributeValueError(
                f"precision {precision!r}", hint="it is None, 'bf16' or 'f16'"
            )
        if type(accumulate) is not int or accumulate < 1:
            raise AttributeValueError(
                f"accumulate is {accumulate!r}", hint="it is a number of calls, at least 1"
            )
        if target is not None:
            check_target(target)
        self.model = model
        self.optimizer = optimizer
        self.accumulate = accumulate
        self._loss = loss
        self._half = _PRECISIONS[precision]
        self._scaler = LossScaler() if scaler is None and precision == "f16" else scaler
        self._target = target
        self._tune = tune
        self._run_mode = run_mode
        self._params = _all_params(model, optimizer)
        self._modules = list(model.modules())
        self._leaves = {
            name: Tensor(TensorType(a.shape, dtype(a.dtype)), data=a, name=name)
            for name, a in self._fresh_state(seed).items()
        }
        self._entries: dict[Any, _Entry] = {}
        self._last: _Entry | None = None
        self._resident: Resident | None = None
        self._modes: list[bool] = []

    # --- running --------------------------------------------------------------------------------

    def __call__(self, *batch: Any) -> np.ndarray:
        """Run the step on arrays; the loss before the update, as a 0-d array.

        On a device, parameters and state stay there from call to call. The loss comes to the host
        unless the batch is on the device as well.
        """
        entry = self._last
        if entry is not None and self._modes == self._current_modes():
            try:
                return self._run(entry, batch)
            except SignatureError:
                pass  # another signature, or a mistake that is reported below
        arrays = [a if type_on_device(a) is not None else as_array(a) for a in batch]
        return self._run(self._entry(batch), arrays)

    def _run(self, entry: _Entry, batch: Sequence[Any]) -> Any:
        if self._resident is not None:
            self._resident.changed = True
        return entry.program(*batch, *entry.arrays)

    def sync(self) -> None:
        """Copy parameters and state from the device to their arrays on the host.

        What reads them through the model or the step does this by itself.
        """
        if self._resident is not None:
            self._resident.pull()

    def lower(self, *batch: Any) -> Compiled:
        """The program for these arrays, compiled but not run."""
        return self._entry(batch).compiled

    @property
    def compiled(self) -> Compiled:
        """The program used last."""
        if self._last is None:
            raise GraphError(
                "the step has no program yet",
                where=str(user_location()),
                hint="call it, or compile it with lower(*batch)",
            )
        return self._last.compiled

    @property
    def plan(self) -> Any:
        """The plan of the program used last."""
        return self.compiled.plan

    def save(
        self, path: str | Path, weights: str | None = None, *, key: str | Path | None = None
    ) -> None:
        """Write the program used last as one file; see `Compiled.save`.

        With weights, the file has the parameters and the state as they are now: loaded again,
        `forward(*batch)` goes on training where this step stands, without Python's model.
        """
        self.sync()
        self.compiled.save(path, weights, key=key)

    def _current_modes(self) -> list[bool]:
        """What a program was traced under: train or eval, and what is frozen."""
        return [m.training for m in self._modules] + [p.requires_grad for p in self._params]

    def _entry(self, batch: Sequence[Any]) -> _Entry:
        try:
            types = tuple(map(_type_of, batch))
            modes = self._current_modes()
            key = (types, tuple(modes))
            if key not in self._entries:
                self._entries[key] = self._compile(types)
        except NovaError as error:
            raise error.located(str(user_location())) from None
        self._last, self._modes = self._entries[key], modes
        return self._last

    # --- state ----------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The arrays, beside the parameters, that a run changes, by name."""
        self.sync()
        return {name: leaf.data for name, leaf in self._leaves.items()}  # type: ignore[misc]

    def state_dict(self) -> dict[str, np.ndarray]:
        """All arrays that the step changes: `model.<name>` for parameters, and `state`."""
        model = {f"model.{n}": a for n, a in self.model.state_dict().items()}
        return {**model, **self.state}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Copy values into the arrays, which stay where they are; nothing is copied on an error."""
        named = [(f"model.{n}", p) for n, p in self.model._all_parameters()]
        named += list(self._leaves.items())  # type: ignore[arg-type]
        self.sync()
        try:
            report = copy_into(named, state, strict)
        except NovaError as error:
            raise error.located(str(user_location())) from None
        if self._resident is not None:
            self._resident.push()
            for key, entry in self._entries.items():
                arrays = self._resident.place(entry.params)
                self._entries[key] = replace(entry, arrays=arrays)
            self._last = None
        return report

    def _fresh_state(self, seed: int) -> dict[str, np.ndarray]:
        drawn = np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)
        state = {"seed": drawn.reshape(()).copy()}
        state.update((f"optimizer.{n}", a) for n, a in self.optimizer.init_state().items())
        if self._scaler is not None:
            state.update((f"scaler.{n}", a) for n, a in self._scaler.init_state().items())
        if self.accumulate > 1:
            state["accumulated"] = np.array(0, np.int64)
            for entry in self.optimizer.entries:
                type_ = entry.param.type
                state[f"gradient.{entry.name}"] = np.zeros(type_.shape, type_.dtype.numpy)
        return state

    def _group(self, prefix: str) -> dict[str, Tensor]:
        start = len(prefix) + 1
        return {n[start:]: t for n, t in self._leaves.items() if n.startswith(prefix + ".")}

    # --- the program ----------------------------------------------------------------------------

    def _compile(self, types: Sequence[TensorType]) -> _Entry:
        batch = [Tensor(t, name=f"x{i}") for i, t in enumerate(types)]
        loss = self._trace(batch)
        updates = self._updates(loss)
        params = (*self._params, *self._leaves.values())
        with _named_as_state(self.model):
            compiled = compile(
                loss,
                inputs=batch,
                params=params,
                updates=updates,
                target=self._target,
                tune=self._tune,
                run_mode=self._run_mode,
            )
        device = compiled.native_device
        if device is not None and self._resident is None:
            self._resident = Resident(device)
        on_device = self._resident
        arrays = tuple(p.data for p in params) if on_device is None else on_device.place(params)
        return _Entry(compiled, compiled._program, params, arrays)

    def _trace(self, batch: Sequence[Tensor]) -> Tensor:
        with ExitStack() as stack:
            stack.enter_context(seeded(self._leaves["seed"]))
            if self._half is not None:
                stack.enter_context(_computing_in(self.model, self._params, self._half))
            loss = self._loss(self.model, *batch)
        if not isinstance(loss, Tensor) or loss.size != 1 or not loss.dtype.is_float:
            what = loss.type if isinstance(loss, Tensor) else type(loss).__name__
            raise GradientError(
                f"the loss is {what}, not one float number", hint="reduce it, e.g. with .mean()"
            )
        loss = F.reshape(loss, ()) if loss.shape else loss
        return loss if self._half is None else cast(loss, f32)

    def _updates(self, loss: Tensor) -> dict[Tensor, Tensor]:
        """The new value of every parameter and state array that changes."""
        entries = self.optimizer.entries
        reached = _reached(loss)
        trained = [e for e in entries if e.param.requires_grad and id(e.param) in reached]
        if not trained:
            raise GradientError(
                "the loss depends on no parameter that the optimizer may change",
                hint="are all of them frozen, or is it the optimizer of another model?",
            )
        scaler, scaling = self._scaler, self._group("scaler")
        start = loss if scaler is None else scaler.scaled(loss, scaling)
        grads = gradients(start, [e.param for e in trained])
        if scaler is not None:
            grads = scaler.unscaled(grads, scaling)
        updates = {self._leaves["seed"]: self._leaves["seed"] + _SEED_STEP}
        commit: Tensor | None = None
        if self.accumulate > 1:
            commit, grads = self._accumulated([e.name for e in trained], grads, updates)
        if scaler is not None:
            finite = all_finite(grads)
            for name, value in scaler.update(finite, scaling).items():
                updates[scaling[name]] = _select(commit, value, scaling[name])
            commit = finite if commit is None else F.logical_and(commit, finite)
        by_name = dict(zip([e.name for e in trained], grads, strict=True))
        state = self._group("optimizer")
        params = [e.param for e in entries]
        given = [by_name.get(e.name) for e in entries]
        new_params, new_state = self.optimizer.apply(params, given, state)
        changes = [*zip(params, new_params, strict=True)]
        changes += [(state[name], value) for name, value in new_state.items()]
        updates.update((old, _select(commit, new, old)) for old, new in changes if new is not old)
        return updates

    def _accumulated(
        self, names: Sequence[str], grads: Sequence[Tensor], updates: dict[Tensor, Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Whether this call updates, and the gradients averaged so far; they start anew then."""
        count = self._leaves["accumulated"]
        last = count + 1 >= self.accumulate
        updates[count] = F.where(last, 0, count + 1)
        totals = []
        for name, grad in zip(names, grads, strict=True):
            leaf = self._leaves[f"gradient.{name}"]
            total = leaf + grad * (1.0 / self.accumulate)
            updates[leaf] = F.where(last, 0.0, total)
            totals.append(total)
        return last, totals


def _type_of(array: Any) -> TensorType:
    """The type of one array of a batch, on the host or on a device."""
    return array_type(array if type_on_device(array) is not None else as_array(array))


def _select(condition: Tensor | None, new: Tensor, old: Tensor) -> Tensor:
    return new if condition is None else F.where(condition, new, old)


def _all_params(model: Module, optimizer: Optimizer) -> list[Tensor]:
    """The model's parameters, and what else the optimizer has."""
    found: dict[int, Tensor] = {}
    for param in model.parameters():
        found[id(param)] = param
    found.update((id(e.param), e.param) for e in optimizer.entries if id(e.param) not in found)
    return list(found.values())


@contextmanager
def _named_as_state(model: Module) -> Iterator[None]:
    """Inside, the model's parameters are called `model.<name>`, as in the step's `state_dict`."""
    for name, param in model.named_parameters():
        param.name_after(f"model.{name}")
    try:
        yield
    finally:
        model.parameters()  # which names them


def _reached(loss: Tensor) -> set[int]:
    """The ids of the tensors that a gradient of `loss` flows to."""
    reached = {id(loss)}
    for node in reversed(topological([loss])):
        if id(node) in reached and node.op is not None and node.requires_grad:
            reached.update(id(i) for i in node.inputs if i.dtype.is_float)
    return reached


@contextmanager
def _computing_in(model: Module, params: Sequence[Tensor], half: DType) -> Iterator[None]:
    """Inside, `model` computes in `half`: casts stand at its parameters, inputs and outputs."""

    def at_edge(value: Any, wanted: DType) -> Any:
        leaves, structure = flatten(value)
        is_float = [isinstance(v, Tensor) and v.dtype.is_float for v in leaves]
        return unflatten(
            structure,
            [cast(v, wanted) if f else v for v, f in zip(leaves, is_float, strict=True)],
        )

    forward = model.forward

    def edged(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = at_edge(args, half), at_edge(kwargs, half)
        return at_edge(forward(*args, **kwargs), f32)

    casts = {p: cast(p, half) for p in params if p.dtype.is_float}
    own = vars(model)
    before = own.get("forward")
    with replaced(model, casts):  # type: ignore[arg-type]
        own["forward"] = edged
        try:
            yield
        finally:
            del own["forward"]
            if before is not None:
                own["forward"] = before
