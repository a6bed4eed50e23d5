"""Fixtures of the runtime's tests: what gcc compiles once a session."""

from __future__ import annotations

import pytest
from machine import build_image, compile_text

from nova import _native


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, int]]:
    return compile_text(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def kernels(text: tuple[bytes, dict[str, int]]) -> tuple[_native.Image, dict[str, int]]:
    return build_image(text[0]), text[1]
