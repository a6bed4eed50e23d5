"""`Optimizer`: the base of all optimizers: parameters and their options, state, clipping.

An optimizer is configuration only. `init_state` returns fresh state arrays; `apply` maps
parameters, gradients and state to new ones as graph values. `nova.train_step` calls both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova.core.dtypes import DType, TensorType
from nova.core.location import user_location
from nova.core.records import record
from nova.core.user_facing import unknown_keyword
from nova.errors import (
    AttributeValueError,
    GraphError,
    SealedAttributeError,
    UnknownKeywordError,
)
from nova.graph.build import cast
from nova.graph.capture import Holder
from nova.graph.other_names import OPTIMIZER, no_attribute
from nova.graph.tensor import Tensor, as_array
from nova.optim.clipping import clip_grad_norm, clip_grad_value
from nova.optim.schedules import Rate, Schedule, as_schedule


@record
class Options:
    """Options that may differ per parameter."""

    lr: float | Schedule
    weight_decay: float = 0.0
    maximize: bool = False

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        not_negative(self.weight_decay, "weight_decay")

    def slots(self, param: TensorType) -> tuple[str, ...]:
        """The names of the state arrays of a parameter of this type."""
        return ()

    def initial(self, slot: str, param: TensorType) -> np.ndarray:
        """The first value of a state array."""
        return np.zeros(param.shape, param.dtype.numpy)


@record
class _Entry:
    """A parameter, the name of its state, and its options."""

    name: str
    param: Tensor
    options: Any


class Optimizer(Holder, ABC):
    """Base of the optimizers.

    `params` are parameters, (name, parameter) pairs such as those of `model.named_parameters()`, or
    groups: dicts with `params` and the options that differ for them. `clip_value` bounds every
    element of the gradients, then `clip_norm` bounds their global norm. With `ema`, the state has
    an exponential moving average of every parameter with this decay, `ema.<name>`, which starts at
    the parameter's value: torch.optim.swa_utils.AveragedModel with `get_ema_multi_avg_fn(ema)`.
    """

    options_class: ClassVar[type[Options]]

    def __init__(
        self,
        params: Iterable[Any],
        *,
        clip_norm: float | None = None,
        clip_norm_type: float = 2.0,
        clip_value: float | None = None,
        ema: float | None = None,
        **options: Any,
    ):
        option_names = [field.name for field in fields(self.options_class)]
        unknown = {name: value for name, value in options.items() if name not in option_names}
        if unknown:
            allowed = (*option_names, "clip_norm", "clip_norm_type", "clip_value", "ema")
            raise unknown_keyword(f"{type(self).__name__}:", unknown, allowed)
        self.options = self.options_class(**options)
        self.entries = _entries(params, self.options)
        for value, name in ((clip_norm, "clip_norm"), (clip_value, "clip_value")):
            if value is not None and not value > 0:
                raise AttributeValueError(
                    f"{name} is {value!r}", hint="it is a positive number, or None"
                )
        if ema is not None and not 0 <= ema <= 1:
            raise AttributeValueError(f"ema is {ema!r}", hint="it is a number in 0..1, or None")
        self.clip_norm = clip_norm
        self.clip_norm_type = clip_norm_type
        self.clip_value = clip_value
        self.ema = ema

    if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(repr(type(self).__name__), name, dir(self), OPTIMIZER)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {field.name for field in fields(self.options_class)}:
            raise SealedAttributeError(
                f"{type(self).__name__}.{name} cannot be assigned",
                where=str(user_location()),
                hint="options are fixed when the optimizer is created: pass a schedule as lr=, or "
                "make a new one",
            )
        super().__setattr__(name, value)

    @property
    def params(self) -> list[Tensor]:
        """The parameters, in the order of the arguments of `apply`."""
        return [entry.param for entry in self.entries]

    def init_state(self) -> dict[str, np.ndarray]:
        """Fresh state: `step`, and `<slot>.<name or index>` for every parameter."""
        state = {"step": np.array(0, np.int64)}
        for entry in self.entries:
            options, type_ = entry.options, entry.param.type
            for slot in options.slots(type_):
                state[f"{slot}.{entry.name}"] = options.initial(slot, type_)
            if self.ema is not None:
                state[f"ema.{entry.name}"] = np.array(as_array(entry.param.data))
        return state

    def apply(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        state: dict[str, Tensor],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """New parameters and new state; a parameter whose gradient is None does not change."""
        if not len(params) == len(grads) == len(self.entries):
            raise GraphError(
                f"{len(params)} params and {len(grads)} gradients for an optimizer of "
                f"{len(self.entries)} params"
            )
        step = state["step"]
        new_params: list[Tensor] = []
        new_state = {**state, "step": step + 1}
        shared_rates: dict[Any, Any] = {}
        for entry, param, grad in zip(self.entries, params, self._clipped(grads), strict=True):
            if grad is None:
                new_params.append(param)
                continue
            options = entry.options
            if options not in shared_rates:
                shared_rates[options] = self.rates(options, step)
            names = {slot: f"{slot}.{entry.name}" for slot in options.slots(param.type)}
            slots = {slot: state[name] for slot, name in names.items()}
            grad = -grad if options.maximize else grad
            new, changed = self.update(options, param, grad, slots, shared_rates[options])
            new_params.append(new)
            new_state.update((names[slot], value) for slot, value in changed.items())
        if self.ema is not None:
            for entry, new in zip(self.entries, new_params, strict=True):
                average = state[f"ema.{entry.name}"]
                new_state[f"ema.{entry.name}"] = average + (new - average) * (1.0 - self.ema)
        return new_params, new_state

    @abstractmethod
    def rates(self, options: Any, step: Tensor) -> Any:
        """Scalars of one update that all parameters with these options share."""

    @abstractmethod
    def update(
        self, options: Any, param: Tensor, grad: Tensor, slots: dict[str, Tensor], rates: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One parameter's new value and new state."""

    def _clipped(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        clippable = [g for g in grads if g is not None]
        if self.clip_value is not None:
            clippable = clip_grad_value(clippable, self.clip_value)
        if self.clip_norm is not None:
            clippable = clip_grad_norm(clippable, self.clip_norm, self.clip_norm_type)[0]
        clipped = iter(clippable)
        return [None if g is None else next(clipped) for g in grads]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.entries)} params, {self.options}>"


