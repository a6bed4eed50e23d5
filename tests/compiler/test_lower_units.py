"""How kernels are divided into LLVM units, and that the division shows in nothing but the time."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import nova
from nova import knobs
from nova.compiler.cpu.backend import HostCompile
from nova.compiler.cpu.lower_units import UnitLowering
from nova.compiler.driver import build
from nova.compiler.llvm.machine_code import LlvmJob, Unit, parse_units, print_units
from nova.compiler.recorder import Recorder, module_text
from nova.compiler.stages import CompileSession, passes_between, run_stages, start_from_plan
from nova.compiler.work_queue import WorkQueue
from nova.core.log import Progress
from nova.core.settings import current_settings
from nova.core.targets import parse_target
from nova.errors import CodegenError
from nova.graph.autodiff import gradients
from nova.ir.bindings import ir
from nova.ir.clone import copy_module
from nova.plan import Plan, build_plan


def network() -> Plan:
    """A training step with products of several shapes, a softmax and a tiny kernel."""
    x = nova.tensor(np.ones((64, 96), np.float32), name="x")
    sizes = [96, 130, 128, 10]
    weights = [
        nova.tensor(np.full(shape, 0.01, np.float32), name=f"w{i}")
        for i, shape in enumerate(pairwise(sizes))
    ]
    y = x
    for weight in weights:
        y = nova.tanh(y @ weight)
    loss = nova.sum(nova.softmax(y, axis=-1) * y)
    return build_plan([loss, *gradients(loss, weights)], [x], weights)


def lookup() -> Plan:
    """Columns of a table, which are found by scalar loops, and a product, which has none."""
    table = nova.tensor(np.ones((50, 96), np.float32), name="table")
    columns = nova.tensor(np.zeros((64,), np.int64), name="columns")
    weight = nova.tensor(np.ones((96, 128), np.float32), name="weight")
    found = nova.take(table, columns, axis=1)
    return build_plan([found, table @ weight], [table, columns, weight])


def at_loops(plan: Plan, target: str) -> ir.Module:
    recorder = Recorder()
    module = start_from_plan(plan, recorder)
    run_stages(module, current_settings(target=target), recorder, until="loops")
    return module


def lower(module: ir.Module, target: str) -> list[Unit]:
    """All units of a module at `loops`, which is at `llvm` after this."""
    passes = passes_between("loops", "llvm", current_settings(target=target))
    lowering = UnitLowering(module, passes)
    units = [lowering.lower(part) for part in lowering.shared_parts(module_text(module))]
    units += [lowering.lower(part) for part in lowering.kernel_parts()]
    translated = [unit.translate() for unit in units]
    lowering.replace_functions()
    return translated


class CountingCompile(HostCompile):
    """A compile that counts the units that are ready before the stage `loops` is."""

    early = 0

    def part_ready(self) -> None:
        super().part_ready()
        self.early = len(self.units)


def lower_early(plan: Plan, target: str) -> tuple[ir.Module, list[Unit], int]:
    """The same from a plan, in the loop of the stages, with the number of early units."""
    recorder, settings = Recorder(), current_settings(target=target)
    module = start_from_plan(plan, recorder)
    session = CompileSession(recorder, WorkQueue(1), Progress("", None))
    host = CountingCompile(module, settings, session)
    host.run("nova", "ll")
    return module, host.units, host.early


def units_of(plan: Plan, target: str) -> list[Unit]:
    return lower(at_loops(plan, target), target)


@pytest.mark.parametrize("target", ["cpu", "x86_64"])
def test_lowering_in_units_leaves_the_module_that_the_stage_makes(target):
    module = at_loops(network(), target)
    full = copy_module(module)
    run_stages(full, current_settings(target=target), Recorder(), after="loops")
    lower(module, target)
    assert module_text(module) == module_text(full)


@pytest.mark.parametrize("plan", [network, lookup])
@pytest.mark.parametrize("target", ["cpu", "x86_64-v3", "x86_64"])
def test_units_are_the_same_wherever_a_compile_starts(plan, target):
    module = at_loops(plan(), target)
    units = lower(module, target)
    early_module, early_units, early = lower_early(plan(), target)
    assert early >= (1 if plan is network else 0)
    assert early_units == units
    assert module_text(early_module) == module_text(module)


def test_kernels_with_odd_names_are_lowered():
    module = at_loops(network(), "x86_64-v3")
    text = module_text(module).replace("@kernel_0(", "@kernel.0(")
    odd = ir.Module.parse(text, module.context)
    units = lower(odd, "x86_64-v3")
    assert sum("define void @kernel.0(" in unit.text for unit in units) == 1
    assert all(
        set(re.findall(r"^declare .*@(nova_\w+)", u.text, re.M)) <= set(u.calls) for u in units
    )


@pytest.mark.parametrize("target", ["cpu", "x86_64-v3", "x86_64"])
def test_every_function_is_in_one_unit_and_each_call_has_a_definition(target):
    units = units_of(network(), target)
    assert len(units) > 2
    defined = [set(re.findall(r"^define [^@]*@([\w.]+)\(", u.text, re.M)) for u in units]
    everything = set().union(*defined)
    assert sum(map(len, defined)) == len(everything)
    assert any(name.startswith("nova_multiply") for name in everything)
    for unit, private in zip(units, defined, strict=True):
        called = set(re.findall(r"\bcall [^@\n]*@((?:nova|kernel)_\w+)\(", unit.text))
        assert called <= private | set(unit.calls)
        assert set(unit.calls) <= everything - private


def test_a_unit_without_the_vectorizer_has_no_kernel_with_scalar_loops():
    module = at_loops(lookup(), "x86_64-v3")
    scalar = set()
    for op in module.body.operations:
        if "nova.scalar_loops" in op.operation.attributes:
            scalar.add(op.operation.attributes["sym_name"].value)
    assert scalar
    units = lower(module, "x86_64-v3")
    assert {unit.vectorize for unit in units} == {True, False}
    for unit in units:
        if not unit.vectorize:
            assert not scalar & set(re.findall(r"^define [^@]*@([\w.]+)\(", unit.text, re.M))


def test_only_large_kernels_whose_loops_call_the_blocks_of_a_matmul_are_not_optimized():
    x = nova.tensor(np.ones((256, 256), np.float32), name="x")
    small = nova.tensor(np.ones((32, 48), np.float32), name="small")
    plan = build_plan([x @ x, nova.exp(x), small @ nova.transpose(small)], [x, small])
    module = at_loops(plan, "x86_64-v3")
    drivers = [
        op.operation.attributes["sym_name"].value
        for op in module.body.operations
        if "memref<256x256xf32>" in str(op) and "call @nova_multiply_" in str(op)
    ]
    units = lower(module, "x86_64-v3")
    [unit] = [unit for unit in units if not unit.optimize]
    kernels = re.findall(r"^define void @(kernel_\d+)\(", unit.text, re.M)
    assert sorted(kernels) == sorted(drivers) and len(units) > 1
    inside_loops = unit.text[unit.text.index("phi ") :]
    assert "nova_multiply_" in inside_loops and "<8 x float>" not in inside_loops
    [again] = [unit for unit in parse_units(print_units(units)) if not unit.optimize]
    assert again.text.strip() == unit.text.strip()


def test_the_same_bytes_for_any_number_of_threads():
    plan, settings = network(), current_settings(target="x86_64-v3")
    files = []
    for threads in (1, 2, 5):
        with knobs.override(threads=threads):
            files.append(build(plan, settings, {}).data)
    assert files[0] == files[1] == files[2]


def compile_queued(units: list[Unit], threads: int) -> list[bytes]:
    with WorkQueue(threads) as queue:
        jobs = [queue.submit(LlvmJob(unit, parse_target("x86_64")).run) for unit in units]
        return [job.result() for job in jobs]


@pytest.mark.parametrize("workers", [1, 3])
def test_units_may_come_late_and_objects_keep_their_order(workers):
    texts = [f"define i32 @f{i}() {{\n  ret i32 {i}\n}}\n" for i in range(7)]
    objects = compile_queued([Unit(text, unroll=False) for text in texts], workers)
    assert [f"f{i}".encode() in data for i, data in enumerate(objects)] == [True] * 7


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_among_units_is_raised(workers):
    wrong = "declare void @missing()\ndefine void @f() {\n  call void @missing()\n  ret void\n}\n"
    good = "define void @g() {\n  ret void\n}\n"
    units = [Unit(good, unroll=False), Unit(wrong, unroll=False)]
    with pytest.raises(CodegenError, match="missing"):
        compile_queued(units, workers)
    units[1] = Unit(wrong, unroll=False, calls=("missing",))
    assert len(compile_queued(units, workers)) == 2


@pytest.mark.parametrize("target", ["x86_64-v3", "aarch64"])
def test_the_text_of_units_has_their_options(target):
    units = [*units_of(network(), target), *units_of(lookup(), target)]
    assert {(u.unroll, u.vectorize) for u in units} >= {(False, True), (False, False)}
    units = [replace(unit, unroll=not i % 2) for i, unit in enumerate(units_of(network(), target))]
    again = parse_units(print_units(units))
    assert [(u.unroll, u.vectorize, u.calls) for u in again] == [
        (u.unroll, u.vectorize, u.calls) for u in units
    ]
    assert [u.text.strip() for u in again] == [u.text.strip() for u in units]
