"""Schedule overrides by a person or the tuner: the attribute `nova.schedule`.

Input: the attribute of a kernel, such as `nova.schedule = {mr = 6, tile = array<i64: 64, 256>}`, or
its text, `mr=6:tile=64x256`. Output: `ScheduleOverrides`, which the schedules consult before their
own decisions. The user of an override checks that it is legal there, and raises ScheduleError.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nova.core.records import record
from nova.errors import ScheduleError
from nova.ir.attributes import SCHEDULE
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of


@record
class ScheduleOverrides:
    """The overrides of one kernel; None leaves a decision to the schedule.

    mr, nv   rows and vectors per row of C in the register tile of a GEMM.
    kc, mc   the depth of its packed panels, and the rows of A that are packed at a time.
    tile     the tile along each loop of the grid, as `nova.tile` of the stage `loops` shows it.
    task_ns  nanoseconds of estimated work of one task.
    tiles    tiles that a GEMM is cut into, for as many cores; blocks of tiles stay as they are.
    """

    mr: int | None = None
    nv: int | None = None
    kc: int | None = None
    mc: int | None = None
    tile: tuple[int, ...] | None = None
    task_ns: int | None = None
    tiles: int | None = None

    @property
    def explicit(self) -> dict[str, Any]:
        """The overrides that are set, by name."""
        values = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def concerns_gemm(self) -> bool:
        """Whether any override concerns a GEMM."""
        return any(value is not None for value in (self.mr, self.nv, self.kc, self.mc))

    def __str__(self) -> str:
        return ":".join(f"{name}={_value_text(value)}" for name, value in self.explicit.items())


NO_OVERRIDES = ScheduleOverrides()
NAMES = tuple(field.name for field in fields(ScheduleOverrides))


def parse_overrides(text: str) -> ScheduleOverrides:
    """Parse the text that `str` of overrides writes; ScheduleError for anything else."""
    values: dict[str, Any] = {}
    for word in text.split(":") if text else []:
        name, _, value = word.partition("=")
        if name in values:
            raise ScheduleError(f"the schedule {text!r} says {name} twice")
        try:
            numbers = tuple(map(int, value.split("x"))) if value else ()
        except ValueError:
            raise ScheduleError(f"the schedule {text!r} says {word!r}: no number") from None
        values[name] = numbers if name == "tile" or len(numbers) != 1 else numbers[0]
    return _checked(values, None)


def read_overrides(kernel: Any) -> ScheduleOverrides:
    """The overrides of a kernel."""
    if not SCHEDULE.has(kernel):
        return NO_OVERRIDES
    where = place_of(kernel.location)
    attribute = SCHEDULE.get(kernel)
    if not isinstance(attribute, ir.DictAttr):
        raise ScheduleError(
            f"{SCHEDULE.name} of @{kernel.name.value} is {attribute}, not a dictionary",
            where=where,
            hint=f"write {SCHEDULE.name} = {{mr = 6, nv = 2}}",
        )
    return _checked({entry.name: _number(entry.attr) for entry in attribute}, where)


def write_overrides(kernel: Any, overrides: ScheduleOverrides) -> None:
    """Put the attribute on a kernel."""
    i64 = ir.IntegerType.get_signless(64)
    entries = {
        name: ir.DenseI64ArrayAttr.get(list(value))
        if isinstance(value, tuple)
        else ir.IntegerAttr.get(i64, value)
        for name, value in overrides.explicit.items()
    }
    SCHEDULE.set(kernel, ir.DictAttr.get(entries))


def _checked(values: dict[str, Any], where: str | None) -> ScheduleOverrides:
    for name, value in values.items():
        if name not in NAMES:
            raise ScheduleError(
                f"a schedule has no {name!r}", where=where, hint=f"it has {', '.join(NAMES)}"
            )
        numbers = value if isinstance(value, tuple) else (value,)
        if (
            (name == "tile") != isinstance(value, tuple)
            or not numbers
            or any(not isinstance(n, int) or not 0 < n < 1 << 31 for n in numbers)
        ):
            expected = "a list of numbers above 0" if name == "tile" else "a number above 0"
            raise ScheduleError(f"{name} of a schedule is {value}, not {expected}", where=where)
    return ScheduleOverrides(**values)


def _number(attr: Any) -> Any:
    """An attribute as a number or numbers; other attributes are rejected with their text."""
    if isinstance(attr, ir.DenseI64ArrayAttr):
        return tuple(attr)
    return attr.value if isinstance(attr, ir.IntegerAttr) else str(attr)


def _value_text(value: int | tuple[int, ...]) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
