"""Device code of every row, forward and backward: what it is made of is known to all who take it.

NVIDIA's assembler takes every kernel, for sm_80 and sm_90a, without spilling registers, and the
simulator knows every instruction. Nothing is run: the numbers are compared by the tests of the
folder on the simulated device. Rows are compiled together, a few dozen kernels to a text. `make
test` compiles each row forward for sm_80 and its gradient for sm_90a, `make nightly` both for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from op_cases import build
from op_samples import SAMPLES
from test_op_gradient import DIFFERENTIABLE, weighted

from nova.artifact.cubins.ptxas import find_ptxas
from nova.compiler.driver import build_module
from nova.compiler.recorder import Recorder
from nova.compiler.stages import start_from_plan
from nova.core.dtypes import f32, f64
from nova.core.settings import Settings
from nova.gpusim import SimModule
from nova.graph import Tensor
from nova.plan import build_plan

ARCHITECTURES = ("sm_80", "sm_90a")
TOGETHER = 8


def groups(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[i : i + TOGETHER] for i in range(0, len(names), TOGETHER)]


def title(names: Sequence[str]) -> str:
    return f"{names[0]}..{names[-1]}"


def rows(all_names: Sequence[str], arch: str) -> list[Any]:
    """A group of names with an architecture; those that `make nightly` alone compiles are slow."""
    return [
        pytest.param(names, each, id=f"{title(names)}-{each}", marks=marks)
        for names in groups(all_names)
        for each in ARCHITECTURES
        for marks in [() if each == arch else pytest.mark.slow]
    ]


def check_code(inputs: Sequence[Tensor], outputs: Sequence[Tensor], arch: str) -> None:
    """Compile for an architecture; an unknown instruction or a spill is an error on the way."""
    assert find_ptxas() is not None, "the package nvidia-cuda-nvcc is one of those for tests"
    module = start_from_plan(build_plan(list(outputs), list(inputs), []), Recorder())
    [code] = build_module(module, [Settings(target=f"cuda:{arch}", cubin=True)], Recorder())
    images = {(image.kind, image.arch): image.data for image in code.images}
    assert images.keys() == {("cubin", arch), ("ptx", arch)}
    kernels = set(SimModule(images["ptx", arch].decode()).kernels)
    assert {kernel.symbol for kernel in code.variant.tables.kernels} == kernels


@pytest.mark.parametrize(("names", "arch"), rows(list(SAMPLES), "sm_80"))
def test_forward_code(names: Sequence[str], arch: str) -> None:
    built = [
        built
        for name in names
        for built in (
            *(build(name, SAMPLES[name].cases[0], d) for d in SAMPLES[name].dtypes),
            *(build(name, case, f32) for case in SAMPLES[name].large),
        )
    ]
    check_code([t for b in built for t in b.inputs], [t for b in built for t in b.outputs], arch)


@pytest.mark.parametrize(("names", "arch"), rows(DIFFERENTIABLE, "sm_90a"))
def test_gradient_code(names: Sequence[str], arch: str) -> None:
    chosen = [(n, SAMPLES[n].cases[0], d) for n in names for d in (f32, f64)]
    chosen = [single for single in chosen if single[2] in SAMPLES[single[0]].dtypes]
    chosen += [(n, case, f32) for n in names for case in SAMPLES[n].large]
    items = [item for single in chosen if (item := weighted(*single)) is not None]
    outputs = [t for item in items for t in (item.loss, *item.grads)]
    check_code([t for item in items for t in item.inputs], outputs, arch)
