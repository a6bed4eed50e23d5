"""`tune=`: what it finds, that it keeps to its time, and that results and caches stay right."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.api.compile import clear_memory_cache
from nova.api.translate import translate
from nova.artifact.manifest import TensorSpec
from nova.codegen.common.overrides import NO_OVERRIDES, ScheduleOverrides
from nova.codegen.cpu.gemm import blocking
from nova.codegen.cpu.search_space import list_variants, merge
from nova.compiler.stages import start_from_text
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import KnobError, PipelineError, TargetError
from nova.ir.walk import kernels
from nova.passes.cpu.pack_constants import constant_arguments
from nova.tools.nova import main as inspect
from nova.tuning import search
from nova.tuning.arguments import make_arguments, why_not_run
from nova.tuning.trial import Trial

X = np.random.default_rng(0).standard_normal((256, 256)).astype("f4")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    clear_memory_cache()
    with nova.knobs.override(cache_dir=tmp_path / "cache", threads=1):
        yield
    clear_memory_cache()


@pytest.fixture
def bad_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products are computed element by element, so that there is something to find."""
    monkeypatch.setattr(blocking, "_register_tile", lambda *_: (1, 1))
    blocking.choose_tiling.cache_clear()
    yield
    blocking.choose_tiling.cache_clear()


def product(tune: float | None) -> nova.api.compile.Compiled:
    x = nova.tensor(X, name="x")
    return nova.compile(nova.relu(x @ x), inputs=[x], tune=tune)


def check(program: nova.api.compile.Compiled) -> None:
    expected = np.maximum(X.astype("f8") @ X, 0)
    np.testing.assert_allclose(program(X), expected, rtol=1e-4, atol=1e-3)


def schedules(program: nova.api.compile.Compiled) -> str:
    return program.artifact.manifest.variants[0].options["schedules"]


@pytest.mark.usefixtures("bad_default")
def test_a_bad_schedule_is_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    with nova.knobs.override(log="tune"):
        program = product(3)
    assert ":mr=" in schedules(program)
    assert re.search(r"nova.schedule = {.*mr = \d+", program.stages["loops"])
    assert "nova.schedule" not in product(0).stages["loops"]
    check(program)
    assert re.search(r"@kernel_0: mr=.* us instead of .*: taken", capfd.readouterr().err)


@pytest.mark.usefixtures("bad_default")
def test_the_choice_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = product(2)
    monkeypatch.setattr(search, "Trial", None)  # nothing is tried from here on
    assert product(2).origin == "memory"
    clear_memory_cache()
    again = product(2)
    assert again.origin == "disk"
    assert schedules(again) == schedules(first) != ""
    assert bytes(again.artifact.data) == bytes(first.artifact.data)
    plain = product(None)
    assert plain.origin == "compiled"
    assert schedules(plain) == ""


def test_a_miss_is_explained_by_the_seconds(capfd: pytest.CaptureFixture[str]) -> None:
    product(0)
    with nova.knobs.override(log="cache"):
        product(0.01)
    assert "'tune=0.0' became 'tune=0.01'" in capfd.readouterr().err


@pytest.mark.usefixtures("bad_default")
def test_a_tuned_program_is_saved_and_linked_again_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = product(2)
    program.save(tmp_path / "p.nova")
    loaded = nova.load(tmp_path / "p.nova")
    assert schedules(loaded) == schedules(program) != ""
    np.testing.assert_array_equal(loaded(X), program(X))
    assert inspect(["inspect", str(tmp_path / "p.nova")]) == 0
    assert re.search(r"chosen schedules\n.*\n *cpu +kernel_0 .*mr = ", capsys.readouterr().out)
    rebuilt = loaded._rebuild().variants[0]
    assert rebuilt.options == loaded.artifact.manifest.variants[0].options
    loaded.save(tmp_path / "again.nova", weights="embed")
    np.testing.assert_array_equal(nova.load(tmp_path / "again.nova")(X), program(X))


