"""Passes as objects: their text form, the parser of pipelines, and what a failing pass reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from nova.errors import LoweringError, PassError, PipelineError
from nova.ir.bindings import ir
from nova.ir.diagnostics import Diagnostic
from nova.passes import registry
from nova.passes.base import Pass, UpstreamPass, run_pipeline
from nova.passes.pipeline_text import parse_pipeline


@dataclass(frozen=True)
class Rename(Pass):
    """Give the first function another name.

    The rest of the module stays as it is.
    """

    name: ClassVar[str] = "test-rename"
    new_name: str = "renamed"
    times: int = 1
    scale: float = 1.0
    tiles: tuple[int, ...] = ()
    dry: bool = False
    limit: int | None = None
    kind: Literal["vector", "matrix"] = "vector"

    def run(self, module: ir.Module) -> None:
        if not self.dry:
            module.body.operations[0].attributes["sym_name"] = ir.StringAttr.get(self.new_name)


@dataclass(frozen=True)
class Break(Pass):
    """Leave a function whose type does not fit its body."""

    name: ClassVar[str] = "test-break"

    def run(self, module: ir.Module) -> None:
        wrong = ir.TypeAttr.get(ir.FunctionType.get([], []))
        module.body.operations[0].attributes["function_type"] = wrong


@dataclass(frozen=True)
class Refuse(Pass):
    """Raise, as a lowering without a rule does."""

    name: ClassVar[str] = "test-refuse"

    def run(self, module: ir.Module) -> None:
        raise LoweringError("no rule for foo.bar", where="model.py:3:4")


@dataclass(frozen=True)
class Complain(Pass):
    """Emit an error at the module's location, without raising."""

    name: ClassVar[str] = "test-complain"

    def run(self, module: ir.Module) -> None:
        module.body.operations[0].location.emit_error("this function is not nice")


def rename_twice(first: str = "one", *, second: str = "two") -> list[Pass]:
    """Rename, and rename again."""
    return [Rename(first), Rename(second)]


@pytest.fixture(autouse=True)
def sample_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {step.name: __name__ for step in (Rename, Break, Refuse, Complain)}
    monkeypatch.setattr("nova.passes.registry.PASS_MODULES", rows)
    pipelines = {"test-rename-twice": rename_twice}
    monkeypatch.setattr(registry, "named_pipelines", lambda: pipelines)
    monkeypatch.setattr("nova.passes.pipeline_text.named_pipelines", lambda: pipelines)


@pytest.fixture
def context() -> Iterator[ir.Context]:
    with ir.Context() as context:
        yield context


@pytest.fixture
def module(context: ir.Context) -> ir.Module:
    return ir.Module.parse("func.func @f(%a: i32) -> i32 {\n  return %a : i32\n}\n")


def test_text_form_of_a_pass() -> None:
    assert str(Rename()) == "test-rename"
    assert str(Rename("x", tiles=(4, 8), dry=True)) == "test-rename{new-name=x tiles=4,8 dry=true}"
    assert str(UpstreamPass("func.func(cse)")) == "func.func(cse)"
    assert Rename.summary() == "Give the first function another name."


def test_mixed_pipeline(context: ir.Context) -> None:
    text = "builtin.module( test-rename{new-name=g times=2}, func.func(cse,canonicalize),cse )"
    assert parse_pipeline(text, context) == [
        Rename("g", times=2),
        UpstreamPass("func.func(cse,canonicalize)"),
        UpstreamPass("cse"),
    ]
    assert parse_pipeline("", context) == parse_pipeline("builtin.module()", context) == []


def test_typed_options(context: ir.Context) -> None:
    text = "test-rename{scale=2.5 tiles=4,8 dry limit=3 kind=matrix}"
    expected = Rename(scale=2.5, tiles=(4, 8), dry=True, limit=3, kind="matrix")
    assert parse_pipeline(text, context) == [expected]
    assert parse_pipeline(str(expected), context) == [expected]
    assert parse_pipeline("test-rename{limit=none dry=false}", context) == [Rename()]


