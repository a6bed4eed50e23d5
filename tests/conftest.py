"""What all tests share: a disk cache of their own, so that no run sees another's programs."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Before anything of Nova is imported; child processes inherit the variable."""
    folder = tempfile.mkdtemp(prefix="nova-test-cache-")
    os.environ["NOVA_CACHE_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
