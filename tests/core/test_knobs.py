"""The table of settings: environment, assignment and override agree, and mistakes are refused."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from nova import _native, knobs
from nova.errors import KnobError, KnobWarning
from nova.knobs import KNOBS, check_environment
from nova.runtime import output_pool, threads


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
    ("variable", "text", "accepts"),
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
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, accepts: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(KnobError) as caught:
        knobs.get(variable.removeprefix("NOVA_").lower())
    assert f"{variable} cannot be {text!r}" in str(caught.value)
    assert accepts in str(caught.value)


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
    observed: list[bool] = []
    with knobs.override(cache=False):
        plain = threading.Thread(target=lambda: observed.append(knobs.cache))
        plain.start()
        plain.join()
        copied = contextvars.copy_context()
    sharing = threading.Thread(target=lambda: observed.append(copied.run(knobs.get, "cache")))
    sharing.start()
    sharing.join()
    assert observed == [True, False]


def test_misspelt_variables_give_one_warning() -> None:
    with pytest.warns(KnobWarning) as caught:
        check_environment({"NOVA_CAHCE": "0", "NOVA_THREDS": "2", "NOVA_URL": "x"})
    assert [str(warning.message) for warning in caught] == [
        "not settings of Nova, and ignored: NOVA_CAHCE (did you mean NOVA_CACHE?), "
        "NOVA_THREDS (did you mean NOVA_THREADS?)"
    ]


FOREIGN = (
    # Kubernetes, for a service that is called nova
    *("NOVA_SERVICE_HOST", "NOVA_SERVICE_PORT", "NOVA_PORT", "NOVA_PORT_8774_TCP"),
    *("NOVA_PORT_8774_TCP_ADDR", "NOVA_PORT_8774_TCP_PORT", "NOVA_PORT_8774_TCP_PROTO"),
    *("NOVA_SERVICE_PORT_HTTP", "NOVA_API_SERVICE_HOST"),
    # clients of OpenStack
    *("NOVA_URL", "NOVA_USERNAME", "NOVA_PASSWORD", "NOVA_API_KEY", "NOVA_PROJECT_ID"),
    *("NOVA_REGION_NAME", "NOVA_VERSION", "NOVA_ENDPOINT_TYPE", "NOVA_SERVICE_NAME"),
    *("NOVA_", "NOVA_WHATEVER_ELSE", "CASANOVA_CAHCE", "NOVA_CACHE"),
)


@pytest.mark.parametrize("variable", FOREIGN)
@pytest.mark.parametrize("value", ["", "10.0.0.7"])
def test_variables_of_other_programs_are_left_alone(variable: str, value: str) -> None:
    check_environment({variable: value})  # warnings are errors here


def test_no_variable_stops_an_import() -> None:
    wrong = {knob.variable: "?!" for knob in KNOBS.values()}
    empty = {knob.variable: "" for knob in KNOBS.values()}
    code = "import nova, nova.nn, nova.optim, nova.debug, nova.runtime.model"
    for variables in ({"NOVA_THREDS": "2"}, dict.fromkeys(FOREIGN, ""), wrong, empty):
        completed = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        warned = "KnobWarning" in completed.stderr
        assert warned == ("NOVA_THREDS" in variables)


@pytest.mark.parametrize("name", [n for n in KNOBS if n != "trusted_keys"])
def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    usual = knobs.get(name)
    monkeypatch.setenv(KNOBS[name].variable, "")
    knobs.reset()
    assert knobs.get(name) == usual


def test_a_home_folder_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_CACHE_DIR", "~nobody-has-this-name/nova")
    with pytest.raises(KnobError, match=r"NOVA_CACHE_DIR cannot be '~nobody"):
        knobs.get("cache_dir")


def test_knobs_show_up_in_dir_and_types() -> None:
    assert {"cache", "override", "threads"} <= set(dir(knobs))
    assert set(KNOBS) <= set(knobs.__annotations__)
    for name in KNOBS:
        assert name not in vars(knobs), "a plain attribute would hide the knob"


@pytest.mark.parametrize("nodes", ["99999999999999999999", "257", "128+129", "+".join("1" * 65)])
def test_nodes_beyond_the_limits_of_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, nodes: str
) -> None:
    monkeypatch.setenv("NOVA_NUMA", nodes)
    with pytest.raises(KnobError, match="up to 64 nodes with 256 CPUs"):
        _ = knobs.numa


def test_the_limits_of_nodes_are_those_of_the_scheduler() -> None:
    assert knobs.MOST_NODE_CPUS == _native.MAX_THREADS
    sizes = (193, *[1] * 63)
    assert len(sizes) == knobs.MOST_NODES and sum(sizes) == knobs.MOST_NODE_CPUS
    _native.configure(1, 0, False, sizes)
    for wrong in ((194, *[1] * 63), (1,) * 65):
        with pytest.raises(ValueError, match=r"nodes|outside"):
            _native.configure(1, 0, False, wrong)
    _native.configure(1, 0, False, ())


def test_a_choice_that_is_misspelt() -> None:
    with pytest.raises(KnobError, match="did you mean persistent"):
        knobs.launch = "persistant"
    with pytest.raises(KnobError, match="did you mean critical-path"):
        knobs.policy = "critical_path"


def test_programs_follow_the_knobs_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    threads.settle()
    output_pool.settle()
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(_native, "configure", lambda *settings: calls.append(settings))
    monkeypatch.setattr(
        _native, "configure_outputs", lambda limit, seconds: calls.append(("outputs", limit))
    )
    knobs.threads, knobs.output_pool = 3, 1 << 20
    knobs.reset()
    knobs.threads, knobs.output_pool = 5, 2 << 20
    cores = len(os.sched_getaffinity(0))
    assert [c[0] for c in calls if c[0] != "outputs"] == [3, cores, 5]
    assert [c[1] for c in calls if c[0] == "outputs"][::2] == [1 << 20, 2 << 20]
    monkeypatch.setenv("NOVA_THREADS", "many")
    knobs.reset()  # keeps what it can; the next program reports the variable
    with pytest.raises(KnobError, match="NOVA_THREADS"):
        threads.settle()
