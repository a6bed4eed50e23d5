"""Every row has samples and an independent reference; its attributes and plans are stable text."""

from __future__ import annotations

import pytest
from op_cases import build
from op_samples import SAMPLES

from nova.graph.autodiff import expand_composite
from nova.graph.order import topological
from nova.ops import OPS, complex, functional, kernels, low_precision
from nova.plan import build_plan, parse_plan, print_plan


def test_every_row_has_samples() -> None:
    # Functions written with other rows are compared with torch in `test_functions.py`,
    # and those of low precision in `low_precision/`.
    families = (*functional.FAMILIES, *low_precision.FAMILIES)
    functions = {r.name for f in families for r in f.ROWS if r.kind == "sugar"}
    # Those of complex numbers in `complex/test_complex.py`.
    pairs = {
        r.name
        for r in (
            *complex.rows.ROWS,
            *complex.functions.ROWS,
            *complex.fourier.ROWS,
            *complex.real_fourier.ROWS,
        )
    }
    # Those of users' kernels in `tests/api/custom`.
    users = {r.name for r in kernels.rows.ROWS}
    assert SAMPLES.keys() == OPS.keys() - functions - pairs - users


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_complete(name: str) -> None:
    sample = SAMPLES[name]
    assert sample.cases
    assert (sample.torch is None) != (sample.numpy is None)
    if sample.grad and "nograd" not in OPS[name].tags:
        assert sample.torch is not None, "a row with a gradient needs torch's to compare"
    shapes = [d.shape for c in sample.cases for d in c.operands if d.domain != "seed"]
    assert not shapes or any(0 in s for s in shapes), "no empty case"


@pytest.mark.parametrize("name", SAMPLES)
def test_attributes_are_canonical_and_types_follow(name: str) -> None:
    """What a node holds is what its rules give again, inside of composites too."""
    for case in SAMPLES[name].cases:
        built = build(name, case, SAMPLES[name].usual)
        pending = topological(built.outputs)
        while pending:
            node = pending.pop()
            if node.op is None:
                continue
            types = tuple(t.type for t in node.inputs)
            if node.op.canon is not None:
                assert node.op.canon(types, node.attrs) == node.attrs, built.title
            assert node.op.infer is not None
            assert node.op.infer(types, node.attrs) == node.type, built.title
            if node.op.compose is not None:
                pending += topological([expand_composite(node, node.inputs)], stop=node.inputs)


@pytest.mark.parametrize("name", SAMPLES)
def test_plan_text_parses_back(name: str) -> None:
    for case in SAMPLES[name].cases:
        built = build(name, case, SAMPLES[name].usual)
        plan = build_plan(built.outputs, built.inputs)
        text = print_plan(plan)
        assert parse_plan(text) == plan, built.title
        assert print_plan(parse_plan(text)) == text
