"""The pages tell the truth: their programs run, their stage texts are what the compiler prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from page_blocks import ROOT, read_blocks, run_python
from processors import needs

import nova
from nova.tools import nova_opt

PAGES = [
    *("README.md", "CONTRIBUTING.md", "benchmarks/README.md"),
    *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]


@pytest.fixture(autouse=True)
def assignments_end_with_the_page() -> Iterator[None]:
    """A page assigns knobs in this process: later tests start without them."""
    yield
    nova.knobs.reset()


def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    completed = run_python("README.md")
    losses = completed["losses"]
    assert isinstance(losses, list) and losses[-1] < losses[0]
    again = nova.load("model.nova")
    w = np.array(completed["w"])
    assert float(again.run([completed["x"], completed["y"]], [w])) <= losses[-1]
    assert not np.array_equal(w, completed["w"]), "the update is in the file too"


def test_readme_sample_is_ten_lines() -> None:
    lines = read_blocks("README.md", "python")[0].text.splitlines()
    assert len([line for line in lines if line and not line.startswith("import")]) <= 10


def test_fast_math_page(tmp_path: Path) -> None:
    run_python("docs/fast-math.md")


def test_linear_algebra_page() -> None:
    run_python("docs/linear-algebra.md")


def test_complex_numbers():
    run_python("docs/complex.md")


def test_low_precision_page(capsys: pytest.CaptureFixture[str]) -> None:
    run_python("docs/low-precision.md")
    assert capsys.readouterr().out.splitlines() == [
        "[0.3125 3.25      nan]",
        "[0.3125, 3.25, 448.0]",
        "(16, 16) u8",
        "32",
    ]


def test_transforms_page() -> None:
    run_python("docs/transforms.md")


def test_custom_ops_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/custom-ops.md")


def test_jit_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/jit.md")


def test_dynamic_shapes_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = run_python("docs/dynamic-shapes.md")
    [signature] = [b.text for b in read_blocks("docs/dynamic-shapes.md", "text")]
    assert str(page["program"].signature).strip() == signature.strip()


def test_training_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/training.md")


def test_deploying_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    completed = run_python("docs/deploying.md")
    losses = completed["losses"]
    assert isinstance(losses, list) and losses[-1] < losses[0]
    assert (tmp_path / "release.public.pem").exists()
    assert len(list(tmp_path.glob("large-*.safetensors"))) == 1


def test_running_page() -> None:
    completed = run_python("docs/running.md")
    assert (completed["weights"] > 1).all(), "the updates of the stream"


def test_devices_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    completed = run_python("docs/devices.md")
    assert (
        capsys.readouterr().out
        == f"{completed['result']}\n"
        == "<DeviceArray float32(4, 2) on sim>\n"
    )
    assert isinstance(completed["on_host"], np.ndarray)
    assert isinstance(completed["on_device"], nova.DeviceArray)


def test_tuning_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with nova.knobs.override(cache_dir=tmp_path / "cache"):
        run_python("docs/tuning.md")
    assert "registers" in capsys.readouterr().out


def test_debugging_page() -> None:
    run_python("docs/debugging.md")


def test_simulator_page() -> None:
    completed = run_python("docs/simulator.md")
    (listing,) = read_blocks("docs/simulator.md", "text")
    assert str(completed["message"]) == listing.text.rstrip()


def test_tracing_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_python("docs/tracing.md")
    output = capsys.readouterr().out
    assert "time by kernel" in output and "on 64 simulated cores" in output
    assert (tmp_path / "run.json").exists()


@needs("x86_64-v3")  # the page shows and runs code for it
def test_how_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "docs/how-it-works.md"
    monkeypatch.chdir(tmp_path)
    first, *remaining = read_blocks(page, "python")
    names: dict[str, object] = {}
    with nova.knobs.override(dump="dump", cache=False):
        exec(compile("\n" * first.line + first.text, page, "exec"), names)
    program = names["program"]
    assert isinstance(program, nova.Compiled)
    texts = dict(program.stages) | {"dot": nova.dump_dot(names["y"])}
    listing = [b for b in read_blocks(page, "text") if "text:" in b.before]
    assert len(listing) == 9
    for block in listing:
        stage = block.before.removeprefix("<!-- text: ").removesuffix(" -->")
        assert_shows(texts[stage], block.text, f"{page}:{block.line} ({stage})")
    for block in read_blocks(page, "console"):
        for command in block.text.splitlines():
            assert command.startswith("$ nova-opt ")
            pattern, *options = command.split()[2:]
            (path,) = tmp_path.glob(pattern)
            assert nova_opt.main([str(path), *options]) == 0, capsys.readouterr().err
    for block in remaining:
        exec(compile("\n" * block.line + block.text, page, "exec"), names)


def assert_shows(actual: str, listing: str, where: str) -> None:
    """Each shown line is found in the text, in order; `…` stands for anything on its line."""
    lines = iter(actual.splitlines())
    for expected in listing.splitlines():
        if expected.strip() == "…":
            continue
        pattern = ".*".join(re.escape(part.strip()) for part in expected.split("…"))
        assert any(re.search(pattern, line) for line in lines), (
            f"{where}: `{expected.strip()}` is not there (any more, or in this order) in\n{actual}"
        )


@pytest.mark.parametrize("page", PAGES)
def test_links_and_files_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (folder / link).exists(), f"{page} links to {link}"
    for path in re.findall(r"`((?:nova|native|tests|docs|examples|benchmarks)/[\w./-]+)`", text):
        if page != "CONTRIBUTING.md" or not path.endswith((".py", ".mlir")):
            assert (ROOT / path).exists(), f"{page} names {path}"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "docs/README.md").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in contents
