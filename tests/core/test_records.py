"""A record behaves as the frozen dataclass that it stands for."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from nova.core.records import record


def declare(make: Any) -> tuple[type, type, type]:
    """The same three classes, made by `make`."""

    @make
    class Point:
        """A docstring."""

        mode: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)

        @cached_property
        def total(self) -> int:
            return self.x + self.y

    @make
    class Named(Point):
        """Fields come behind those of the base."""

        name: str = "?"

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @make
    class Empty:
        """No fields."""

    return Point, Named, Empty


RECORDS = declare(record)
DATACLASSES = declare(dataclass(frozen=True))


@pytest.mark.parametrize(("created", "wanted"), list(zip(RECORDS, DATACLASSES, strict=True)))
def test_fields_and_arguments_are_those_of_a_dataclass(created, wanted):
    assert [f.name for f in fields(created)] == [f.name for f in fields(wanted)]
    assert created.__match_args__ == wanted.__match_args__
    assert created.__doc__ == wanted.__doc__
    names = [list(inspect.signature(c).parameters) for c in (created, wanted)]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    "inputs",
    [
        {"args": (1,), "more": {}},
        {"args": (1, 3, ["a"], "n"), "more": {}},
        {"args": (), "more": {"x": 4, "note": "other"}},
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_values_text_and_equality_are_those_of_a_dataclass(number, inputs):
    created, expected = (
        c[number](*inputs["args"], **inputs["more"]) for c in (RECORDS, DATACLASSES)
    )
    assert dataclasses.asdict(created) == dataclasses.asdict(expected)
    assert repr(created).split(".")[-1] == repr(expected).split(".")[-1]
    assert created == replace(created)
    assert created == replace(created, note="something else")
    assert created != replace(created, y=99)
    assert created != expected
    assert created.total == expected.total


def test_every_instance_has_its_own_default():
    first, second = RECORDS[0](1), RECORDS[0](1)
    first.tags.append("x")
    assert second.tags == []


def test_hashes_agree_with_equality():
    @record
    class Key:
        """Hashable."""

        a: int
        b: tuple[int, ...] = ()
        c: str = field(default="", compare=False)

    @record
    class Other:
        """The same values, another class."""

        a: int
        b: tuple[int, ...] = ()

    assert len({Key(1), Key(1, c="x"), Key(2), Key(1, (3,))}) == 3
    assert Key(1) != Other(1)
    assert RECORDS[2]() == RECORDS[2]()
    assert hash(RECORDS[2]()) == hash(RECORDS[2]())
    with pytest.raises(TypeError, match="unhashable"):
        hash(RECORDS[0](1))  # of its list


def test_nothing_can_be_assigned_or_deleted():
    point = RECORDS[0](1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="'new'"):
        point.new = 2
    with pytest.raises(FrozenInstanceError, match="'y'"):
        del point.y
    assert (point.x, point.y) == (1, 2)


def test_wrong_arguments_and_post_init():
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required"):
        RECORDS[0]()
    with pytest.raises(TypeError, match="unexpected keyword"):
        RECORDS[0](1, z=3)
    with pytest.raises(ValueError, match="negative"):
        RECORDS[1](-1)
    assert repr(RECORDS[1](1, name="n")) == "<n>"
