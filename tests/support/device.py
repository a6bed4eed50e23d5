"""The device that tests of device code run on: the simulated one, or this machine's GPU.

`make test` takes the simulated one. `make test-gpu` sets NOVA_TEST_DEVICE=cuda and runs the tests
that are marked `device`, and those marked `gpu`, which need a real one.
"""

from __future__ import annotations

import os
from typing import Any

NAME = os.environ.get("NOVA_TEST_DEVICE", "sim")
# The simulator runs code for any architecture; the oldest has no instruction that others lack.
OPTIONS: dict[str, Any] = (
    {"target": "cuda:sm_80", "run_mode": "sim"} if NAME == "sim" else {"target": "cuda"}
)
