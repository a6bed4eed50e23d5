"""`lazy_property`: computed on the first use, once, with the documentation of its function."""

from __future__ import annotations

from functools import cached_property

from nova.core.records import lazy_property, record


@record
class Square:
    side: int

    @lazy_property
    def area(self) -> int:
        """The side squared."""
        computed.append(self.side)
        return self.side**2

    @cached_property
    def expected_area(self) -> int:
        return self.side**2


computed: list[int] = []


def test_a_property_is_computed_once() -> None:
    squares = [Square(2), Square(3)]
    for square in squares * 2:
        assert square.area == square.expected_area
    assert computed == [2, 3]
    assert squares[0] == Square(2)


def test_the_class_has_its_documentation() -> None:
    assert Square.area.__doc__ == "The side squared."
