"""Images: what is mapped, where, with which protection, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import mmap
import weakref
from pathlib import Path

import numpy as np
import pytest
from machine import EXECUTE, READ, WRITE, make_add

from nova import _native

PAGE = mmap.PAGESIZE


def protection(address: int) -> str:
    """The permission letters that the kernel lists for the mapping of an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, letters = line.split()[:2]
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return letters[:3]
    return "unmapped"


def test_segments_are_copied_zero_filled_and_protected():
    data = b"codeRO!!rw"
    image = _native.Image(
        data,
        [
            (0, 4, 0, 4, READ | EXECUTE),
            (4, 4, PAGE, 4, READ),
            (8, 2, 3 * PAGE + 6, 100, READ | WRITE),
        ],
    )
    assert image.address(0) == image.base
    assert protection(image.address(0)) == "r-x"
    assert protection(image.address(PAGE)) == "r--"
    assert protection(image.base + 2 * PAGE) == "---"
    assert protection(image.address(3 * PAGE + 6)) == "rw-"
    assert ctypes.string_at(image.address(0), 4) == b"code"
    assert ctypes.string_at(image.address(PAGE), 4) == b"RO!!"
    assert ctypes.string_at(image.address(3 * PAGE + 6), 100) == b"rw" + bytes(98)


def test_first_vaddr_need_not_be_zero():
    image = _native.Image(memoryview(b"abc"), [(1, 2, 5 * PAGE + 8, 2, READ)])
    assert image.address(5 * PAGE + 8) == image.base + 5 * PAGE + 8
    assert ctypes.string_at(image.address(5 * PAGE + 8), 2) == b"bc"
    with pytest.raises(ValueError, match="outside"):
        image.address(0)


def test_equal_segments_may_share_a_page():
    image = _native.Image(b"abcd", [(0, 2, 0, 2, READ), (2, 2, 64, 2, READ)])
    assert ctypes.string_at(image.address(64), 2) == b"cd"


def test_an_image_may_be_empty():
    image = _native.Image(b"", [])
    assert image.base == 0
    with pytest.raises(ValueError):
        image.address(0)


@pytest.mark.parametrize(
    "segments",
    [
        [(0, 4, 0, 4, READ | WRITE | EXECUTE)],
        [(0, 4, 0, 4, WRITE | EXECUTE)],
        [(0, 4, 0, 4, 8)],
        [(0, 4, 0, 4, 1 << 40)],
        [(0, 5, 0, 4, READ)],
        [(0, 9, 0, 9, READ)],
        [(9, 0, 0, 1, READ)],
        [(2**64 - 1, 4, 0, 4, READ)],
        [(0, 4, 2**64 - 1, 4, READ)],
        [(0, 0, 0, 2**64 - 1, READ)],
        [(0, 0, 0, 2**64, READ)],
        [(0, 0, -1, 1, READ)],
        [(0, 4, 0, 4, READ), (0, 4, 2, 4, READ)],
        [(0, 4, 0, 4, READ), (0, 4, 64, 4, READ | EXECUTE)],
        [(0, 4, 0, 4)],
        ["code"],
    ],
)
def test_nonsense_is_refused(segments):
    with pytest.raises(ValueError):
        _native.Image(b"12345678", segments)


def test_a_huge_span_is_a_memory_error():
    with pytest.raises(MemoryError):
        _native.Image(b"1", [(0, 1, 0, 1, READ), (0, 1, 2**62, 1, READ)])


@pytest.mark.parametrize("arguments", [(), (b"",), (1, []), (b"", 1), (b"", [("a",) * 5])])
def test_wrong_types_are_refused(arguments):
    with pytest.raises(TypeError):
        _native.Image(*arguments)


@pytest.mark.parametrize("vaddr", [-1, 2**64, 5])
def test_address_outside_is_refused(vaddr):
    with pytest.raises(ValueError, match="outside"):
        _native.Image(b"1234", [(0, 4, 0, 4, READ)]).address(vaddr)


def test_address_wants_a_number():
    with pytest.raises(TypeError):
        _native.Image(b"1234", [(0, 4, 0, 4, READ)]).address("0")


def test_an_image_is_unmapped_with_its_last_program(text):
    image = _native.Image(text[0], [(0, len(text[0]), 0, len(text[0]), READ | EXECUTE)])
    address = image.address(0)
    program = make_add((image, text[1]))
    assert program.image is image
    del image
    gc.collect()
    assert protection(address) == "r-x"
    x = np.ones(8, "f4")
    assert (program(x, x) == 2).all()
    del program
    gc.collect()
    assert protection(address) != "r-x"


def test_a_program_in_a_cycle_is_collected(kernels):
    class Owner:
        def convert(self, index, obj, is_output):
            raise AssertionError

    owner = Owner()
    owner.program = make_add(kernels, convert=owner.convert)
    seen = weakref.ref(owner)
    del owner
    gc.collect()
    assert seen() is None
