"""The list of CPU GEMM strategies: a contraction uses the first that matches."""

from __future__ import annotations

import pytest
from test_packed_gemm import LEVELS, dense

from nova.codegen.cpu.gemm.strategies import (
    GEMM_STRATEGIES,
    is_worth_packing,
    register_shape,
    select_gemm,
    tile_shape,
)
from nova.core.targets import parse_target

CASES = {
    "unpacked": [dense(64, 64, 64), dense(1, 768, 768), dense(4, 256, 512, tb=True)],
    "packed": [dense(512, 512, 512), dense(3, 3, 16)],
}


def test_every_strategy_has_a_case() -> None:
    assert [strategy.name for strategy in GEMM_STRATEGIES] == list(CASES)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_the_first_strategy_that_matches_is_used(level: str, name: str) -> None:
    target = parse_target(level)
    for spec in CASES[name]:
        names = [s.name for s in GEMM_STRATEGIES if s.match(target, spec)]
        assert names[0] == select_gemm(target, spec).name == name
        tiles = select_gemm(target, spec).plan(target, spec)
        assert (tile_shape(target, spec), register_shape(target, spec)) == (
            tiles.task,
            tiles.register,
        )


def test_a_strategy_must_pay() -> None:
    target = parse_target("x86_64-v3")
    assert is_worth_packing(target, dense(512, 512, 512))
    assert not is_worth_packing(target, dense(3, 3, 16))
