"""What all tests share: a disk cache of their own, so that no run sees another's programs."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Before anything of Nova is imported; child processes inherit the variable."""
    # A test run in the background of a shell ignores Ctrl-C, and would pass that on to the tests
    # of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = tempfile.mkdtemp(prefix="nova-test-cache-")
    os.environ["NOVA_CACHE_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