def test_time_is_kept() -> None:
    x, w = nova.tensor(X, name="x"), nova.tensor(X, name="w")
    y = nova.relu(x @ w) @ w
    nova.compile(nova.tanh(y @ w), inputs=[x, w])  # loads what a compile needs
    started = time.monotonic()
    program = nova.compile(y, inputs=[x, w], tune=0.5)
    # The compile itself, and the trial that was under way, on a machine that is busy.
    assert time.monotonic() - started < 30
    expected = np.maximum(X.astype("f8") @ X, 0) @ X
    np.testing.assert_allclose(program(X, X), expected, rtol=1e-3, atol=1e-2)


def test_jit_and_train_step_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[Settings] = []

    def watch(module: object, after: str, settings: Settings, bar: object = None) -> Settings:
        observed.append(settings)
        return Settings(settings.target)

    monkeypatch.setattr(nova.tuning, "tune_settings", watch)
    double = nova.jit(lambda x: x + x, tune=0.25)
    np.testing.assert_array_equal(double(np.ones(3, "f4")), 2 * np.ones(3, "f4"))
    model = nova.nn.Linear(3, 2)
    step = nova.train_step(
        model, lambda m, x: m(x).sum(), nova.optim.SGD(model.parameters(), lr=0.1), tune=0.5
    )
    step(np.ones((4, 3), "f4"))
    assert [s.tune for s in observed] == [0.25, 0.5]
    with nova.knobs.override(tune=0.75):
        nova.compile(nova.tensor(X) + 3, inputs=[])
        float(nova.tensor(np.ones(2, "f4")).sum().numpy())  # run once: not tuned
    assert [s.tune for s in observed] == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("wrong", [-1, "soon", True, float("inf")])
def test_seconds_that_are_none(wrong: object) -> None:
    with pytest.raises(KnobError, match="tune cannot be"):
        product(wrong)  # type: ignore[arg-type]


# --- translate ------------------------------------------------------------------------------------

TEXT = """
func.func @main(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %0 = stablehlo.add %x, %x : tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}
"""


@pytest.mark.usefixtures("bad_default")
def test_translate_tunes_every_target() -> None:
    # A program, not its text, which a process without the bad default would compile.
    model = translate(product(0), targets=["x86_64", "cpu"], tune=4).load()
    result = [v.options["schedules"] for v in model.artifact.manifest.variants]
    assert len(result) == 2
    assert all(":mr=" in text for text in result)
    check(model)


def test_the_search_starts_from_what_is_written_on_a_kernel() -> None:
    text = product(0).stages["buffers"]
    slow = text.replace("nova.kernel,", "nova.kernel, nova.schedule = {mr = 1, nv = 1},", 1)
    result = translate(slow, start_from="buffers", tune=2)
    [actual] = [v.options["schedules"] for v in result.load().artifact.manifest.variants]
    assert re.search(r":mr=\d+:nv=\d+", actual) and ":mr=1:nv=1" not in actual
    check(result.load())


@pytest.mark.parametrize("options", [{"emit": "linalg"}, {"start_from": "loops"}])
def test_translate_does_not_tune_what_has_no_schedules(options: dict[str, str]) -> None:
    text = TEXT if "emit" in options else product(0).stages["loops"]
    with pytest.raises(PipelineError, match="tune is given to choose schedules"):
        translate(text, tune=1, **options)  # type: ignore[arg-type]
    with nova.knobs.override(tune=60):  # a setting for all compiles is no mistake here
        translate(text, **options)  # type: ignore[arg-type]


def test_other_machines_are_not_tuned() -> None:
    second = "aarch64" if parse_target("cpu").arch == "x86_64" else "x86_64"
    with pytest.raises(TargetError, match=f"'{second}' cannot be tuned on this machine"):
        translate(TEXT, targets=second, tune=1)


# --- the parts ------------------------------------------------------------------------------------


def one_kernel(y: nova.Tensor, *inputs: nova.Tensor) -> object:
    program = nova.compile(y, inputs=inputs)
    module = start_from_text(program.stages["buffers"], "x")
    [kernel] = kernels(module)
    return module, kernel


