"""Every registered pass and pipeline has a text test that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova.passes.registry import PASS_MODULES, known_names, named_pipelines

FILECHECK = Path(__file__).parent.parent / "filecheck"


@pytest.mark.parametrize("name", sorted(PASS_MODULES))
def test_every_pass_has_a_text_test(name: str) -> None:
    folder = PASS_MODULES[name].split(".")[1:-1]
    path = FILECHECK.joinpath(*folder, f"{name}.mlir")
    assert path.exists(), f"write {path.relative_to(FILECHECK.parent)}"
    assert f"--{name}" in path.read_text()


@pytest.mark.parametrize("name", sorted(named_pipelines()))
def test_every_pipeline_has_a_text_test(name: str) -> None:
    path = FILECHECK / "pipelines" / f"{name}.mlir"
    assert path.exists(), f"write {path.relative_to(FILECHECK.parent)}"
    assert f"--{name}" in path.read_text()


def test_text_tests_belong_to_something() -> None:
    for folder in ("passes", "pipelines"):
        for path in (FILECHECK / folder).rglob("*.mlir"):
            assert any(path.stem.startswith(name) for name in known_names()), path


def test_every_pass_is_in_the_registry() -> None:
    """A pass that nobody registered cannot be run or tested with nova-opt."""
    folder = Path(__file__).parents[2] / "nova" / "passes"
    named = {
        path.stem for path in folder.rglob("*.py") if 'name: ClassVar[str] = "' in path.read_text()
    }
    named.discard("base")  # upstream's passes
    assert named == {module.rpartition(".")[2] for module in PASS_MODULES.values()}
