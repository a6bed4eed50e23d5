"""Choices for kernels: their text, what they change in the code, and that results stay right."""

from __future__ import annotations

import numpy as np
import pytest
from nightly import all_pairs
from processors import runnable

import nova
from nova.api.translate import translate
from nova.codegen.common.overrides import (
    ScheduleOverrides,
    parse_overrides,
    read_overrides,
    write_overrides,
)
from nova.compiler.stages import start_from_text
from nova.errors import ScheduleError
from nova.ir.walk import kernels

LEVELS = runnable("cpu", "x86_64-v3", "x86_64")
# Sizes around tiles of every choice below.
SHAPES = [(64, 48, 96), (61, 33, 97), (7, 130, 65), (129, 31, 300)]
CHOICES = ["mr=1:nv=1", "mr=4:nv=2", "mr=2:nv=4", "mr=6:nv=1:kc=31", "kc=16:mc=8", "task_ns=1"]


@pytest.mark.parametrize(
    "text", ["", "mr=6", "mr=6:nv=2:kc=64:mc=12:tile=64x8:task_ns=9", "tile=3"]
)
def test_text_and_attribute_give_the_choices_back(text: str) -> None:
    choices = parse_overrides(text)
    assert str(choices) == text
    module = start_from_text("func.func @f() attributes {nova.kernel} { return }", "x")
    [kernel] = kernels(module)
    with module.context:
        write_overrides(kernel, choices)
    assert read_overrides(kernel) == choices


@pytest.mark.parametrize(
    "text",
    ["nr=2", "mr=0", "mr=-1", "mr=six", "mr", "mr=", "mr=2x3", "tile=", "mr=2:mr=3", "tile=4x0"],
)
def test_text_that_is_no_choice(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_overrides(text)


def _program(m: int, k: int, n: int) -> tuple[str, list[np.ndarray], np.ndarray]:
    """A product with work behind it as the text of the stage `buffers`, and what it gives."""
    random = np.random.default_rng(m * n)
    x, w = (random.standard_normal(s).astype("f4") for s in ((m, k), (k, n)))
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    program = nova.compile(nova.relu(X @ W), inputs=[X, W])
    expected = np.maximum(x.astype("f8") @ w.astype("f8"), 0)
    return program.stages["buffers"], [x, w], expected


@pytest.mark.parametrize(
    ("shape", "target", "choice"), all_pairs(SHAPES, LEVELS, [*CHOICES, "tile"])
)
def test_results_are_right_under_every_choice(
    shape: tuple[int, int, int], target: str, choice: str
) -> None:
    text, arrays, expected = _program(*shape)
    module = start_from_text(text, "x")
    if choice == "tile":
        choice = f"tile={shape[0] // 2 + 1}x{shape[2] // 3 + 1}"
    with module.context:
        [kernel] = kernels(module)
        write_overrides(kernel, parse_overrides(choice))
    result = translate(str(module), targets=target, start_from="buffers")
    assert "nova.schedule = {" in result.stages["loops"]
    actual = result.load()(*arrays)
    assert np.allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_choice_changes_the_code_and_nothing_else_does() -> None:
    text, _, _ = _program(64, 48, 96)
    marked = text.replace("nova.kernel,", "nova.kernel, nova.schedule = {mr = 4, nv = 1},", 1)
    assert marked != text
    loops = [translate(t, start_from="buffers", emit="loops").data for t in (text, marked, marked)]
    assert loops[0] != loops[1]
    assert loops[1] == loops[2]


def test_nothing_chosen_is_nothing_written() -> None:
    assert ScheduleOverrides().explicit == {}
    assert not ScheduleOverrides(task_ns=1).concerns_gemm
