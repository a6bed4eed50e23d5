"""The damaged and hostile files through the C reader alone, under ASan and UBSan.

It reads each file as it is and with its hashes made right, walks what it accepts to the last byte,
and maps it. A read outside of the file ends the process. tests/native/test_file_sanitized.py lets
the same program make damage of its own.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from c_build import MEMORY, NATIVE, build_program, runtime_sources, sanitized
from hostile_rows import ROWS
from mutations import mutate

# What one run takes on its command line.
CHUNK = 60


def reader_sources() -> list[Path]:
    """Those of the reader, as native/fuzz/README.md says."""
    return runtime_sources(without=("enclosing_file.c", "ciface.c"))


@pytest.fixture(scope="module")
def reader() -> Path:
    sources = [NATIVE / "fuzz" / name for name in ("fuzz_file.c", "standalone.c")]
    return build_program([*sources, *reader_sources()], sanitized(MEMORY))


def read_all(reader: Path, paths: list[Path]) -> None:
    """Read the files, without any further damage."""
    for start in range(0, len(paths), CHUNK):
        chunk = paths[start : start + CHUNK]
        completed = subprocess.run(
            [str(reader), "0", "1", *map(str, chunk)], capture_output=True, text=True, timeout=600
        )
        assert completed.returncode == 0, f"one of {chunk[0]} to {chunk[-1]}\n{completed.stderr}"
        assert completed.stdout == "0\n"


def test_hostile_files(reader: Path, sound: Path, tmp_path: Path) -> None:
    paths = []
    for number, row in enumerate(ROWS):
        if not row.check.startswith("open-"):
            folder = tmp_path / str(number)
            folder.mkdir()
            paths.append(row.make(folder, (sound / f"{row.base}.nova").read_bytes()))
    assert len(paths) > 100
    read_all(reader, paths)


@pytest.mark.parametrize(
    ("first", "count"), [(0, 600), pytest.param(2_000_000, 20_000, marks=pytest.mark.slow)]
)
def test_damaged_files(reader: Path, sound: Path, tmp_path: Path, first: int, count: int) -> None:
    seeds = {path.stem: path.read_bytes() for path in sorted(sound.glob("*.nova"))}
    for start in range(first, first + count, CHUNK):
        paths = []
        for number in range(start, start + CHUNK):
            data = mutate(seeds, number).data
            if data:
                paths.append(tmp_path / f"{number}.nova")
                paths[-1].write_bytes(data)
        read_all(reader, paths)
        for path in paths:
            path.unlink()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang") is None, reason="libFuzzer comes with clang")
def test_libfuzzer(sound: Path, tmp_path: Path) -> None:
    fuzzer = tmp_path / "fuzz_file"
    command = ["clang", "-std=c11", "-g", "-O1", f"-fsanitize=fuzzer,{MEMORY}"]
    command += ["-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    command += ["-lpthread"]
    files = [NATIVE / "fuzz" / "fuzz_file.c", *reader_sources()]
    subprocess.run([*command, *map(str, files), "-o", str(fuzzer)], check=True)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for path in sound.glob("*.nova"):
        shutil.copy(path, corpus)
    completed = subprocess.run(
        [str(fuzzer), "-runs=20000", "-timeout=20", "-max_len=300000", "-seed=1", str(corpus)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=1200,
    )
    assert completed.returncode == 0, completed.stderr[-5000:]
    assert "Done 20000 runs" in completed.stderr