@pytest.mark.parametrize("target", ["cpu", "x86_64"])
def test_every_variant_of_a_product_is_legal_and_right(target: str) -> None:
    x, w = nova.tensor(X[:61, :97], name="x"), nova.tensor(X[:97, :130], name="w")
    _module, kernel = one_kernel(nova.relu(x @ w), x, w)
    settings = Settings(target)
    trial = Trial(kernel, settings)
    decisions = list_variants(kernel, parse_target(target), settings.tile_work, 2)
    names = [name for decision in decisions for name in decision[0].explicit]
    assert names[:3] == ["mr", "nv", "kc"] and names[-1] == "task_ns"
    arrays = make_arguments(kernel, trial.specs)
    expected = np.maximum(arrays[0].astype("f8") @ arrays[1], 0)
    for decision in decisions:
        assert len(set(decision)) == len(decision)
        for choices in decision[:3]:
            out = [a.copy() for a in arrays]
            trial.compile(choices)(*out)
            np.testing.assert_allclose(out[2], expected, rtol=1e-5, err_msg=str(choices))


def test_constants_are_packed_while_they_are_tried() -> None:
    x, w = nova.tensor(X[:64], name="x"), nova.tensor(X, name="w")
    program = nova.compile(x @ w, inputs=[x], params=[w], freeze=True, tune=1)
    assert "nova.packed" in program.stages["loops"]
    np.testing.assert_allclose(program(X[:64]), X[:64] @ X, rtol=1e-4, atol=1e-3)
    module = start_from_text(program.stages["buffers"], "x")
    [kernel] = kernels(module)
    [constants] = constant_arguments(module).values()
    trial = Trial(kernel, Settings(), constants)
    assert [spec.shape for spec in trial.specs] == [(64, 256), (64, 256)]
    arrays = make_arguments(kernel, trial.specs)
    trial.compile(NO_OVERRIDES)(*arrays)
    expected = np.broadcast_to(arrays[0].sum(axis=1, keepdims=True) / 2, (64, 256))
    np.testing.assert_allclose(arrays[1], expected, rtol=1e-5)


def test_timing_tells_a_slow_variant() -> None:
    x = nova.tensor(X, name="x")
    _module, kernel = one_kernel(x @ x, x)
    trial = Trial(kernel, Settings())
    slow, fast = trial.compile(ScheduleOverrides(mr=1, nv=1)), trial.compile(NO_OVERRIDES)
    old, new = trial.compare(slow, fast)
    assert 0 < new < 0.9 * old


def test_arguments_are_harmless() -> None:
    table = nova.tensor(X[:10, :4], name="table")
    index = nova.tensor(np.zeros(7, "i8"), name="index")
    _module, kernel = one_kernel(nova.take(table, index, axis=0), table, index)
    specs = [
        TensorSpec("table", (10, 4), "f32", "input"),
        TensorSpec("index", (7,), "i64", "input"),
    ]
    assert why_not_run(kernel, specs) is None
    created = make_arguments(kernel, specs)
    assert created[1].min() >= 0 and created[1].max() < 4
    assert np.isfinite(created[0]).all() and created[0].all()
    for first, second in zip(created, make_arguments(kernel, specs), strict=True):
        np.testing.assert_array_equal(first, second)
    divisor = nova.tensor(np.ones(7, "i4"), name="divisor")
    _module, kernel = one_kernel(divisor // divisor, divisor)
    assert make_arguments(kernel, specs)[1].min() >= 1


def test_what_cannot_be_run_is_not_tuned() -> None:
    x = nova.tensor(X, name="x")
    _module, kernel = one_kernel(x + 1, x)
    huge = TensorSpec("x", (1 << 20, 1 << 10), "f32", "input")
    assert why_not_run(kernel, [huge]) == "its arguments are too large to make up"


def test_choices_merge() -> None:
    assert merge(ScheduleOverrides(mr=4, nv=2), ScheduleOverrides(kc=64)) == ScheduleOverrides(
        mr=4, nv=2, kc=64
    )
    assert merge(ScheduleOverrides(mr=4, nv=2), ScheduleOverrides(mr=6, nv=1)) == ScheduleOverrides(
        mr=6, nv=1
    )
