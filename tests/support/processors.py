"""Which targets this machine can run, for tests that run code for named ones."""

from __future__ import annotations

import pytest

from nova.core.targets import parse_target


def runs_here(target: str) -> bool:
    """Whether the processor has what code for a target needs."""
    local, expected = parse_target("cpu"), parse_target(target)
    return local.arch == expected.arch and set(expected.features) <= set(local.features)


def runnable(*targets: str) -> list[str]:
    """Those of the targets that run here."""
    return [target for target in targets if runs_here(target)]


def needs(target: str) -> pytest.MarkDecorator:
    """Skips a test on a processor that does not run a target."""
    return pytest.mark.skipif(not runs_here(target), reason=f"this processor cannot run {target}")
