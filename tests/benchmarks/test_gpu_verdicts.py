"""The table of judged figures: bars, missing figures, groups that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import verdicts


def test_a_bar_of_a_ratio_divides_by_the_peer() -> None:
    bar = verdicts.Bar("loss", "loss", 0.9, peer="loss peer")
    assert bar.is_met({"loss": 89.0, "loss peer": 100.0})
    assert not bar.is_met({"loss": 91.0, "loss peer": 100.0})
    assert "0.91 (91 / 100) | at most 0.9 | **missed**" in bar.row({"loss": 91, "loss peer": 100})


def test_a_speed_is_the_time_of_the_peer_over_that_of_nova() -> None:
    bar = verdicts._ratio("GEMM", "gemm", 0.98)
    assert bar.is_met({"gemm": 100.0, "gemm peer": 99.0})
    assert not bar.is_met({"gemm": 100.0, "gemm peer": 97.0})


def test_a_missing_figure_misses_its_bar() -> None:
    assert not any(bar.is_met({}) for bar in verdicts.BARS)
    assert verdicts.table({}).count("**missed**") == len(verdicts.BARS)


def test_figures_of_bars_are_distinct() -> None:
    names = [bar.figure for bar in verdicts.BARS]
    assert len(names) == len(set(names))


def test_a_group_that_fails_has_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "measure.py"
    script.write_text(
        "import sys\n"
        "*_, group, _, path = sys.argv\n"
        "if group == 'rows': raise SystemExit('no device')\n"
        "open(path, 'w').write('{\"softmax\": 412.5}')\n"
    )
    monkeypatch.setattr(verdicts, "__file__", str(script))
    assert verdicts.measure_groups(["step", "rows"], tmp_path, 60) == {"softmax": 412.5}
    assert "rows has no figures:\nno device" in capsys.readouterr().out
