"""The reader of `.nova` files under ASan and UBSan: its C tests, hostile files, mutated files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_build import MEMORY, NATIVE, build_program, build_runtime, build_test, sanitized
from hostile_files import cases
from tiny_file import build, manifest

import nova


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sound_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Tiny ones, and one that Nova compiled."""
    folder = tmp_path_factory.mktemp("sound")
    tiny = {
        "plain": build(),
        "no-imports": build(imports=()),
        "large": build(weights=bytes(2 << 20)),
        "no-weights": build(manifest(weights={"kind": "none", "sha256": "", "tensors": []})),
    }
    for name, layout in tiny.items():
        (folder / f"{name}.nova").write_bytes(layout.seal())
    (folder / "signed.nova").write_bytes(build().seal(bytes(96)))
    X, W = nova.tensor(np.ones((4, 3)), name="X"), nova.tensor(np.ones((3, 2)), name="W")
    program = nova.compile(nova.tanh(X @ W), inputs=[X], params=[W], target="x86_64")
    program.save(folder / "compiled.nova")
    return sorted(folder.iterdir())


def test_c_program(tmp_path: Path, sound_files: list[Path]) -> None:
    program = build_test(NATIVE / "tests" / "loader" / "test_file.c", MEMORY)
    lines = [f"sound {path}" for path in sound_files]
    for number, (_, check, data) in enumerate(cases()):
        (tmp_path / f"{number}.nova").write_bytes(data)
        lines.append(f"{check} {tmp_path / f'{number}.nova'}")
    (tmp_path / "list").write_text("\n".join(lines) + "\n")
    assert run(program, tmp_path / "list") == f"{len(lines)} files\n"


@pytest.fixture(scope="module")
def fuzzer() -> Path:
    """The libFuzzer target with a driver that needs no clang."""
    sources = [NATIVE / "fuzz" / name for name in ("fuzz_file.c", "standalone.c")]
    return build_program(sources, sanitized(MEMORY), [build_runtime(MEMORY)])


@pytest.mark.parametrize(
    ("count", "seed"), [(3000, 1), pytest.param(50_000, 2, marks=pytest.mark.slow)]
)
def test_mutated_files(fuzzer: Path, sound_files: list[Path], count: int, seed: int) -> None:
    seeds = [path for path in sound_files if path.stat().st_size < 1 << 20]
    assert run(fuzzer, str(count), str(seed), *seeds) == f"{count}\n"
