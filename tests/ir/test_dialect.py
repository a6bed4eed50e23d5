"""The nova dialect: every op has text tests, loading is safe, wrong ops are told where."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import dialect_samples
import pytest
from dialect_samples import SAMPLES, sample_module

import nova
from nova.core.dtypes import TensorType, f32, f64
from nova.core.location import Location
from nova.errors import MLIRSyntaxError
from nova.ir.bindings import ir
from nova.ir.context import make_context, parse_module, verify_module
from nova.ir.dialect import load_dialect
from nova.ir.emit import emit_module
from nova.ops import OPS
from nova.passes.base import run_pipeline
from nova.passes.pipelines import nova_to_linalg
from nova.plan import Argument, Input, Plan, Signature, Slot, Step

DIALECT_OPS = sorted([name for name, row in OPS.items() if row.kind != "sugar"] + ["constant"])


def _ops_in(paths: list[Path]) -> set[str]:
    text = "\n".join(path.read_text() for path in paths)
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
    return set(re.findall(r'"nova\.(\w+)"', code))


def test_every_op_has_a_positive_and_a_negative_text_test() -> None:
    positive = sorted(dialect_samples.FOLDER.glob("*.mlir"))
    negative = sorted((dialect_samples.FOLDER / "invalid").glob("*.mlir"))
    assert sorted(_ops_in(positive)) == DIALECT_OPS
    assert sorted(_ops_in(negative)) == DIALECT_OPS
    for path in negative:
        parts = path.read_text().split("// -----")
        assert all("expected-error" in part for part in parts), path


WRONG_KINDS = (
    '"x"',
    "1.5 : f64",
    "0x7FF0000000000000 : f64",
    "true",
    "-7 : i64",
    "9223372036854775807 : i64",
    "array<i64>",
    "array<i64: 99, -99, 99>",
    "array<i64: -1>",
    "array<i32: 1>",
    "f32",
    "i3",
    "[1]",
    "unit",
    "{a = 1}",
    "dense<1> : tensor<2xi64>",
    "@s",
)


@pytest.mark.parametrize("family", SAMPLES)
def test_attributes_of_any_kind_are_taken_or_refused_at_the_op(family: str) -> None:
    context = make_context()
    for sample in SAMPLES[family].values():
        text = str(sample_module(sample, context))
        line = next(i for i, s in enumerate(text.splitlines(), 1) if f'"nova.{sample.op}"' in s)
        for name in [*OPS[sample.op].attrs, "operandSegmentSizes"]:
            for mode in WRONG_KINDS:
                try:
                    parse_module(_with_attribute(text, sample.op, name, mode), "f.mlir", context)
                except MLIRSyntaxError as error:
                    assert f"f.mlir:{line}:" in str(error.where), (sample, name, mode, error)


def _with_attribute(text: str, op: str, name: str, value: str) -> str:
    """The module with one attribute of the op set to `value`."""
    call = re.search(rf'"nova\.{op}"\([^)]*\)(?: \{{(.*)\}})? : ', text)
    assert call
    inputs = re.findall(r"(\w+) = ((?:[^,<>]|<[^>]*>)+)", call[1] or "")
    merged = {**dict(inputs), name: value}
    inner = ", ".join(f"{k} = {v}" for k, v in merged.items())
    head = call[0].partition(")")[0]
    return text.replace(call[0], f"{head}) {{{inner}}} : ", 1)


# --- loading ------------------------------------------------------------------------------------


def test_loads_once_into_a_context() -> None:
    context = make_context()
    load_dialect(context)
    sample_module(SAMPLES["nn"]["softmax"], context).operation.verify()


def test_contexts_do_not_share_anything() -> None:
    texts = set()
    for _ in range(3):
        module = sample_module(SAMPLES["nn"]["softmax"], make_context())
        run_pipeline(module, nova_to_linalg())
        texts.add(str(module))
    assert len(texts) == 1


def test_contexts_in_several_threads() -> None:
    failures: list[BaseException] = []
    texts: list[str] = []
    start = threading.Barrier(6)

    def work() -> None:
        try:
            start.wait()
            for _ in range(3):
                context = make_context()
                module = sample_module(SAMPLES["contraction"]["linear_bias"], context)
                with pytest.raises(MLIRSyntaxError, match=r"nova\.neg"):
                    parse_module(
                        'func.func @f() {\n  %0 = "nova.neg"() : () -> tensor<f32>\n  return\n}',
                        "t.mlir",
                        context,
                    )
                run_pipeline(module, nova_to_linalg())
                texts.append(str(module))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(texts) == 18 and len(set(texts)) == 1


# --- locations ----------------------------------------------------------------------------------


def _plan(*steps: Step) -> Plan:
    x = Argument("x", TensorType((2, 3), f32))
    return Plan(Signature((x,), ()), steps, (Slot(len(steps) - 1),))


def test_a_wrong_step_is_reported_at_the_users_line() -> None:
    """No op function makes such a plan; a bug in one must still lead to the user's line."""
    right = Step("exp", (Input(0),), {}, TensorType((2, 3), f32), 0, Location("model.py", 11))
    wrong = Step("exp", (Slot(0),), {}, TensorType((3, 2), f64), 1, Location("model.py", 42))
    with pytest.raises(MLIRSyntaxError) as caught:
        verify_module(emit_module(_plan(right, wrong), make_context()))
    error = caught.value
    assert error.what == "'nova.exp' op result type is f64[3,2], must be f32[2,3]"
    assert error.where == "model.py:42"
    assert str(error).count("model.py") == 1


def test_a_compiled_plan_is_verified() -> None:
    wrong = Step("sum", (Input(0),), {"axis": 7}, TensorType((), f32), 0, Location("m.py", 5))
    with pytest.raises(MLIRSyntaxError, match="axis 7 is out of range") as caught:
        nova.api.compile.compile_plan(_plan(wrong))
    assert caught.value.where == "m.py:5"


def test_ops_carry_the_line_that_made_them() -> None:
    x = nova.tensor([1.0, 2.0], name="x")
    y = nova.softmax(x)
    module = emit_module(nova.plan.build_plan([y], [x]), make_context())
    run_pipeline(module, nova_to_linalg())
    locations: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "linalg.generic":
            locations.append(str(op.location))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    line = y.location.line
    assert locations and all(f'{Path(__file__).name}":{line}' in text for text in locations)
