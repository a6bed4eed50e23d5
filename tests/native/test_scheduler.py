"""The scheduler: its C tests under the sanitizers, its models, and its benchmark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from c_build import MEMORY, NATIVE, WRAP, build_program, compile_objects, sanitized

TESTS = NATIVE / "tests" / "scheduler"
SOURCES = [
    *sorted((NATIVE / "src" / "scheduler").glob("*.c")),
    NATIVE / "src" / "base" / "futex.c",
    NATIVE / "src" / "base" / "status.c",
]


def flags(*more: str, standard: str = "c11") -> list[str]:
    common = ["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    common += [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    return [f"-std={standard}", *common, *more]


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


def build_sanitized(test: str, sanitizers: str, *more: str) -> Path:
    sources = [*(TESTS / f"{name}.c" for name in (test, *more)), *SOURCES]
    return build_program(sources, sanitized(sanitizers), WRAP if test == "test_runs" else ())


@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
@pytest.mark.parametrize("test", ["test_graph", "test_runs", "test_pool"])
def test_c_program(test: str, sanitizers: str):
    program = build_sanitized(test, sanitizers)
    # TSan does not follow a fork of a process with threads.
    run(program, *(["no-fork"] if (test, sanitizers) == ("test_pool", "thread") else []))


@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
def test_numa_nodes(sanitizers: str, tmp_path: Path):
    files = {
        "online": "0-1,4\n",
        "node0/cpulist": "1,100000\n",
        "node1/cpulist": "\n",
        "node4/cpulist": "0\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    run(build_sanitized("test_numa", sanitizers), str(tmp_path))


@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
def test_random_graphs(sanitizers: str):
    run(build_sanitized("test_random", sanitizers, "random_graph"), "48", "0", "3000")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["thread", MEMORY])
def test_a_thousand_random_graphs(sanitizers: str):
    program = build_sanitized("test_random", sanitizers, "random_graph")
    run(program, "1000", "0", "50000", timeout=3600)


def build_model(model: str) -> Path:
    sources = [NATIVE / "model" / f"{model}.c", NATIVE / "model" / "explore.c"]
    return build_program(sources, flags("-O2", standard="gnu11"))


@pytest.mark.parametrize(
    "model", ["model_deque", "model_eventcount", "model_persistent", "model_ring", "model_run"]
)
def test_model_finds_nothing(model: str):
    output = run(build_model(model))
    assert "orders" in output and "failed" not in output and "not tried" not in output


@pytest.mark.parametrize(
    ("model", "bug", "found"),
    [
        ("model_deque", "weak", "failed: take_count[task] == 1"),
        ("model_eventcount", "weak", "failed: deadlock"),
        ("model_eventcount", "no-look", "failed: deadlock"),
        ("model_eventcount", "outside", "failed: ends == 1"),
        ("model_persistent", "no-wait", "== written"),
        ("model_persistent", "early", "== written"),
        ("model_persistent", "no-previous", "== written"),
        ("model_persistent", "backward", "failed: no end"),
        ("model_persistent", "no-reset", "failed: "),
        ("model_persistent", "other-tile", "failed: value == written"),
        ("model_persistent", "too-few", "== written"),
        ("model_persistent", "next-early", "failed: "),
        ("model_persistent", "list-order", "failed: no end"),
        ("model_persistent", "overwrite", "failed: "),
        ("model_persistent", "no-join", "failed: "),
        ("model_persistent", "no-visits", "failed: "),
        ("model_persistent", "no-claim", "failed: "),
        ("model_ring", "early-filled", "failed: "),
        ("model_ring", "no-slot-wait", "failed: "),
        ("model_ring", "late-read", "failed: "),
        ("model_ring", "close-few", "failed: "),
        ("model_ring", "early-publish", "failed: "),
        ("model_ring", "direct", "failed: "),
        ("model_ring", "early-done", "failed: "),
        ("model_ring", "free-early", "failed: "),
        ("model_ring", "out-of-order", "failed: "),
        ("model_run", "planted", "failed: deadlock"),
    ],
)
def test_model_finds_the_planted_bug(model: str, bug: str, found: str):
    assert found in run(build_model(model), bug)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("model_eventcount", "more"),
        *(("model_run", f"1 100000 {program}") for program in range(8)),
        ("model_run", "1 200000 8"),
    ],
)
def test_model_with_more_switches(model: str, arguments: str):
    output = run(build_model(model), *arguments.split(), timeout=3600)
    assert "orders" in output and "failed" not in output


def read_figures(text: str) -> dict[str, float]:
    return {line.split()[0]: float(line.split()[1]) for line in text.splitlines()}


def test_benchmark():
    """It runs and prints every figure; the bars are checked by `make nightly`."""
    bench = build_program([NATIVE / "bench" / "scheduler.c", *SOURCES], flags("-O2"))
    figures = read_figures(run(bench, "2", "3"))
    assert {"empty-chains-locality", "wake-sleeping", "forkjoin-barriers"} <= set(figures)
    assert all(value > 0 for value in figures.values())


def test_sources_need_only_the_c_library():
    """They are linked into .nova files: no thread-local storage, no constructors."""
    for built in compile_objects(SOURCES, flags("-O2", "-fPIC")):
        sections = subprocess.run(
            ["readelf", "-SW", str(built)], capture_output=True, text=True, check=True
        ).stdout
        for name in (".tbss", ".tdata", ".init_array", ".ctors", ".fini_array"):
            assert name not in sections
