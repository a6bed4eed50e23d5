"""Errors of runs: the user's line, also when a thread of Nova reports the failure."""

from __future__ import annotations

import threading
from typing import Any

import nova
from nova import _native
from nova.errors import RunTimeoutError
from nova.runtime.failures import report_on_device

CALL = "errors.append(report(status, 0, None, None, 1, None))"


def test_the_thread_of_the_user() -> None:
    error = report_on_device(_native.TIMEOUT, 0, None, None, 1, None)
    assert isinstance(error, RunTimeoutError) and __file__ in str(error.where)


def test_a_thread_of_nova_leaves_the_location_to_the_waiter() -> None:
    errors: list[Any] = []
    names = {"errors": errors, "report": report_on_device, "status": _native.TIMEOUT}
    thread = threading.Thread(target=exec, args=(compile(CALL, nova.__file__, "exec"), names))
    thread.start()
    thread.join()
    assert isinstance(errors[0], RunTimeoutError) and errors[0].where is None
