"""Programs in C that run a trained model: the examples, and the C API under the sanitizers.

Nothing but the file, the headers and the C library is used; the environment is empty.
"""

from __future__ import annotations

import runpy
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from c_build import MEMORY, NATIVE, build_test

import nova
from nova import nn, optim

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "c"
BATCH, PIXELS, CLASSES = 8, 16, 4


@dataclass(frozen=True)
class Trained:
    path: Path
    """A classifier with its weights in the file."""
    images: np.ndarray
    """Two and a half batches."""
    scores: np.ndarray
    """What Nova's own interpreter of the graph gives for them."""
    labels: np.ndarray


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """An MLP that tells four noisy patterns apart."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(CLASSES, PIXELS))
    labels = rng.integers(CLASSES, size=BATCH * 20)
    images = (patterns[labels] + 0.3 * rng.normal(size=(len(labels), PIXELS))).astype("f4")
    nn.manual_seed(0)
    model = nn.Sequential(nn.Linear(PIXELS, 32), nn.GELU(), nn.Linear(32, CLASSES))
    step = nova.train_step(
        model,
        lambda m, x, y: nova.cross_entropy(m(x), y),
        optim.AdamW(model.parameters(), lr=0.02),
    )
    for _ in range(5):
        for at in range(0, len(images), BATCH):
            step(images[at : at + BATCH], labels[at : at + BATCH])
    image = nova.tensor(images[:BATCH], name="images")
    program = nova.compile(model(image), inputs=[image], params=model.parameters())
    path = tmp_path_factory.mktemp("model") / "trained.nova"
    program.save(path, weights="embed")
    count = 2 * BATCH + BATCH // 2
    scores = model(images[:count]).numpy()
    return Trained(path, images[:count], scores, labels[:count])


def build_example(name: str, folder: Path) -> Path:
    program = folder / name
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-I", str(NATIVE / "include")]
    subprocess.run([*command, str(EXAMPLES / f"{name}.c"), "-o", str(program)], check=True)
    return program


def run_clean(
    program: Path, *arguments: Path | str, data: bytes = b""
) -> subprocess.CompletedProcess:
    """Run in an empty environment and another folder."""
    return subprocess.run(
        [str(program), *map(str, arguments)],
        input=data,
        capture_output=True,
        env={},
        cwd="/",
        timeout=60,
        check=False,
    )


def needed(path: Path) -> list[str]:
    listing = subprocess.run(
        ["readelf", "-d", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return [line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line]


# --- the examples ---------------------------------------------------------------------------------


def test_digits_example(trained: Trained, tmp_path: Path):
    program = build_example("digits", tmp_path)
    images = tmp_path / "images.f32"
    trained.images.tofile(images)
    result = run_clean(program, trained.path, images)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert lines[0] == f"input images: f32[{BATCH},{PIXELS}]"
    assert sum(line.startswith("param ") and "in the file" in line for line in lines) == 4
    assert any(line.startswith("output ") and f"f32[{BATCH},{CLASSES}]" in line for line in lines)
    assert any(line.startswith("code for ") for line in lines)
    classes = [int(line) for line in lines if line.isdigit()]
    assert classes == list(trained.scores.argmax(axis=1))
    # The model has learned something, so the classes are no accident.
    assert (np.array(classes) == trained.labels).mean() > 0.9


def test_nothing_but_the_c_library_is_needed(trained: Trained, tmp_path: Path):
    assert needed(build_example("digits", tmp_path)) == ["libc.so.6"]
    assert needed(build_example("descriptors", tmp_path)) == ["libc.so.6"]
    assert needed(trained.path) == ["libc.so.6"]


@pytest.mark.parametrize("case", ["no file", "no model", "no weights"])
def test_digits_example_says_what_is_wrong(trained: Trained, tmp_path: Path, case: str):
    program = build_example("digits", tmp_path)
    path, words = trained.path, "cannot be read"
    if case == "no model":
        path, words = tmp_path / "text.nova", "text.nova"
        path.write_text("not a model")
    elif case == "no weights":
        image = nova.tensor(np.zeros((BATCH, PIXELS), "f4"), name="image")
        weight = nova.tensor(np.zeros((PIXELS, CLASSES), "f4"), name="weight")
        path, words = tmp_path / "bare.nova", "weight: more than one argument has no value"
        nova.compile(image @ weight, inputs=[image], params=[weight]).save(path)
    images = tmp_path / "images.f32"
    if case != "no file":
        trained.images.tofile(images)
    result = run_clean(program, path, images)
    assert result.returncode == 1
    assert words in result.stderr.decode()


def test_descriptors_example(tmp_path: Path):
    path = tmp_path / "layer.nova"
    runpy.run_path(str(EXAMPLES / "layer.py"))["main"](str(path))
    result = run_clean(build_example("descriptors", tmp_path), path)
    assert result.stdout == b"4.5 0\n10.5 7.5\n", result.stderr
    assert "4.5 0\n10.5 7.5\n" in (EXAMPLES / "README.md").read_text()


def test_exported_symbols(trained: Trained):
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(trained.path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split()[-1] for line in listing.splitlines()}
    api = {name for name in names if name.startswith("nova_")}
    header = "".join(
        (NATIVE / "include" / "nova" / name).read_text()
        for name in ("model.h", "ciface.h", "status.h")
    )
    declared = {
        line.split("(")[0].split()[-1].lstrip("*")
        for line in header.splitlines()
        if line.startswith("NOVA_API ")
    }
    assert api == declared
    assert "_mlir_ciface_main" in names


# --- libnova.a ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_file() -> Path:
    return build_test(NATIVE / "tests" / "api" / "run_file.c", MEMORY)


def test_a_file_is_opened_by_path(trained: Trained, run_file: Path):
    batch = trained.images[:BATCH]
    result = run_clean(run_file, trained.path, data=batch.tobytes())
    assert result.returncode == 0, result.stderr
    scores = np.frombuffer(result.stdout, "f4").reshape(BATCH, CLASSES)
    np.testing.assert_array_equal(scores, nova.load(trained.path).run([batch]))
    np.testing.assert_allclose(scores, trained.scores[:BATCH], rtol=1e-5, atol=1e-5)


def test_a_link_to_a_file_runs(trained: Trained, run_file: Path, tmp_path: Path):
    path = tmp_path / "model.nova"
    path.symlink_to(trained.path)
    batch = trained.images[:BATCH]
    result = run_clean(run_file, path, data=batch.tobytes())
    assert result.returncode == 0, result.stderr
    assert result.stdout == run_clean(run_file, trained.path, data=batch.tobytes()).stdout


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "dangling link", "missing"])
def test_a_damaged_file_is_refused(trained: Trained, run_file: Path, tmp_path: Path, damage: str):
    path = tmp_path / "model.nova"
    data = bytearray(trained.path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    if damage == "dangling link":
        path.symlink_to(tmp_path / "elsewhere.nova")
    elif damage != "missing":
        keep = {"cut": len(data) // 2, "empty": 0}.get(damage, len(data))
        path.write_bytes(data[:keep])
    result = run_clean(run_file, path)
    assert result.returncode == 2, result.stderr
    expected = {"flipped": b"seal-", "cut": b""}.get(damage, b"open-")
    assert result.stderr.startswith(expected), result.stderr
    assert b": " in result.stderr
