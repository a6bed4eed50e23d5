"""SIGKILL during `fit`: the run that is started again ends with the same bits as one never killed.

The last checkpoint holds the parameters, the optimizer's state, the position in the data and the
loss of every step, so its bytes are compared.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import plain_step
import pytest

CHILD = Path(plain_step.__file__).with_name("train_child.py")
ROOT = CHILD.parents[3]


def start(path: Path, *args: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{CHILD.parent}"}
    command = [sys.executable, str(CHILD), str(path), *args]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finish(child: subprocess.Popen) -> bool:
    """Whether it came to its end; False if it was killed."""
    output = child.communicate()[0]
    if child.returncode == -signal.SIGKILL:
        return output == "done\n"
    assert child.returncode == 0 and output == "done\n"
    return True


def train_with_kills(folder: Path, wanted: int, seed: int) -> list[int]:
    """Kill runs at random moments until `wanted` were killed; the checkpoints that were found.

    A training that ends before it was killed often enough is compared, and another one started.
    """
    moments = random.Random(seed)
    reference = folder / "reference"
    child, began = start(reference, "compiled"), time.monotonic()
    assert finish(child)
    # Several kills a training, most of them inside of it.
    span = (time.monotonic() - began) / 4
    sizes, compared = [], 0
    while len(sizes) < wanted or compared == 0:
        path = folder / f"run{compared}"
        while True:
            child = start(path, "compiled")
            if len(sizes) < wanted:
                time.sleep(moments.uniform(0, span))
                child.kill()
            # The machine may have become busier, or less busy, since the reference ran.
            if finish(child):
                span *= 0.8
                break
            span *= 1.1
            sizes.append(path.stat().st_size if path.exists() else 0)
        assert path.read_bytes() == reference.read_bytes()
        compared += 1
        remaining = [name for name in os.listdir(folder) if name.startswith(f".{path.name}.tmp-")]
        assert not remaining, "a killed run's half-written file is removed by the next"
    return sizes


def test_kills_at_random_moments(tmp_path):
    sizes = train_with_kills(tmp_path, 10, seed=0)
    assert len(set(sizes)) > 3, "the kills came at different stages of the training"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_fifty_kills_at_random_moments(tmp_path, seed):
    sizes = train_with_kills(tmp_path, 10, seed=seed)
    assert len(sizes) >= 10


# What the training does to the disk for each of its 8 checkpoints: flush the file, rename the old
# one (which the first time does not exist), rename the new one, flush the folder.
@pytest.mark.parametrize(
    ("function", "number", "exists", "previous"),
    [
        ("fsync", 1, False, False),
        ("replace", 1, False, False),
        ("replace", 2, False, False),
        ("replace", 3, True, False),
        ("replace", 4, False, True),
        ("fsync", 7, True, True),
        ("replace", 5, True, True),
        ("replace", 6, False, True),
        ("fsync", 16, True, True),
    ],
)
def test_kill_while_a_checkpoint_is_written(tmp_path, function, number, exists, previous):
    from plain_step import PlainStep, make_arrays

    import nova

    path = tmp_path / "a"
    assert not finish(start(path, "plain", function, str(number)))
    assert (path.exists(), (tmp_path / "a.previous").exists()) == (exists, previous)
    batches = nova.data.Batches(*make_arrays(), batch_size=7, seed=3)
    nova.fit(PlainStep(), batches, 3, checkpoint=path, every=2, progress="off")
    reference = tmp_path / "reference"
    batches.position = (0, 0)
    nova.fit(PlainStep(), batches, 3, checkpoint=reference, every=2, progress="off")
    assert path.read_bytes() == reference.read_bytes()
    assert sorted(os.listdir(tmp_path)) == [*("a", "a.previous", "reference", "reference.previous")]
