"""`nova.train_step`: forward, backward and update of a model as one compiled program.

In: a `Module`, a loss, an optimizer. Out: a `TrainStep`; a call with a batch runs the
program, which updates the parameters and the state arrays in place and returns the loss. The
step counter, the optimizer's state, the loss scaler, accumulated gradients and the seed of
random ops are all arrays of that state, so training resumes exactly from a saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from warnings import warn_explicit

import numpy as np

from nova import knobs
from nova.api.compile import carrying, check_target, compile
from nova.api.compiled import Compiled
from nova.api.dynamic import DynamicAxes, read_dynamic
from nova.api.jit import jit
from nova.api.jit_arguments import array_type, result_tensor
from nova.core.dtypes import DType, TensorType, bf16, f16, f32, f64
from nova.core.frozen_attributes import Sealed
from nova.core.gc_pause import paused_gc
from nova.core.location import user_location
from nova.core.pytree import TreeDef, flatten, unflatten
from nova.core.records import record
from nova.core.user_facing import unknown_keyword, user_facing, user_facing_class
from nova.errors import (
    AttributeValueError,
    GradientError,
    GraphError,
    NovaError,
    OptionTypeError,
    PrecisionWarning,
    SealedAttributeError,
    SignatureError,
)
from nova.graph.build import cast
from nova.graph.capture import Capture, capturing, generation
from nova.graph.lifting import BoundProgram, Captured, captured_leaves
from nova.graph.state import Roots, Snapshot, find_roots
from nova.graph.tensor import Tensor, as_array, no_grad
from nova.nn.module import Module
from nova.nn.seeds import seeded
from nova.nn.state import LoadReport, copy_into
from nova.nn.traced import all_params, computing_in, named_as_state
from nova.ops import F
from nova.optim.optimizer import Optimizer
from nova.optim.scaler import LossScaler
from nova.optim.schedules import AdjustableLR
from nova.optim.several import as_optimizer
from nova.runtime.device_arrays import type_on_device
from nova.train.device_params import DeviceParams
from nova.train.run_many import (
    RepeatedPrograms,
    each_batch,
    each_part,
    is_iterable,
    part_types,
    run_ring,
    stack_results,
)
from nova.train.step_state import StepState

_PRECISIONS: dict[str | None, DType | None] = {None: None, "bf16": bf16, "f16": f16}
Loss = Callable[..., Any]


@user_facing
def train_step(
    model: Module,
    loss: Loss,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    has_aux: bool = False,
    grad_norm: bool = False,
    precision: str | None = None,
    accumulate: int = 1,
    seed: int = 0,
    target: str | None = None,
    scaler: LossScaler | None = None,
    tune: float | None = None,
    run_mode: str = "native",
    dynamic: Any = False,
    launch: str | None = None,
) -> TrainStep:
    """A compiled training step of `model`: `step(*batch)` gives the loss.

    `loss(model, *batch)` returns a scalar tensor; with `has_aux`, a scalar tensor and a pytree of
    other tensors (metrics), and a call gives `(loss, aux)`. `optimizer` may be a list of optimizers
    of different parameters. With `grad_norm` the global norm of the gradients, before clipping, is
    `step.state["grad_norm"]`. With `precision` "bf16" or "f16" the model
    computes in that dtype: its parameters and float inputs are cast, its results are cast to f32,
    and the trained parameters keep their dtype. "f16" scales the loss with `scaler`.
    With `accumulate=n` gradients are averaged over n calls and the n-th one updates. `seed` is
    that of dropout and other random ops. `tune` is the time limit in seconds per compile for trying
    schedules on this machine (docs/tuning.md). On a device (`target="cuda"`) parameters and state
    stay there between calls; `run_mode="sim"` uses the simulator. `dynamic` makes one program for
    batches of many sizes, as in `nova.jit`: the last batch may be smaller (docs/dynamic-shapes.md).
    `launch` says how a device runs the kernels of a step, as in `nova.compile`.
    """
    return TrainStep(
        model,
        loss,
        optimizer,
        has_aux=has_aux,
        grad_norm=grad_norm,
        precision=precision,
        accumulate=accumulate,
        seed=seed,
        target=target,
        scaler=scaler,
        tune=tune,
        run_mode=run_mode,
        dynamic=dynamic,
        launch=launch,
    )


@record
class _Entry:
    """The program of one batch signature under one state of the model.

    `aux` is the structure of the auxiliary results. `placed` are the tensors whose arrays stay on
    the program's device; the arrays of `captured` are read at each call. The arguments are the
    batch, then these, in this order.
    """

    compiled: Compiled
    aux: TreeDef | None
    state: Snapshot
    placed: tuple[Tensor, ...]
    captured: Captured


@user_facing_class
class TrainStep(Sealed):
    """One program per batch signature; parameters and state are updated in place."""

    def __init__(
        self,
        model: Module,
        loss: Loss,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        has_aux: bool,
        grad_norm: bool,
        precision: str | None,
        accumulate: int,
        seed: int,
        target: str | None,
        scaler: LossScaler | None,
        tune: float | None,
        run_mode: str,
        dynamic: Any,
        launch: str | None,
    ):
        for name, value, is_right, requirement in (
            ("model", model, isinstance(model, Module), "a Module"),
            ("loss", loss, callable(loss), "a function"),
        ):
            if not is_right:
                raise OptionTypeError(
                    f"train_step: the {name} is of type {type(value).__name__}, not {requirement}",
                    hint="the order is train_step(model, loss, optimizer)",
                )
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
        self.optimizer: Any = as_optimizer(optimizer)
        self._has_aux = has_aux
        self.accumulate = accumulate
        self._loss = loss
        self._half = _PRECISIONS[precision]
        scaler = LossScaler() if scaler is None and precision == "f16" else scaler
        self._target = target
        self._tune = tune
        self._run_mode = run_mode
        self._launch = launch
        self._repeated = RepeatedPrograms()
        self._params = all_params(model, self.optimizer.params)
        self._roots = find_roots(loss).extended((model, self.optimizer), ())
        self._state = StepState(self.optimizer, scaler, grad_norm, accumulate, seed)
        self._axes = DynamicAxes(read_dynamic(dynamic), partial(loss, model))
        self._entries: dict[Any, _Entry] = {}
        self._last: _Entry | None = None
        self._program: BoundProgram | None = None
        self._aux: TreeDef | None = None
        self._evaluation = jit(partial(_evaluated, loss, model), target=target, run_mode=run_mode)
        self._device_params: DeviceParams | None = None
        floats = [p.dtype for p in self._params if p.dtype.is_float]
        self._narrows = bool(floats) and f64 not in floats
        self._warned = False
        self._seal()

    def _hint_for(self, name: str) -> str:
        if name in ("lr", "learning_rate", "weight_decay", "momentum"):
            return (
                "the optimizer has it: pass a schedule or optim.AdjustableLR as lr=, or make a new "
                "optimizer and step (load_state_dict(old.state_dict()) goes on where the old one "
                "stands)"
            )
        return super()._hint_for(name)

    @property
    def lr(self) -> float:
        """The rate of an optimizer with `lr=optim.AdjustableLR(...)`; assign to it to change it."""
        return self._adjustable_lr().lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._adjustable_lr().lr = value

    def _adjustable_lr(self) -> AdjustableLR:
        rate = self.optimizer.options.lr
        if not isinstance(rate, AdjustableLR):
            raise SealedAttributeError(
                f"TrainStep.lr cannot be assigned: the optimizer has lr={rate!r}",
                where=str(user_location()),
                hint=self._hint_for("lr"),
            )
        return rate

    # --- running --------------------------------------------------------------------------------

    def __call__(self, *batch: Any, **unknown: Any) -> Any:
        """Run the step on arrays; returns the loss before the update, as a 0-d array.

        With `has_aux` it returns the loss and the auxiliary results.

        On a device, parameters and state stay there between calls. The loss is copied to the host
        unless the batch is on the device as well.
        """
        if unknown:
            raise unknown_keyword("a step", unknown, (), by_position=tuple(unknown))
        program, on_device = self._program, self._device_params
        if program is not None and not (on_device is not None and on_device.was_read):
            try:
                if on_device is not None:
                    on_device.changed = True
                result = program(*batch)
            except SignatureError:
                pass  # another signature, or an error that is reported below
            else:
                return result if self._aux is None else self._with_aux(result)
        arrays = [self._narrowed(a) for a in batch]
        self._entry([_type_of(a) for a in arrays])
        return self._run(arrays)

    def _run_bound(self, arrays: Sequence[Any]) -> Any:
        assert self._program is not None
        if self._device_params is not None:
            self._device_params.changed = True
        return self._program(*arrays)

    def _run(self, arrays: Sequence[Any]) -> Any:
        result = self._run_bound(arrays)
        return result if self._aux is None else self._with_aux(result)

    def run_many(self, *batches: Any) -> Any:
        """Run a step on each part of arrays along their first axis; returns the losses.

        The only argument may also be an iterable of batches, such as a generator or a data loader:
        a batch is an array or a tuple of arrays, all of the same shapes. With `launch="persistent"`
        it is one launch, and batches are taken while it runs (docs/persistent-kernels.md).
        """
        if is_iterable(batches):
            return self._run_iterable(batches[0])
        arrays = [self._narrowed(a) for a in batches]
        count, types = part_types([_type_of(a) for a in arrays])
        entry = self._entry(types)
        program = self._repeated.find(entry.compiled, count)
        if program is None:
            return stack_results([self(*parts) for parts in each_part(arrays, count)])
        self._bind(entry, generation[0], program)
        try:
            return self._run(arrays)
        finally:
            self._program = None  # the next call binds the program of one step

    def _run_iterable(self, source: Any) -> Any:
        """Run a step on each batch; on a ring if the program can have one."""
        others = each_batch(source, self._narrowed)
        first = next(others, None)
        if first is None:
            raise GraphError(
                "run_many got an iterable without batches",
                where=str(user_location()),
                hint="an iterator can be used once: pass a list, or make it again",
            )
        entry = self._entry([_type_of(a) for a in first])
        ring = self._repeated.find_ring(entry.compiled)
        if ring is None:
            return stack_results([self(*batch) for batch in chain([first], others)])
        self._bind(entry, generation[0], ring.start)
        try:
            self._run_bound(ring.arrays())
            results = run_ring(ring, first, others)
        finally:
            self._program = None
        stacked = tuple(np.stack(column) for column in zip(*results, strict=True))
        return stacked[0] if self._aux is None else self._with_aux(stacked)

    def _with_aux(self, results: Any) -> tuple[Any, Any]:
        """The loss, and the auxiliary results as the loss function returns them."""
        assert self._aux is not None
        loss, *leaves = results if isinstance(results, tuple) else (results,)
        return loss, unflatten(self._aux, leaves)

    def evaluate(self, *batch: Any) -> Any:
        """The loss (and auxiliary results) of a batch in eval mode; nothing is updated."""
        arrays = [self._narrowed(a) for a in batch]
        self.sync()
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            return self._evaluation(*arrays)
        finally:
            for module, mode in modes.items():
                module.training = mode

    def _narrowed(self, array: Any) -> Any:
        """One array of a batch; f64 data as f32 if no parameter of the model is f64."""
        if type_on_device(array) is not None:
            return array
        array = as_array(array)
        if not self._narrows or array.dtype != np.float64:
            return array
        if not self._warned:
            self._warned = True
            location = user_location()
            warn_explicit(
                "a training step of a model without f64 parameters got f64 data, which is "
                "cast to f32 here and in later calls: pass .astype('float32') to do it once",
                PrecisionWarning,
                location.file,
                location.line,
            )
        return array.astype(np.float32)

    def sync(self) -> None:
        """Copy parameters and state from the device to their arrays on the host.

        Reading them through the model or the step does this automatically.
        """
        if self._device_params is not None:
            self._device_params.pull()

    def lower(self, *batch: Any) -> Compiled:
        """The program for these arrays, compiled but not run."""
        return self._entry([_type_of(self._narrowed(a)) for a in batch]).compiled

    @property
    def compiled(self) -> Compiled:
        """The most recently used program."""
        if self._last is None:
            raise GraphError(
                "the step has no program yet",
                where=str(user_location()),
                hint="call it, or compile it with lower(*batch)",
            )
        return self._last.compiled

    @property
    def plan(self) -> Any:
        """The plan of the most recently used program."""
        return self.compiled.plan

    def save(
        self, path: str | Path, weights: str | None = None, *, key: str | Path | None = None
    ) -> None:
        """Write the most recently used program as one file; see `Compiled.save`.

        With weights, the file has the current parameters and state: after loading it,
        `forward(*batch)` continues the training, without Python's model.
        """
        self.sync()
        self.compiled.save(path, weights, key=key)

    def _entry(self, types: Sequence[TensorType]) -> _Entry:
        try:
            version = generation[0]
            leaves = tuple((type_, False) for type_ in types)
            names = [f"x{i}" for i in range(len(types))]
            entry = self._axes.find(None, names, leaves, self._find)
        except NovaError as error:
            raise error.located(str(user_location())) from None
        self._last = entry
        self._aux = entry.aux
        self._bind(entry, version)
        return entry

    def _find(self, leaves: tuple[tuple[TensorType, bool], ...]) -> _Entry:
        """The program for a batch of these types and the current state of the model."""
        types = tuple(type_ for type_, _ in leaves)
        state = self._roots.snapshot()
        entry = self._entries.get((types, state.values))
        if entry is None or not entry.state.is_same(state):
            self._check_params()
            entry = self._compile(types)
            self._keep((types, entry.state.values), entry)
        return entry

    def _keep(self, key: Any, entry: _Entry) -> None:
        self._entries[key] = entry
        while len(self._entries) > knobs.get("jit_programs"):
            del self._entries[next(iter(self._entries))]

    def _bind(self, entry: _Entry, version: int, program: Any = None) -> None:
        """The fast path of later calls."""
        arrays: tuple[Any, ...] = ()
        if self._device_params is not None:
            before = generation[0]
            arrays = self._device_params.upload(entry.placed)
            version += generation[0] - before  # parameters that are on the device from now on
        self._program = BoundProgram(
            program or entry.compiled._program,
            entry.captured,
            self._roots,
            entry.state,
            version,
            None,
            arrays,
        )

    def _check_params(self) -> None:
        """The optimizer has state only for the parameters at the creation of the step."""
        param_ids = {id(p) for p in self._params}
        for name, param in self.model.named_parameters():
            if id(param) not in param_ids:
                raise GraphError(
                    f"the model got the parameter {name!r} after the step was created",
                    hint="make a new optimizer and a new step for the changed model",
                )

    # --- state ----------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, np.ndarray]:
        """The arrays, other than the parameters, that a run changes, by name.

        Those of a step on a device are read-only: `load_state_dict` sets them.
        """
        state = self._state_arrays()
        if self._device_params is None:
            return state
        for name, array in state.items():
            state[name] = array.view()
            state[name].flags.writeable = False
        return state

    def _state_arrays(self) -> dict[str, np.ndarray]:
        self.sync()
        return {name: leaf.data for name, leaf in self._state.leaves.items()}  # type: ignore[misc]

    def state_dict(self) -> dict[str, np.ndarray]:
        """All arrays that the step changes: `model.<name>` for parameters, and `state`."""
        model = {f"model.{n}": a for n, a in self.model.state_dict().items()}
        return {**model, **self._state_arrays()}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """Copy values into the arrays in place; nothing is copied on an error."""
        named = [(f"model.{n}", p) for n, p in self.model._all_parameters()]
        named += list(self._state.leaves.items())  # type: ignore[arg-type]
        self.sync()
        report = copy_into(named, state, strict)
        if self._device_params is not None:
            self._device_params.push()
            self._program = None
        return report

    # --- the program ----------------------------------------------------------------------------

    def _compile(self, types: Sequence[TensorType]) -> _Entry:
        batch = [Tensor(t, name=f"x{i}") for i, t in enumerate(types)]
        before = self._roots.each()
        traced, structure, capture = self._trace(batch)
        roots = self._roots.without_changed(before)
        return self._compile_traced(batch, roots, traced, structure, capture)

    @paused_gc()
    def _compile_traced(
        self,
        batch: list[Tensor],
        roots: Roots,
        traced: tuple[Tensor, list[Tensor]],
        structure: TreeDef | None,
        capture: Capture,
    ) -> _Entry:
        """The program of a loss: its gradients and the updates are thousands of nodes that stay."""
        loss, aux = traced
        self._roots = roots.extended(capture.holders.values(), capture.read.values())
        state = self._roots.snapshot()
        updates = {**self._state.updates(loss), **self._buffer_updates(capture)}
        state_tensors = (*self._params, *self._state.leaves.values())
        others = captured_leaves([loss, *aux, *updates.values()], [*batch, *state_tensors])
        base = Captured.sorted(state_tensors)
        captured = Captured(base.stored, (*base.leaves, *others), (), ())
        params = captured.tensors
        with named_as_state(self.model):
            compiled = compile(
                [loss, *aux] if aux else loss,
                inputs=batch,
                params=params,
                updates=updates,
                target=self._target,
                tune=self._tune,
                run_mode=self._run_mode,
                launch=self._launch,
            )
        device = compiled.native_device
        if device is None:
            return _Entry(compiled, structure, state, (), captured)
        if self._device_params is None:
            self._device_params = DeviceParams(device)
        # The others are arguments from the host: their owners may change them.
        count = len(state_tensors)
        return _Entry(
            carrying(compiled, [p.data for p in params], self._device_params.pull),
            structure,
            state,
            params[:count],
            Captured((), params[count:], (), ()),
        )

    def _buffer_updates(self, capture: Capture) -> dict[Tensor, Tensor]:
        """The new values of the buffers that the model assigns: every call sets them."""
        own = {id(p) for p in self._params}
        for buffer in capture.updates:
            if id(buffer) not in own:
                raise GraphError(
                    f"the loss assigns {buffer!r}, which is not a buffer of the model",
                    hint="make it an attribute of a module of the model",
                )
        return capture.updates

    def _trace(
        self, batch: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, list[Tensor]], TreeDef | None, Capture]:
        """The loss with the auxiliary results, the structure of these, and what was captured."""
        with ExitStack() as stack:
            stack.enter_context(seeded(self._state.leaves["seed"]))
            if self._half is not None:
                stack.enter_context(computing_in(self.model, self._params, self._half))
            capture = stack.enter_context(capturing(lifts_seeds=False))
            loss = self._loss(self.model, *batch)
        aux, structure = [], None
        if self._has_aux:
            if not isinstance(loss, tuple) or len(loss) != 2:
                raise GradientError(
                    f"with has_aux the loss returned a {type(loss).__name__}",
                    hint="return a pair: the loss, and a pytree of other tensors",
                )
            loss, others = loss
            leaves, structure = flatten(others)
            aux = [result_tensor(leaf, i, self._loss) for i, leaf in enumerate(leaves)]
        if not isinstance(loss, Tensor) or loss.size != 1 or not loss.dtype.is_float:
            description = loss.type if isinstance(loss, Tensor) else type(loss).__name__
            raise GradientError(
                f"the loss is {description}, not one float number",
                hint="reduce it, e.g. with .mean()",
            )
        loss = F.reshape(loss, ()) if loss.shape else loss
        loss = loss if self._half is None else cast(loss, f32)
        return (loss, aux), structure, capture


def _evaluated(loss: Loss, model: Module, *batch: Any) -> Any:
    """The loss function with the model bound: what `evaluate` compiles."""
    with no_grad():
        return loss(model, *batch)


def _type_of(array: Any) -> TensorType:
    """The type of one array of a batch, on the host or on a device."""
    return array_type(array if type_on_device(array) is not None else as_array(array))
