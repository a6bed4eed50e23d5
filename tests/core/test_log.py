"""Topic lines and the progress of long work on stderr."""

from __future__ import annotations

import builtins
import io
import time
from collections.abc import Callable

import pytest

from nova import knobs
from nova.core import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal as stderr; no fixture, as pytest replaces stderr between set-up and call."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(log, "DELAY_SECONDS", 0.01)
    return stream


def test_log_prints_topics_that_are_on(capsys: pytest.CaptureFixture[str]) -> None:
    with knobs.override(log="compile,run"):
        assert log.enabled("compile") and not log.enabled("cache")
        log.log("compile", "two\nlines")
        log.log("cache", "hidden")
        log.log("run", "done")
    log.log("compile", "hidden")
    assert capsys.readouterr() == ("", "[compile] two\n[compile] lines\n[run] done\n")


@pytest.mark.parametrize("with_rich", [True, False])
def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, with_rich: bool) -> None:
    terminal = open_terminal(monkeypatch)
    if not with_rich:
        hide_rich(monkeypatch)
    with knobs.override(progress="auto"), log.progress("kernels", total=3) as state:
        state.advance("matmul_0", completed=1)
        wait_for(lambda: "kernels 1/3 matmul_0" in terminal.getvalue())


def test_progress_waits_before_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(log, "DELAY_SECONDS", 100.0)
    with log.progress("kernels"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("settings", [{"progress": "off"}, {"progress": "auto", "log": "compile"}])
def test_progress_can_be_off(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    terminal = open_terminal(monkeypatch)
    with knobs.override(**settings), log.progress("kernels"):
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_progress_off_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(log, "REFRESH_SECONDS", 0.01)
    said = ""

    def listing(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return text in said

    with knobs.override(progress="on"), log.progress("kernels", total=2) as state:
        wait_for(lambda: listing("kernels 0/2\n"))
        state.advance("b", completed=1)
        wait_for(lambda: listing("kernels 1/2 b\n"))
    assert said == "kernels 0/2\nkernels 1/2 b\n"
    with knobs.override(progress="auto"), log.progress("kernels"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def hide_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("rich"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "nothing was shown"
        time.sleep(0.01)
