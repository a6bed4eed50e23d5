"""What the simulator's integer functions should give, by name: integers without limits."""

from __future__ import annotations

from collections.abc import Callable

from sim_reference import signed


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _divide(a: int, b: int) -> int:
    return -1 if b == 0 else _quotient(a, b)


def _remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * _quotient(a, b)


def _bits(a: int, width: int) -> list[int]:
    return [a >> i & 1 for i in range(width)]


def _number(bits: list[int]) -> int:
    return sum(bit << i for i, bit in enumerate(bits))


def _extract(a: int, start: int, count: int, width: int, is_signed: bool) -> int:
    start, count = start & 255, count & 255
    bits = _bits(a, width)
    sign = bits[min(start + count - 1, width - 1)] if is_signed and count else 0
    inside = lambda i: i < count and start + i < width  # noqa: E731
    return _number([bits[start + i] if inside(i) else sign for i in range(width)])


def _insert(a: int, b: int, start: int, count: int, width: int) -> int:
    bits = _bits(b, width)
    for i in range(count & 255):
        if (start & 255) + i < width:
            bits[(start & 255) + i] = a >> i & 1
    return _number(bits)


def _find(a: int, width: int) -> int:
    a = ~a if a < 0 else a
    return a.bit_length() - 1 if a else -1


def _permute(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    out = []
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = source[pick & 7]
        out.append((255 if byte & 128 else 0) if pick & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def _look_up(a: int, b: int, c: int, table: int) -> int:
    bits = zip(_bits(a, 32), _bits(b, 32), _bits(c, 32), strict=True)
    return _number([table >> (x << 2 | y << 1 | z) & 1 for x, y, z in bits])


def _dot(a: int, b: int, c: int, a_signed: bool, b_signed: bool) -> int:
    x = [signed(v, 8) if a_signed else v for v in a.to_bytes(4, "little")]
    y = [signed(v, 8) if b_signed else v for v in b.to_bytes(4, "little")]
    return c + sum(p * q for p, q in zip(x, y, strict=True))


_PLAIN: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.wide": lambda a, b: a * b,
    "mad.wide": lambda a, b, c: a * b + c,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "div": _divide,
    "rem": _remainder,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "abs": abs,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "popc": lambda a: a.bit_count(),
    "sad": lambda a, b, c: c + abs(a - b),
    "prmt": _permute,
    "lop3": _look_up,
}


def is_specified(name: str, row: tuple[int, ...]) -> bool:
    """Whether a device gives what PTX says for these operands.

    PTX leaves open what a division by zero gives. The lowest eight bits of the position and of the
    length of a field count, by PTX, for the simulator and for an H200 with 32 bits. With 64 bits
    ptxas emulates bfe and bfi by shifts of the unmasked operands, which clamp: any operand above
    255 gives another result there.
    """
    head, _, type_ = name.rpartition(".")
    if head in ("div", "rem"):
        return row[1] != 0
    if head in ("bfe", "bfi") and type_.endswith("64"):
        return row[-1] <= 255 and row[-2] <= 255
    return True


def integer_reference(name: str, widths: tuple[int, ...]) -> Callable[..., int] | None:
    """The truth for a lane function over raw bits; None: it is not one of integers."""
    head, _, type_ = name.rpartition(".")
    is_signed, pair = type_[0] == "s", type_.endswith("x2")
    if "f" in type_:
        return None
    width = 16 if pair else int(type_[1:])
    out, mask = widths[0], (1 << widths[0]) - 1

    def typed(function: Callable[..., int]) -> Callable[..., int]:
        """Of signed operands where the type is; shifts and the like stay raw."""

        def apply(*raw: int) -> int:
            values = [
                signed(v, w) if is_signed and w >= width else v
                for v, w in zip(raw, widths[1:], strict=True)
            ]
            return function(*values) % (1 << out)

        return apply

    if pair:
        single = _PLAIN[head]

        def both(a: int, b: int) -> int:
            halves = []
            for shift in (0, 16):
                x, y = a >> shift & 0xFFFF, b >> shift & 0xFFFF
                if is_signed:
                    x, y = signed(x, 16), signed(y, 16)
                halves.append(single(x, y) & 0xFFFF)
            return halves[0] | halves[1] << 16

        return both
    if name.startswith("dp4a"):
        first, second = name.split(".")[1:]
        return lambda a, b, c: _dot(a, b, c, first[0] == "s", second[0] == "s") % (1 << 32)
    special: dict[str, Callable[..., int]] = {
        "mul.hi": typed(lambda a, b: a * b >> width),
        "mad.hi": typed(lambda a, b, c: (a * b >> width) + c),
        "shl": lambda a, b: (a << b) % (1 << width) if b < width else 0,
        "shr": lambda a, b: (signed(a, width) if is_signed else a) >> min(b, width) & mask,
        "clz": lambda a: width - a.bit_length(),
        "brev": lambda a: _number(_bits(a, width)[::-1]),
        "bfe": lambda a, b, c: _extract(a, b, c, width, is_signed),
        "bfi": lambda a, b, c, d: _insert(a, b, c, d, width),
        "bfind": typed(lambda a: _find(a, width)),
        "bfind.shiftamt": typed(lambda a: -1 if _find(a, width) < 0 else 31 - _find(a, width)),
        "shf.l.wrap": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32 & 0xFFFFFFFF,
        "shf.r.wrap": lambda a, b, c: (b << 32 | a) >> (c & 31) & 0xFFFFFFFF,
        "shf.l.clamp": lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32 & 0xFFFFFFFF,
        "shf.r.clamp": lambda a, b, c: (b << 32 | a) >> min(c, 32) & 0xFFFFFFFF,
    }
    if head in special:
        return special[head]
    return typed(_PLAIN[head]) if head in _PLAIN else None
