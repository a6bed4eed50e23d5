"""Bars, best peers and the page, from numbers made up here: nothing is timed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import workloads
from bars import BARS, SPEED
from harness.bar import BEST_PEER, Bar
from harness.plot import draw, lines_of, required_speeds
from harness.rates import Work, matmul_work
from harness.report import markdown
from harness.verdicts import add_fresh_summaries, add_loop_summaries, best_peer, judge, summarise

PEAKS = {"cores": 2, "core_flops": 1e11, "core_bytes": 1e10, "flops": 2e11, "bytes": 1.5e10}


def _row(contender: str, library: str, seconds: list[float], **more: Any) -> dict[str, Any]:
    return {"contender": contender, "library": library, "seconds": seconds, **more}


def _table(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    add_loop_summaries(rows)
    head = {"workload": "matmul", "title": "Product", "kind": "loop", "unit": "ms"}
    return {**head, "size": "128", "threads": 1, "rows": rows, **more}


def _judge(bar: Bar, *tables: dict[str, Any]) -> dict[str, Any]:
    (verdict,) = judge([bar], list(tables))
    return verdict


def _three() -> dict[str, Any]:
    return _table(
        [
            _row("Nova", "nova", [2.0, 4.0, 2.0]),
            _row("Nova, other", "nova", [0.5, 0.5, 0.5]),
            _row("slow", "a", [9.0, 9.0, 9.0]),
            _row("fast", "b", [1.0, 4.0, 3.0]),
            _row("wrong", "c", [0.1, 0.1, 0.1], failed="WrongResult: off"),
            _row("absent", "d", [], missing="not installed"),
        ]
    )


def test_summaries_interpolate() -> None:
    assert summarise([3.0, 1.0, 2.0]) == pytest.approx(
        {"median": 2.0, "p10": 1.2, "p90": 2.8, "count": 3}
    )
    assert summarise([7.0]) == {"median": 7.0, "p10": 7.0, "p90": 7.0, "count": 1}


def test_the_best_peer_is_sound_and_not_nova() -> None:
    best = best_peer(_three()["rows"])
    assert best is not None and best["contender"] == "fast"
    assert best_peer(_table([_row("Nova", "nova", [1.0])])["rows"]) is None


def test_a_ratio_is_taken_within_each_round() -> None:
    bar = Bar("x", "matmul", "Nova", 1.0, "share", BEST_PEER, size="128", threads=1)
    verdict = _judge(bar, _three())
    # 2/1, 4/4 and 2/3: not the ratio of the medians.
    assert verdict["summary"]["median"] == 1.0
    assert verdict["beside"] == "fast" and verdict["met"] is True


@pytest.mark.parametrize(
    "mode, limit, met",
    [("share", 0.99, False), ("share", 1.0, True), ("speed", 1.0, True), ("speed", 1.01, False)],
)
def test_a_share_is_at_most_and_a_speed_at_least(mode: str, limit: float, met: bool) -> None:
    assert _judge(Bar("x", "matmul", "Nova", limit, mode, BEST_PEER), _three())["met"] is met


def test_a_difference_and_seconds() -> None:
    second = Bar("x", "matmul", "Nova", -0.5, "difference", "fast")
    assert _judge(second, _three())["summary"]["median"] == -1.0
    assert _judge(Bar("x", "matmul", "Nova", 1.9), _three())["met"] is False


def test_a_bar_is_read_from_its_own_table() -> None:
    single, two = _three(), _three()
    two["threads"] = 2
    two["rows"][0]["summary"] = summarise([8.0])
    assert _judge(Bar("x", "matmul", "Nova", 5.0, threads=2), single, two)["met"] is False
    assert _judge(Bar("x", "matmul", "Nova", 5.0, threads=1), single, two)["met"] is True


@pytest.mark.parametrize(
    "bar",
    [
        Bar("x", "matmul", "Nova", 1.0, threads=4),
        Bar("x", "matmul", "Nova", 1.0, size="256"),
        Bar("x", "matmul", "absent", 1.0),
        Bar("x", "matmul", "wrong", 1.0),
        Bar("x", "matmul", "Nova", 1.0, "share", "absent"),
    ],
)
def test_what_was_not_measured_is_not_met(bar: Bar) -> None:
    verdict = _judge(bar, _three())
    assert verdict["met"] is None and verdict["summary"] is None


def _starts() -> dict[str, Any]:
    rows = [
        {"contender": "Nova", "library": "nova", "phases": [{"compiler": 0.1, "compile": 0.3}]},
        {"contender": "jax", "library": "jax", "phases": [{"compiler": 0.2, "compile": 0.6}]},
    ]
    add_fresh_summaries(rows)
    head = {"workload": "cold", "title": "Starts", "kind": "fresh", "unit": "ms"}
    return {**head, "size": "", "rows": rows}


def test_phases_of_a_start() -> None:
    table = _starts()
    bar = Bar("x", "cold", "Nova", 0.5, "share", "jax", "load + compile")
    assert _judge(bar, table)["summary"]["median"] == pytest.approx(0.5)
    assert _judge(bar, table)["met"] is True


def test_a_bar_names_its_peer() -> None:
    with pytest.raises(AssertionError, match="which peer"):
        Bar("x", "matmul", "Nova", 1.0, "share")
    with pytest.raises(AssertionError, match="not one of"):
        Bar("x", "matmul", "Nova", 1.0, "times", BEST_PEER)


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: bar.text)
def test_every_bar_names_what_is_measured(bar: Bar) -> None:
    assert bar.workload in workloads.ORDER
    module = importlib.import_module(f"workloads.{bar.workload}")
    assert bar.contender in module.CONTENDERS
    assert bar.peer in ("", BEST_PEER, *module.CONTENDERS)
    assert module.CONTENDERS[bar.contender][0] == "nova"
    if module.MODE == "loop":
        assert bar.size in module.SIZES if len(module.SIZES) > 1 else bar.size == ""
        assert bar.threads in module.THREADS if len(module.THREADS) > 1 else bar.threads < 2
    else:
        assert bar.phase and not bar.size and not bar.threads


def test_the_first_contender_is_novas_own() -> None:
    for name in workloads.ORDER:
        library, _ = next(iter(importlib.import_module(f"workloads.{name}").CONTENDERS.values()))
        assert library == "nova", name


def test_both_numbers_of_threads_are_judged() -> None:
    by_threads = {n: sum(bar.threads == n for bar in SPEED) for n in (1, 2)}
    assert by_threads == {1: 16, 2: 15}  # 8x16x10 is for one


def test_the_peak_that_bounds() -> None:
    assert Work(flop=2e11).floor_seconds(PEAKS, 1) == 2.0
    assert Work(flop=2e11).floor_seconds(PEAKS, 2) == 1.0
    assert Work(flop=2e11, byte=3e10).floor_seconds(PEAKS, 2) == 2.0
    assert Work(flop=1.0).floor_seconds(PEAKS, 3) is None
    assert matmul_work((2, 3, 4), (1, 1, 1), times=2).flop == 2 * 2 * (24 + 1)


def test_every_work_fits_its_sizes() -> None:
    for name in workloads.ORDER:
        module = importlib.import_module(f"workloads.{name}")
        for size in getattr(module, "SIZES", {}).values():
            if hasattr(module, "work"):
                work = module.work(**size)
                assert work.flop > 0 or work.byte > 0


def _results() -> dict[str, Any]:
    table = _three() | {"work": {"flop": 1e11, "byte": 0}, "floor": 1.0}
    bars = judge([Bar("product", "matmul", "Nova", 1.1, "speed", BEST_PEER, threads=1)], [table])
    bars[0]["size"] = "128"
    machine = {
        "date": "2026-01-02T03:04:05",
        "cpu": "a CPU",
        "cpu_family": "1/2",
        "cores": 2,
        "vectors": "AVX2",
        "system": "Linux",
        "load_at_start": 0.1,
        "python": "3.11",
        "compiler": "g++",
        "packages": {"numpy": "2"},
    }
    results = {"command": "run", "machine": machine, "seconds": 1.0, "peaks": PEAKS}
    return {**results, "bars": bars, "workloads": [table, _starts()], "plot": "results.png"}


def test_the_page_shows_verdicts_peaks_and_rates() -> None:
    page = markdown(_results())
    assert "| product | at least 1.1x | 1x (0.6 – 1.4) | fast | **missed** |" in page
    assert "multiply-adds 100 GFLOP/s on one core, 200 on 2" in page
    assert "| Product, 128 (1 thread) | 2000 ms | fast 3000 ms | 1.00 | 50 GFLOP/s | 50% |" in page
    assert "| Nova | 2000 (2000 – 3600) | 50 GFLOP/s | 50% | 1.00 |" in page
    assert "| absent | not installed |  |  |  |" in page
    assert "| wrong | failed: WrongResult: off |  |  |  |" in page
    assert "(results.png)" in page
    assert "| contender | compiler, ms | compile, ms | load + compile, ms |" in page
    assert "| jax | 200 | 600 | 800 |" in page


def test_the_lines_of_the_picture() -> None:
    results = _results()
    assert lines_of(results["workloads"]) == {"matmul 128": {1: (1.0, "fast")}}
    assert required_speeds(results["bars"]) == {("matmul 128", 1): 1.1}


def test_the_picture_is_drawn(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    draw(_results(), tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
