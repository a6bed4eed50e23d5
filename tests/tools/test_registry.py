"""Every row of the pass registry loads, carries its file's name and documents itself."""

from __future__ import annotations

import dataclasses

import pytest

from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.passes import registry
from nova.passes.pipeline_text import parse_pipeline


@pytest.mark.parametrize("name", registry.PASS_MODULES)
def test_row(name: str) -> None:
    package, _, module = registry.PASS_MODULES[name].rpartition(".")
    assert package.startswith("nova.passes.") and module == name.replace("-", "_")
    step = registry.load_pass(name)
    assert dataclasses.is_dataclass(step)
    assert step.summary() and not step.summary().startswith(f"{step.__name__}("), "no docstring"
    with ir.Context() as context:
        assert parse_pipeline(name, context) == [step()], "every option needs a default"


def test_pipelines_are_documented_and_build() -> None:
    for name, make in registry.named_pipelines().items():
        assert (make.__doc__ or "").strip(), f"pipeline {name} has no docstring"
        with ir.Context() as context:
            assert parse_pipeline(name, context) == make()


@pytest.mark.parametrize("old", registry.ALIASES)
def test_old_names_of_passes_still_work(old: str) -> None:
    new = registry.ALIASES[old]
    assert old not in registry.PASS_MODULES and registry.load_pass(old) is registry.load_pass(new)
    with ir.Context() as context:
        assert parse_pipeline(old, context) == parse_pipeline(new, context)


def test_old_names_of_options_still_work() -> None:
    old, new = (
        parse_pipeline(f"nova-to-linalg{{{option}=true}}", make_context())
        for option in ("islands", "host-regions")
    )
    assert list(map(str, old)) == list(map(str, new))