def test_named_pipeline(context: ir.Context) -> None:
    created = parse_pipeline("test-rename-twice{second=b},cse", context)
    assert created == [Rename("one"), Rename("b"), UpstreamPass("cse")]


@pytest.mark.parametrize(
    ("text", "caret", "words"),
    [
        ("cse,test-renam", 4, "no pass `test-renam`, neither in Nova nor in MLIR"),
        ("cse,test-renam", 4, "did you mean `test-rename`?"),
        ("func.func(cse,nope)", 14, "no pass `nope`"),
        ("test-rename{new-nam=x}", 12, "did you mean `new-name`?"),
        ("test-break{x=1}", 11, "it has no options"),
        ("test-rename{times=x}", 12, "option `times` cannot be `x`"),
        ("test-rename{times=x}", 12, "it takes a whole number"),
        ("test-rename{times}", 12, "option `times` needs a value"),
        ("test-rename{kind=k}", 12, "one of vector, matrix"),
        ("test-rename{tiles=1,x}", 12, "a comma-separated list: a whole number"),
        ("test-rename{limit=x}", 12, "a whole number, or none"),
        ("test-rename{dry dry}", 16, "given twice"),
        ("func.func(test-rename)", 10, "runs on the whole module"),
        ("test-rename(cse)", 15, "takes no nested passes"),
        ("cse cse", 4, "unexpected `c`"),
        ("cse,,cse", 4, "expected the name of a pass"),
        ("func.func(cse", 9, "this `(` is not closed"),
        ("cse{a={}", 3, "this `{` is not closed"),
        ("cse{a=1}", 0, "no such option a"),
    ],
)
def test_pipeline_mistakes(context: ir.Context, text: str, caret: int, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, context)
    assert words in str(caught.value)
    assert f"\n  {text}\n  {' ' * caret}^" in str(caught.value)


def test_run_changes_the_module_and_reports(module: ir.Module) -> None:
    observed: list[str] = []
    timing: dict[str, float] = {}
    steps = [Rename("g"), UpstreamPass("cse"), UpstreamPass("cse")]
    run_pipeline(
        module, steps, after_each=lambda step, _: observed.append(str(step)), timing=timing
    )
    assert "@g" in str(module)
    assert observed == ["test-rename{new-name=g}", "cse", "cse"]
    assert list(timing) == ["test-rename{new-name=g}", "cse"]


def test_pass_that_breaks_the_ir_is_named(module: ir.Module) -> None:
    with pytest.raises(PassError) as caught:
        run_pipeline(module, [Rename(), Break(), Rename()])
    assert "pass `test-break` left invalid IR" in caught.value.what
    assert "entry block must have 0 arguments" in caught.value.what
    assert caught.value.where == "-:1:1"


def test_verification_can_be_left_out(module: ir.Module) -> None:
    run_pipeline(module, [Break()], verify=False)


def test_failing_upstream_pass_is_named(module: ir.Module) -> None:
    with pytest.raises(PassError, match="pass `transform-interpreter` failed: could not find"):
        run_pipeline(module, [UpstreamPass("cse"), UpstreamPass("transform-interpreter")])


def test_error_of_a_pass_keeps_its_class(module: ir.Module) -> None:
    with pytest.raises(LoweringError, match=r"no rule for foo\.bar") as caught:
        run_pipeline(module, [Refuse()])
    assert caught.value.__notes__ == ["in pass `test-refuse`"]


def test_emitted_error_fails_the_pass(module: ir.Module) -> None:
    output: list[Diagnostic] = []
    with pytest.raises(PassError, match="pass `test-complain` reported an error"):
        run_pipeline(module, [Complain()], on_diagnostic=output.append)
    assert [str(single) for single in output] == ["-:1:1: error: this function is not nice"]


def test_upstream_text_is_checked(context: ir.Context) -> None:
    with pytest.raises(PipelineError, match="MLIR does not take the pipeline `nope`"):
        UpstreamPass("nope").parse(context)
