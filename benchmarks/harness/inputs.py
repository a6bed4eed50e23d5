"""The inputs of a table and the oracle's results, made by one worker and read by the others.

The oracle is slow where the work is large, and every library has a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any


def shared(key: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, from the scratch folder where another process of this run has made it.

    One table is kept: workers take turns, and the numbers of threads of a size follow each other.
    """
    folder = Path(os.environ["BENCH_SCRATCH"])
    path = folder / f"inputs-{hashlib.sha256(key.encode()).hexdigest()[:16]}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())
    for old in folder.glob("inputs-*.pickle"):
        old.unlink()
    made = make()
    path.write_bytes(pickle.dumps(made, protocol=5))
    return made
