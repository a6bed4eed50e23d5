"""`nova trace`: a file is run, and its timeline is shown, written and replayed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from events import check_events
from graphs import PEAKS
from programs import two_chains

from nova.tools.nova import main


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nova.tracing.collect.measured_peaks", lambda: PEAKS)
    program, inputs = two_chains()
    program.save("model.nova")
    for name, array in zip("xabc", inputs, strict=True):
        np.save(f"{name}.npy", array)
    return "model.nova"


def test_a_summary_and_both_files(model, capsys, tmp_path):
    assert main(["trace", model, "--random", "-o", "t.json", "--html", "t.html"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("model.nova: 1 run measured on ")
    assert "time by kernel" in output and "critical path of the longest run" in output
    assert output.endswith("written: t.json\nwritten: t.html\n")
    assert check_events(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == []
    assert "<canvas" in (tmp_path / "t.html").read_text()


def test_the_option_decides_what_is_written(model, tmp_path):
    assert main(["trace", model, "--random", "--html", "page", "-o", "events.html"]) == 0
    assert "<canvas" in (tmp_path / "page").read_text()
    assert json.loads((tmp_path / "events.html").read_text())["traceEvents"]


def test_threads_and_repeats(model, capsys):
    words = ["--input", "x.npy", "a.npy", "b.npy", "c.npy", "--threads", "1", "--repeat", "3"]
    assert main(["trace", model, *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["runs"], answer["workers"], answer["kind"]) == (3, 1, "measured")
    assert answer["busy"] + sum(answer["idle"].values()) == answer["time"]
    assert {"name", "time", "flops", "bytes"} <= set(answer["kernels"][0])
    assert answer["written"] == []


def test_a_replay_on_other_cores(model, capsys):
    assert main(["trace", model, "--random", "--sim", "16", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["workers"]) == ("replayed", 16)
    assert answer["bound"] <= answer["time"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "0 arrays given, 4 wanted: x, a, b, c"),
        (["--random", "-o", "missing/t.json"], "there is no folder missing"),
        (["--random", "--html", "."], "it is a folder"),
    ],
)
def test_mistakes(model, capsys, words, message):
    assert main(["trace", model, *words]) == 1
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("nova trace: ") and message in output.err


@pytest.mark.parametrize("words", [["--sim", "0"], ["--threads", "x"], ["--repeat", "0"]])
def test_numbers_that_are_none(model, capsys, words):
    with pytest.raises(SystemExit):
        main(["trace", model, *words])
    assert words[0] in capsys.readouterr().err
