"""Seeing inside: the text of every stage, dumps, metrics, starting from a stage, log lines."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nova
from nova.api.compile import clear_memory_cache
from nova.compiler.cpu.lower_units import translate_module
from nova.compiler.llvm.machine_code import Unit, compile_objects
from nova.compiler.recorder import Recorder
from nova.compiler.stages import MLIR_STAGES, run_stages, start_from_text
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import PipelineError, PlanSyntaxError
from nova.ir.custom_syntax import to_pretty
from nova.plan import parse_plan

TEXTS = ["plan", "nova", "linalg", "kernels", "buffers", "loops", "llvm", "ll"]
X, W = np.ones((8, 16), "f4"), np.ones((16, 10), "f4")


def build(scale=1.0):
    x = nova.tensor(X, name="x")
    w = nova.tensor(W, requires_grad=True, name="w")
    loss = nova.square(nova.gelu(x @ w) * scale).sum()
    return nova.compile(loss, inputs=[x], params=[w], include_backward=True)


@pytest.fixture(scope="module")
def compiled():
    with nova.knobs.override(cache=False):
        clear_memory_cache()
        return build()


def test_every_stage_has_a_text(compiled):
    stages = compiled.stages
    assert list(stages) == TEXTS
    marks = {
        "plan": r"slot\[0\] = matmul\(input\[0\], param\[0\]\) : f32\[8,10\]",
        "nova": r"nova\.matmul",
        "linalg": r"linalg\.",
        "kernels": r"nova\.kernel",
        "buffers": r"memref<",
        "loops": r"scf\.for",
        "llvm": r"llvm\.func",
        "ll": r"define .*@kernel_0\(",
    }
    for stage, mark in marks.items():
        assert re.search(mark, stages[stage]), stage
    assert compiled.mlir_source == to_pretty(stages["nova"])
    assert parse_plan(stages["plan"]) == compiled.plan
    assert __file__ in stages["plan"], "the user's lines are in the plan"


def test_metrics(compiled):
    metrics = compiled.metrics
    assert list(metrics) == [*TEXTS, "object", "artifact"]
    for stage, figures in metrics.items():
        assert figures["seconds"] >= 0 and figures["bytes"] > 0, stage
    assert metrics["nova"]["bytes"] == len(compiled.stages["nova"])
    assert build().metrics == metrics, "from memory it is the same compile"


def test_stages_survive_the_disk(compiled, tmp_path):
    with nova.knobs.override(cache_dir=tmp_path):
        clear_memory_cache()
        first = build()
        clear_memory_cache()
        second = build()
    assert (first.origin, second.origin) == ("compiled", "disk")
    assert second.stages == first.stages and second.metrics == {}
    assert first.stages["ll"] == compiled.stages["ll"], "a compile is reproducible"


@pytest.mark.parametrize("stage", list(MLIR_STAGES))
def test_starting_from_a_stage_gives_the_same_object(compiled, stage):
    machine = parse_target("cpu")
    objects = []
    for start in ("nova", stage):
        module = start_from_text(compiled.stages[start], f"{start}.mlir")
        recorder = Recorder()
        run_stages(module, Settings(), recorder, after=start)
        assert list(recorder.texts) == TEXTS[TEXTS.index(start) + 1 : -1]
        objects.append(compile_objects([Unit(translate_module(module), unroll=False)], machine))
    assert objects[0] == objects[1]


def test_unknown_stages():
    with pytest.raises(PipelineError, match=r"no stage 'lower'[\s\S]*nova, linalg"):
        run_stages(start_from_text("", "m"), Settings(), Recorder(), after="lower")


def test_compiling_the_text_of_a_plan(compiled):
    again = nova.compile_plan(compiled.stages["plan"])
    for a, b in zip(again.run([X], [W]), compiled.run([X], [W]), strict=True):
        np.testing.assert_array_equal(a, b)
    changed = str(compiled.plan).replace("f32[]<1.0>", "f32[]<3.0>")
    with pytest.raises(PlanSyntaxError, match="no op 'matmull'") as caught:
        nova.compile_plan(changed.replace("matmul(", "matmull("))
    assert caught.value.where.startswith("<plan>:")


def test_dump_gives_each_program_a_folder(tmp_path):
    dump, cache = tmp_path / "dump", tmp_path / "cache"
    with nova.knobs.override(dump=dump, cache_dir=cache):
        programs = [build(2.0), build(3.0)]
    folders = sorted(dump.iterdir())
    assert len(folders) == 2
    files = [
        f"{i}-{s}.{ {'plan': 'plan', 'll': 'll'}.get(s, 'mlir') }" for i, s in enumerate(TEXTS)
    ]
    for folder in folders:
        assert sorted(p.name for p in folder.iterdir()) == files
    written = {(folder / "1-nova.mlir").read_text() for folder in folders}
    assert written == {p.stages["nova"] for p in programs}
    clear_memory_cache()
    second = tmp_path / "other"
    with nova.knobs.override(dump=second, cache_dir=cache):
        assert build(2.0).origin == "disk"
    [folder] = second.iterdir()
    assert folder.name in {f.name for f in folders}
    assert sorted(p.name for p in folder.iterdir()) == files


def test_dump_of_device_code(tmp_path):
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}"
    with nova.knobs.override(dump=tmp_path):
        translation = nova.translate(text, targets=["cuda:sm_80", "cuda:sm_90a"])
    [folder] = tmp_path.iterdir()
    for stage in ("ptx@cuda:sm_80", "ptx@cuda:sm_90a"):
        [file] = folder.glob(f"*-{stage}.ptx")
        assert file.read_text() == translation.stages[stage]


def test_log_lines(tmp_path, capsys):
    with nova.knobs.override(log="compile,run", cache_dir=tmp_path):
        program = build(4.0)
        program.run([X], [W])
        program(X, W)

        @nova.jit
        def scale(x):
            return x * 17.0

        scale(X)
        scale(X)
    lines = capsys.readouterr().err.splitlines()
    compiling = [line for line in lines if line.startswith("[compile]")]
    assert re.fullmatch(r"\[compile\] program [0-9a-f]{12}: \d+ steps for cpu", compiling[0])
    for line, stage in zip(compiling[1:11], [*TEXTS, "object", "artifact"], strict=True):
        assert re.fullmatch(rf"\[compile\] {stage}: [\d.]+ ms, \d+ bytes", line)
    assert "[compile] scale: first call" in compiling
    runs = [line for line in lines if line.startswith("[run]")]
    assert len(runs) == 4
    assert re.fullmatch(r"\[run\] program [0-9a-f]{12}: \d+ kernels?, [\d.]+ us", runs[0])
    assert re.fullmatch(r"\[run\] scale: 1 kernel, [\d.]+ us", runs[3])


def test_a_program_says_what_it_is(compiled):
    text = repr(compiled)
    assert "x: f32[8,16], w: f32[16,10]" in text and "f32[], f32[16,10]" in text
    assert compiled.target == "cpu" and compiled.workspace_size >= 0
    [*kernels] = compiled.kernels
    assert kernels and all(k.grid >= 1 and __file__ in k.location for k in kernels)
