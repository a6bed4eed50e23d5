"""Values around loops of launches: what the reader of a file accepts, and what it refuses.

A program with loops is sound when each way through it is: the loader's answer is compared with its
answers for the programs without loops that each condition may lead to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.format import read_artifact
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.core.targets import parse_target
from nova.errors import ArtifactError

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) { ret; }\n"
DEVICE = KernelSpec("k", "k", 1, "device", 0, 0, "", device=DeviceLaunch((1, 1, 1), (1, 1, 1)))
LOOP = KernelSpec("while", "", 1, "while", 0, 0, "")
# By letter: an argument, an output, conditions, and values; `q` lies over `r` and `s`.
BUFFERS = {
    "x": BufferSpec("arg", 0, 64),
    "y": BufferSpec("output", 0, 64),
    "c": BufferSpec("workspace", 0, 1),
    "d": BufferSpec("workspace", 64, 1),
    "q": BufferSpec("workspace", 128, 192),
    "r": BufferSpec("workspace", 128, 128),
    "s": BufferSpec("workspace", 192, 128),
    "t": BufferSpec("workspace", 384, 64),
}
# A launch is "reads>writes"; a loop is its condition and its body.
Step = str | tuple[str, list["Step"]]


def tables_of(steps: list[Step]) -> Tables:
    kernels: list[KernelSpec] = []
    launches: list[LaunchSpec] = []

    def number(letters: str) -> tuple[int, ...]:
        return tuple(list(BUFFERS).index(letter) for letter in letters)

    def add(steps: list[Step]) -> None:
        for step in steps:
            location = len(kernels)
            if isinstance(step, str):
                reads, writes = step.split(">")
                kernels.append(DEVICE)
                launches.append(LaunchSpec(location, number(reads + writes), len(reads)))
                continue
            kernels.append(LOOP)
            launches.append(LaunchSpec(location, number(step[0])))
            add(step[1])
            kernels[location] = replace(LOOP, grid=len(kernels) - location - 1)

    add(steps)
    return Tables(tuple(BUFFERS.values()), tuple(kernels), tuple(launches), 448, 0)


def refusal(steps: list[Step]) -> str | None:
    """What the reader says about a program; None when it takes it."""
    variant = Variant(parse_target("cuda:sm_80"), "sm_80", (), tables_of(steps), b"", {})
    arg, output = TensorSpec("x", (16,), "f32", "input"), TensorSpec("y", (16,), "f32", "output")
    image = DeviceImage("ptx", "sm_80", PTX)
    contents = FileSpec(variants=(variant,), args=(arg,), outputs=(output,), devices=(image,))
    try:
        read_artifact(write_artifact(contents))
    except ArtifactError as error:
        assert "'tables-flow'" in str(error)
        return str(error)
    return None


SOUND: dict[str, list[Step]] = {
    "carried": ["x>ct", ("c", ["t>q", "q>t", "t>c"]), "t>y"],
    "not used after": ["x>cy", ("c", ["x>t", "t>c"])],
    "temporaries over each other": ["x>cy", ("c", ["x>r", "r>t", "x>s", "s>t", "t>c"])],
    "lost, then written again": ["x>cr", ("c", ["r>t", "x>s", "s>d", "x>r", "r>c"]), "r>y"],
    "in each other": ["x>ct", ("c", ["t>d", ("d", ["t>q", "q>td"]), "t>c"]), "t>y"],
}
UNSOUND: dict[str, tuple[list[Step], str]] = {
    "condition": (["x>y", ("c", ["x>c"])], "launch 1 reads buffer 2"),
    "first iteration": (["x>cy", ("c", ["t>c", "x>t"])], "launch 2 reads buffer 7"),
    "second iteration": (["x>cyr", ("c", ["r>t", "x>s", "s>c"])], "launch 2 reads buffer 5"),
    "condition of a later loop": (
        ["x>cy", ("c", ["x>c", "x>cd"]), ("d", ["x>d"])],
        "launch 4 reads buffer 3",
    ),
    "after no iteration": (["x>c", ("c", ["x>t", "x>c"]), "t>y"], "launch 4 reads buffer 7"),
    "after one": (["x>cr", ("c", ["x>s", "x>c"]), "r>y"], "launch 4 reads buffer 5"),
    "lost in an inner loop": (
        ["x>cdyr", ("c", ["r>c", ("d", ["x>s", "s>d"])])],
        "launch 2 reads buffer 5",
    ),
    "output only in a loop": (["x>c", ("c", ["x>y", "x>c"])], "output 0 has no value"),
}


@pytest.mark.parametrize("steps", SOUND.values(), ids=SOUND.keys())
def test_sound(steps: list[Step]) -> None:
    assert refusal(steps) is None


@pytest.mark.parametrize(("steps", "says"), UNSOUND.values(), ids=UNSOUND.keys())
def test_unsound(steps: list[Step], says: str) -> None:
    result = refusal(steps)
    assert result is not None and says in result


# --- each way through -----------------------------------------------------------------------------


def ways(steps: list[Step]) -> Iterator[list[Step]]:
    """The programs that run when loops end before their first, second or third iteration."""
    if not steps:
        yield []
        return
    first, *others = steps
    if isinstance(first, str):
        heads = [[first]]
    else:
        test = f"{first[0]}>"
        bodies = list(ways(first[1]))
        heads = [
            [test, *(step for body in chosen for step in (*body, test))]
            for count in range(3)
            for chosen in product(bodies, repeat=count)
        ]
    for head, remaining in product(heads, list(ways(others))):
        yield [*head, *remaining]


def draw(rng: random.Random, count: int, depth: int) -> list[Step]:
    steps: list[Step] = []
    for _ in range(count):
        if depth > 0 and rng.random() < 0.3:
            steps.append((rng.choice("cd"), draw(rng, rng.randint(1, 3), depth - 1)))
        else:
            reads = rng.choice(["x", "x", "xr", "xs", "xt", "xq"])
            steps.append(f"{reads}>{rng.choice('rstcd')}")
    return steps


def compare(seed: int) -> bool:
    rng = random.Random(seed)
    steps: list[Step] = ["x>cdy", *rng.sample(["x>q", "x>t"], rng.randint(0, 2))]
    steps += [*draw(rng, 2, 0), ("c", draw(rng, 3, 1)), *draw(rng, 1, 0)]
    each = {tuple(route) for route in ways(steps)}
    expected = all(refusal(list(route)) is None for route in each)
    assert (refusal(steps) is None) == expected, steps
    return expected


def test_as_each_way_through() -> None:
    result = [compare(seed) for seed in range(40)]
    assert 5 < sum(result) < 35


@pytest.mark.slow
def test_as_each_way_through_many() -> None:
    for seed in range(40, 1000):
        compare(seed)
