"""exp and exp2 of devices, which use their instruction for 2**x: error bounds and edge cases."""

from __future__ import annotations

import numpy as np
import pytest

import nova

STEP = 4001
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7228, 88.73, -87.33, -103.9, -104.0]
EDGES += [-126.0, -127.0, -149.0, -150.0, 127.99999, 128.0]


def arguments() -> np.ndarray:
    """Bit patterns of all kinds, the range in which results are finite, and its ends."""
    patterns = np.arange(0, 2**32, STEP, dtype=np.uint64).astype(np.uint32).view("f4")
    return np.concatenate(
        [patterns, np.linspace(-151, 129, 100_001, dtype="f4"), np.array(EDGES, "f4")]
    )


# On the simulated device the instruction is exact; a GPU's is good to two units in the last place.
@pytest.mark.parametrize(
    ("target", "mode", "bound"),
    [
        ("cuda:sm_80", "sim", 2.0),
        pytest.param("cuda", "native", 4.0, marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_exponentials(name: str, target: str, mode: str, bound: float) -> None:
    x = arguments()
    given = nova.tensor(x, name="x")
    result = getattr(nova, name)(given)
    got = nova.compile(result, inputs=[given], target=target, run_mode=mode)(x)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype("f8"))
        rounded = exact.astype("f4")
        unit = np.spacing(np.abs(rounded)).astype("f8")
        error = np.abs(got.astype("f8") - exact) / unit
    finite = np.isfinite(rounded)
    assert error[finite].max() <= bound
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
