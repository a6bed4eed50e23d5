"""`nova cache`: what is there, what it is, whether it is sound, and why it is not another."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.api.compile import clear_memory_cache
from nova.tools.nova import main

A = np.arange(6, dtype="f4").reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with three entries, used at different times."""
    clear_memory_cache()
    path = tmp_path / "cache"
    with nova.knobs.override(cache_dir=path):
        build(1.5)
        build(2.5)
        build(1.5, target="x86_64")
    now = time.time()
    by_age = sorted(path.glob("*.nova"), key=lambda p: p.stat().st_mtime_ns)
    for entry, age in zip(by_age, (90000, 7200, 30), strict=True):
        os.utime(entry, (now - age, now - age))
    monkeypatch.setattr(nova.knobs, "_assigned", {"cache_dir": path, "cache_size": 1 << 20})
    return path


def build(number: float, **options: str) -> nova.Compiled:
    x = nova.tensor(A, name="x")
    return nova.compile(nova.tanh(x) + number, inputs=[x], **options)


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["cache", *words]) == status
    output = capsys.readouterr()
    assert (output.err if status else output.out) or words[0] == "verify"
    return output.out if not status or words[0] == "verify" else output.err


def keys(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The keys, the last used first."""
    return [entry["key"] for entry in json.loads(run(capsys, "list", "--json"))["entries"]]


def test_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(run(capsys, "list", "--json"))
    assert result["folder"] == str(folder) and result["most_bytes"] == 1 << 20 and result["on"]
    assert result["nbytes"] == sum(p.stat().st_size for p in folder.glob("*.nova"))
    assert [e["target"] for e in result["entries"]] == ["x86_64", "cpu", "cpu"]
    assert {e["signature"] for e in result["entries"]} == {"(x: f32[2,3]) -> (f32[2,3])"}
    assert [round(e["age"], -1) for e in result["entries"]] == [30, 7200, 90000]
    text = run(capsys, "list")
    lines = text.splitlines()
    assert lines[0] == str(folder) and lines[1].split() == ["entries", "3"]
    assert " of 1.0 MiB" in lines[2]
    last = [line.split("  ") for line in lines[-3:]]
    assert [[cell.strip() for cell in row if cell][2] for row in last] == ["30 s", "2 h", "1 d"]
    assert lines[-1].split()[0] == result["entries"][-1]["key"][:12]


def test_list_does_not_count_as_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*.nova")}
    run(capsys, "list")
    run(capsys, "verify")
    run(capsys, "show", keys(capsys)[0])
    assert {p: p.stat().st_mtime_ns for p in folder.glob("*.nova")} == before


def test_list_says_that_the_cache_is_off(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with nova.knobs.override(cache=False):
        assert "switched off by NOVA_CACHE" in run(capsys, "list")


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = keys(capsys)[0]
    result = json.loads(run(capsys, "show", key[:10], "--json"))
    assert result["file"] == str(folder / f"{key}.nova")
    assert result["variants"][0]["target"] == "x86_64"
    text = run(capsys, "show", key)
    assert "kernels for x86_64" in text and "fast_math=False" in text
    assert main(["inspect", result["file"]]) == 0
    assert capsys.readouterr().out == text, "an entry is a file like any other"


def test_keys_that_name_nothing_or_too_much(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no entries have a key that starts with 'xyz'" in run(capsys, "show", "xyz", status=1)
    assert "3 entries have a key that starts with ''" in run(capsys, "clear", "", status=1)
    assert len(keys(capsys)) == 3


def test_clear(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = keys(capsys)
    assert run(capsys, "clear", second[:20]).startswith("removed 1 entry, ")
    assert keys(capsys) == [first, third]
    answer = json.loads(run(capsys, "clear", "--json"))
    assert set(answer["removed"]) == {first, third} and answer["nbytes"] > 1000
    assert keys(capsys) == []
    assert run(capsys, "clear") == "removed 0 entries, 0 B\n"


def test_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verify") == "3 entries, none damaged\n"
    key = keys(capsys)[1]
    path = folder / f"{key}.nova"
    path.write_bytes(path.read_bytes()[:-100])
    text = run(capsys, "verify", status=1)
    assert text.startswith("1 of 3 entries damaged\n") and key[:12] in text and "check '" in text
    damaged = json.loads(run(capsys, "verify", "--json", status=1))["damaged"]
    assert list(damaged) == [key] and path.exists()
    entries = json.loads(run(capsys, "list", "--json"))["entries"]
    (listed,) = [entry for entry in entries if entry["key"] == key]
    assert listed["target"] == "?" and listed["signature"].startswith("damaged: check '")
    assert "check '" in run(capsys, "show", key, status=1)


def test_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other_target, other_number, first = keys(capsys)
    text = run(capsys, "explain", first, other_target)
    assert text.startswith(f"from {first[:12]} to {other_target[:12]}\n")
    assert "options differs: 'target=cpu' became 'target=x86_64'" in text
    answer = json.loads(run(capsys, "explain", first, other_number, "--json"))
    assert (answer["old"], answer["new"]) == (first, other_number)
    (line,) = answer["differences"]
    assert line.startswith("plan differs: line 4: ") and "<2.5>" in line
    nearest = json.loads(run(capsys, "explain", other_target, "--json"))
    assert nearest["old"] == first, "the same program comes before another one"
    assert "nothing differs" in run(capsys, "explain", first, first)
    assert "explain takes one or two" in run(capsys, "explain", first, first, first, status=1)
    run(capsys, "clear", other_target)
    run(capsys, "clear", other_number)
    assert "the only entry" in run(capsys, "explain", first, status=1)


def test_folders(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "nowhere"
    assert "entries  0" in run(capsys, "list", "--folder", str(nowhere))
    assert not nowhere.exists()
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o755)
    foreign.chmod(0o755)
    output = run(capsys, "list", "--folder", str(foreign), status=1)
    assert "is open to other users (mode 755; chmod 700 it)" in output and str(foreign) in output
