"""The table of settings: environment, assignment and override agree, and mistakes are refused."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from nova import knobs
from nova.errors import KnobError
from nova.knobs import KNOBS, check_environment


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for knob in KNOBS.values():
        monkeypatch.delenv(knob.variable, raising=False)
    knobs.reset()
    yield
    monkeypatch.undo()
    knobs.reset()


def test_defaults() -> None:
    assert knobs.log == frozenset()
    assert knobs.dump is None and knobs.cache_dir is None
    assert knobs.cache is True and knobs.fast_math is False
    assert knobs.cache_size == 2 * 1024**3
    assert knobs.threads == len(os.sched_getaffinity(0))
    assert knobs.progress == "auto" and knobs.target == "cpu" and knobs.trusted_keys == ()


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("NOVA_LOG", "compile, cache", frozenset({"compile", "cache"})),
        ("NOVA_LOG", "all", frozenset(knobs.TOPICS)),
        ("NOVA_LOG", "", frozenset()),
        ("NOVA_DUMP", "~/stages", os.path.expanduser("~/stages")),
        ("NOVA_CACHE", "off", False),
        ("NOVA_CACHE", "YES", True),
        ("NOVA_CACHE_DIR", "", None),
        ("NOVA_CACHE_SIZE", "512M", 512 << 20),
        ("NOVA_CACHE_SIZE", "3GiB", 3 << 30),
        ("NOVA_CACHE_SIZE", "0", 0),
        ("NOVA_CACHE_WAIT", "2.5", 2.5),
        ("NOVA_CACHE_WAIT", "0", 0.0),
        ("NOVA_THREADS", "3", 3),
        ("NOVA_POLICY", "critical-path", "critical-path"),
        ("NOVA_AFFINITY", "1", True),
        ("NOVA_JIT_PROGRAMS", "8", 8),
        ("NOVA_PROGRESS", "off", "off"),
        ("NOVA_TARGET", "x86_64-v3", "x86_64-v3"),
        ("NOVA_TRUSTED_KEYS", f"a.pem{os.pathsep}keys", ("a.pem", "keys")),
        ("NOVA_TRUSTED_KEYS", "~/keys", (os.path.expanduser("~/keys"),)),
    ],
)
def test_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    assert knobs.get(variable.removeprefix("NOVA_").lower()) == value


@pytest.mark.parametrize(
    ("variable", "text", "takes"),
    [
        ("NOVA_LOG", "compiel", "comma-separated list of compile, cache, run, load"),
        ("NOVA_CACHE", "maybe", "1, true, on, yes or 0, false, off, no"),
        ("NOVA_CACHE_SIZE", "2X", "number of bytes"),
        ("NOVA_CACHE_SIZE", "-1", "number of bytes"),
        ("NOVA_CACHE_SIZE", "G", "number of bytes"),
        ("NOVA_CACHE_WAIT", "-1", "number of seconds"),
        ("NOVA_CACHE_WAIT", "inf", "number of seconds"),
        ("NOVA_THREADS", "0", "whole number, at least 1"),
        ("NOVA_THREADS", "two", "whole number, at least 1"),
        ("NOVA_PROGRESS", "always", "one of auto, on, off"),
        ("NOVA_TARGET", " ", "text that is not empty"),
        # A variable that the shell left empty must not switch the check of signatures off.
        ("NOVA_TRUSTED_KEYS", "", "paths of files or folders"),
        ("NOVA_TRUSTED_KEYS", f"a.pem{os.pathsep}", "paths of files or folders"),
    ],
)
def test_bad_value_in_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, takes: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(KnobError) as caught:
        knobs.get(variable.removeprefix("NOVA_").lower())
    assert f"{variable} cannot be {text!r}" in str(caught.value)
    assert takes in str(caught.value)


def test_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_THREADS", "3")
    assert knobs.threads == 3
    monkeypatch.setenv("NOVA_THREADS", "4")
    assert knobs.threads == 3


def test_order_of_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_THREADS", "3")
    knobs.threads = 5
    assert knobs.threads == 5
    with knobs.override(threads=7, log={"run"}):
        assert knobs.threads == 7 and knobs.log == frozenset({"run"})
        with knobs.override(threads="9"):
            assert knobs.threads == 9 and knobs.log == frozenset({"run"})
        assert knobs.threads == 7
    assert knobs.threads == 5
    knobs.reset()
    assert knobs.threads == 3


def test_python_values_are_checked() -> None:
    with pytest.raises(KnobError, match=r"knob threads cannot be 1\.5"):
        knobs.threads = 1.5  # type: ignore[assignment]
    with (
        pytest.raises(KnobError, match="knob cache cannot be 'maybe'"),
        knobs.override(cache="maybe"),
    ):
        pass
    with pytest.raises(KnobError, match="did you mean cache"):
        knobs.cahce = False  # type: ignore[attr-defined]
    with pytest.raises(KnobError, match="did you mean threads"), knobs.override(thread=1):
        pass
    with pytest.raises(AttributeError, match="cahce"):
        _ = knobs.cahce  # type: ignore[attr-defined]
    assert knobs.cache is True


def test_failed_override_changes_nothing() -> None:
    with pytest.raises(KnobError), knobs.override(cache=False, threads=0):
        pass
    assert knobs.cache is True


def test_override_belongs_to_its_thread() -> None:
    seen: list[bool] = []
    with knobs.override(cache=False):
        plain = threading.Thread(target=lambda: seen.append(knobs.cache))
        plain.start()
        plain.join()
        copied = contextvars.copy_context()
    sharing = threading.Thread(target=lambda: seen.append(copied.run(knobs.get, "cache")))
    sharing.start()
    sharing.join()
    assert seen == [True, False]


def test_unknown_variable() -> None:
    with pytest.raises(KnobError, match=r"NOVA_CAHCE[\s\S]*did you mean NOVA_CACHE\?"):
        check_environment({"NOVA_CAHCE": "0"})
    with pytest.raises(KnobError, match="there are NOVA_LOG, NOVA_DUMP"):
        check_environment({"NOVA_WHATEVER_ELSE": "0"})
    check_environment({"NOVA_CACHE": "0", "CASANOVA_X": "1"})


def test_unknown_variable_at_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import nova.knobs"],
        env={**os.environ, "NOVA_THREDS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "KnobError" in done.stderr and "did you mean NOVA_THREADS?" in done.stderr


def test_knobs_show_up_in_dir_and_types() -> None:
    assert {"cache", "override", "threads"} <= set(dir(knobs))
    assert set(KNOBS) <= set(knobs.__annotations__)
    for name in KNOBS:
        assert name not in vars(knobs), "a plain attribute would hide the knob"
