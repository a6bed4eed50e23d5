"""The benchmarks are scripts in a folder of their own, not a package of Nova."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
