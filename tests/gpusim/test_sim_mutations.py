"""Damaged programs with asynchronous instructions: a `PtxError`, a `SimulationError`, or a result.

`test_sim_sanitized` replays the launches under the sanitizers of gcc.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hopper_programs import gemm, run_gemm

from nova.errors import PtxError, SimulationError

NUMBERS = ("0", "1", "-1", "7", "16", "24", "255", "4096", "65535", "0x7fffffff", "0xffffffff")


def damage(text: str, numbers: random.Random) -> str:
    """The text with one or two of its instructions changed."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if "mbarrier.init" in line)
    for _ in range(numbers.randint(1, 2)):
        at = numbers.randrange(first, len(lines) - 2)
        match numbers.randrange(6):
            case 0:
                lines[at] = ""
            case 1:
                other = numbers.randrange(first, len(lines) - 2)
                lines[at], lines[other] = lines[other], lines[at]
            case 2:
                lines[at] = swap_one(lines[at], r"(?<![\w.%])\d+\b", NUMBERS, numbers)
            case 3:
                registers = re.findall(r"%[a-z]\d+", lines[at])
                lines[at] = swap_one(lines[at], r"%[rdpf]\d+", [*registers, "%d9", "_"], numbers)
            case 4:
                words = ("relaxed", "sync", "b64", "tile", "3d", "bf16", "aligned", "read")
                lines[at] = swap_one(lines[at], r"(?<=\.)\w+", words, numbers)
            case _:
                lines[at] += lines[numbers.randrange(first, len(lines) - 2)]
    return "\n".join(lines)


def swap_one(line: str, pattern: str, choices: tuple[str, ...] | list[str], numbers) -> str:
    matches = list(re.finditer(pattern, line))
    if not matches:
        return line
    match = numbers.choice(matches)
    return line[: match.start()] + numbers.choice(list(choices)) + line[match.end() :]


def outcomes(seed: int, count: int) -> dict[str, int]:
    """How many damaged programs ended in which way."""
    numbers = random.Random(seed)
    text = gemm(2)
    operands = [np.full((64, 128), 0x3F80, np.uint16) for _ in range(2)]
    result = {"refused": 0, "fault": 0, "ran": 0}
    for number in range(count):
        try:
            run_gemm(damage(text, numbers), *operands, most_steps=3000, schedule=number % 3)
        except PtxError:
            result["refused"] += 1
        except SimulationError as error:
            assert str(error)
            result["fault"] += 1
        else:
            result["ran"] += 1
    return result


def test_damaged_programs():
    result = outcomes(0, 60)
    assert all(result.values()), result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_more_damaged_programs(seed: int):
    assert sum(outcomes(seed, 400).values()) == 400
