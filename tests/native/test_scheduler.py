"""The scheduler: its C tests under the sanitizers, its models, and its benchmark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
TESTS = NATIVE / "tests" / "scheduler"
SOURCES = [*sorted((NATIVE / "src" / "scheduler").glob("*.c")), NATIVE / "src" / "status.c"]
MEMORY = "address,undefined"
# A count of the scheduler's allocations, in test_runs.c.
WRAP = ["-Wl,--wrap=malloc,--wrap=calloc,--wrap=aligned_alloc"]


def build(program: Path, sources: list[Path], *flags: str, standard: str = "c11") -> None:
    command = ["gcc", f"-std={standard}", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *flags]
    command += [f"-I{NATIVE / 'include'}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True)


def run(program: Path, *arguments: str, timeout: float = 600) -> str:
    """What the program printed; a status other than 0 or a report of a sanitizer is a failure."""
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    result = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
@pytest.mark.parametrize("test", ["test_graph", "test_runs", "test_pool"])
def test_c_program(tmp_path: Path, test: str, sanitizers: str):
    program = tmp_path / test
    flags = ["-O1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    flags += WRAP if test == "test_runs" else []
    build(program, [TESTS / f"{test}.c", *SOURCES], *flags)
    # TSan does not follow a fork of a process with threads.
    run(program, *(["no-fork"] if (test, sanitizers) == ("test_pool", "thread") else []))


def build_random(program: Path, sanitizers: str) -> None:
    sources = [TESTS / "test_random.c", TESTS / "random_graph.c", *SOURCES]
    build(program, sources, "-O2", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
def test_random_graphs(tmp_path: Path, sanitizers: str):
    build_random(tmp_path / "random", sanitizers)
    run(tmp_path / "random", "48", "0", "3000")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
def test_a_thousand_random_graphs(tmp_path: Path, sanitizers: str):
    build_random(tmp_path / "random", sanitizers)
    run(tmp_path / "random", "1000", "0", "50000", timeout=3600)


def build_model(program: Path, model: str) -> None:
    sources = [NATIVE / "model" / f"{model}.c", NATIVE / "model" / "explore.c"]
    build(program, sources, "-O2", standard="gnu11")


@pytest.mark.parametrize("model", ["model_queue", "model_sleep", "model_run"])
def test_model_finds_nothing(tmp_path: Path, model: str):
    build_model(tmp_path / model, model)
    output = run(tmp_path / model)
    assert "orders" in output and "failed" not in output and "not tried" not in output


@pytest.mark.parametrize(
    ("model", "bug", "found"),
    [
        ("model_queue", "weak", "failed: taken[task] == 1"),
        ("model_sleep", "weak", "failed: deadlock"),
        ("model_sleep", "no-look", "failed: deadlock"),
        ("model_sleep", "outside", "failed: ends == 1"),
        ("model_run", "planted", "failed: deadlock"),
    ],
)
def test_model_finds_the_planted_bug(tmp_path: Path, model: str, bug: str, found: str):
    build_model(tmp_path / model, model)
    assert found in run(tmp_path / model, bug)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "arguments"), [("model_sleep", ["more"]), ("model_run", ["1", "100000"])]
)
def test_model_with_more_switches(tmp_path: Path, model: str, arguments: list[str]):
    build_model(tmp_path / "model", model)
    assert "failed" not in run(tmp_path / "model", *arguments, timeout=3600)


def read_figures(text: str) -> dict[str, float]:
    return {line.split()[0]: float(line.split()[1]) for line in text.splitlines()}


def test_benchmark(tmp_path: Path):
    """It runs and prints every figure; the bars are checked by `make nightly`."""
    build(tmp_path / "bench", [NATIVE / "bench" / "scheduler.c", *SOURCES], "-O2")
    figures = read_figures(run(tmp_path / "bench", "2", "3"))
    assert {"empty-chains-locality", "wake-sleeping", "forkjoin-barriers"} <= set(figures)
    assert all(value > 0 for value in figures.values())


def test_sources_need_only_the_c_library(tmp_path: Path):
    """They are linked into .nova files: no thread-local storage, no constructors."""
    for source in SOURCES:
        built = tmp_path / f"{source.stem}.o"
        build(built, [source], "-O2", "-fPIC", "-c")
        sections = subprocess.run(
            ["readelf", "-SW", str(built)], capture_output=True, text=True, check=True
        ).stdout
        for name in (".tbss", ".tdata", ".init_array", ".ctors", ".fini_array"):
            assert name not in sections
