"""The `options=` of `torch.compile(..., backend="nova")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from nova import knobs
from nova.api.compile import check_target
from nova.core.targets import parse_target
from nova.errors import AttributeValueError, OptionTypeError, TargetError, UnknownKeywordError


@dataclass(frozen=True)
class Options:
    """How graphs of torch are compiled and run.

    target     the CPU to compile for, as `nova.compile` takes it; graphs of tensors on a GPU are
               compiled for that GPU.
    device     the device that runs graphs of tensors on the CPU: None for the CPU, "sim" for the
               simulator of a GPU.
    threads    threads of a run; the knob `threads` by default.
    tune       seconds for trying schedules of each graph (docs/tuning.md).
    fast_math  whether float arithmetic may be reassociated (docs/fast-math.md).
    fallback   whether ops that Nova does not compute run in torch; False makes them an error.
    """

    target: str | None = None
    device: str | None = None
    threads: int | None = None
    tune: float | None = None
    fast_math: bool | None = None
    fallback: bool = True


def read_options(options: Mapping[str, Any] | None, mode: str | None) -> Options:
    """The options of one `torch.compile`; an error names the option and what it takes."""
    if mode not in (None, "default"):
        raise AttributeValueError(
            f"backend 'nova' has no mode {mode!r}",
            hint="leave mode= out; options={'tune': SECONDS} tries schedules",
        )
    names = [f.name for f in fields(Options)]
    for name in options or {}:
        if name not in names:
            close = get_close_matches(str(name), names, 1)
            raise UnknownKeywordError(
                f"backend 'nova' has no option {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else f"options: {', '.join(names)}",
            )
    result = Options(**(options or {}))
    _check(result)
    return result


def _check(options: Options) -> None:
    for name in ("fast_math", "fallback"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, bool):
            raise OptionTypeError(f"option {name!r} is {value!r}", hint="it is True or False")
    if options.threads is not None:
        knobs.KNOBS["threads"].check(options.threads, "threads")
    if options.tune is not None:
        knobs.KNOBS["tune"].check(options.tune, "tune")
    if options.target is not None:
        check_target(options.target)
        if parse_target(options.target).is_device:
            raise TargetError(
                f"target {options.target!r}: backend 'nova' compiles for the device of the tensors",
                hint="leave target= out, and move the model and its inputs to the GPU",
            )
    if options.device not in (None, "sim"):
        raise OptionTypeError(
            f"option 'device' is {options.device!r}",
            hint="it is 'sim' or None; graphs of tensors on a GPU run there",
        )