def as_type(rate: Rate, dtype: DType) -> Rate:
    """A learning rate in the dtype of the parameter; a Python number converts by itself."""
    return cast(rate, dtype) if isinstance(rate, Tensor) else rate


def check_betas(betas: Any) -> tuple[float, float]:
    """The two decay rates of running averages, checked."""
    rates = tuple(betas) if isinstance(betas, Iterable) else (betas,)
    if len(rates) != 2 or not all(isinstance(b, Real) and 0 <= float(b) < 1 for b in rates):
        raise AttributeValueError(
            f"betas are {betas!r}, not two numbers in 0..1", hint="betas=(0.9, 0.999), for example"
        )
    return rates[0], rates[1]


def not_negative(value: float, name: str) -> None:
    if not value >= 0:
        raise AttributeValueError(f"{name} is {value!r}", hint="it is a number of at least 0")


def _entries(params: Iterable[Any], options: Options) -> tuple[_Entry, ...]:
    entries: list[_Entry] = []
    for group in [params] if isinstance(params, dict) else _members(params):
        group_options = options
        if isinstance(group, dict):
            members = _members(group.get("params", ()))
            group_options = _group_options(
                options, {k: v for k, v in group.items() if k != "params"}
            )
        else:
            members = [group]
        entries += [
            _entry(member, len(entries) + i, group_options) for i, member in enumerate(members)
        ]
    _check_entries(entries)
    return tuple(entries)


def _members(params: Any) -> Iterable[Any]:
    """Parameters, groups of them or one tensor, as an iterable. Models are not parameters."""
    if isinstance(params, Tensor):
        return [params]
    if callable(params) or not isinstance(params, Iterable):
        raise GraphError(
            f"an optimizer of a {type(params).__name__}, not of parameters",
            hint="pass model.parameters()",
        )
    return params


def _entry(member: Any, index: int, options: Options) -> _Entry:
    name, param = member if isinstance(member, tuple) else (str(index), member)
    if not isinstance(param, Tensor) or param.data is None or not param.dtype.is_float:
        raise GraphError(
            f"{param!r} is not a parameter: an optimizer takes float tensors with data",
            hint="pass model.parameters()",
        )
    return _Entry(str(name), param, options)


def _check_entries(entries: Sequence[_Entry]) -> None:
    if not entries:
        raise GraphError("an optimizer of no parameters", hint="pass model.parameters()")
    for field, keys in (
        ("parameter", [id(e.param) for e in entries]),
        ("name", [e.name for e in entries]),
    ):
        twice = next((e for i, e in enumerate(entries) if keys[i] in keys[:i]), None)
        if twice is not None:
            raise GraphError(f"a {field} occurs twice in the optimizer: {twice.name!r}")


def _group_options(options: Options, changes: dict[str, Any]) -> Options:
    option_names = [f.name for f in fields(options)]
    for name in changes:
        if name not in option_names:
            raise UnknownKeywordError(
                f"a group has no option {name!r}", hint=f"its options: {', '.join(option_names)}"
            )
    return replace(options, **changes)
