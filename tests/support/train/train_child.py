"""A training run in a process of its own, for the tests that kill it.

`train_child.py CHECKPOINT plain|compiled [FUNCTION NUMBER]` says "ready" right before it calls
`fit`. With a function of `os`, it kills itself at the call of that number, before it is done.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from plain_step import PlainStep, make_arrays

import nova
import nova.data


def compiled_step():
    nova.nn.manual_seed(0)
    model = nova.nn.Sequential(
        nova.nn.Linear(6, 16), nova.nn.Tanh(), nova.nn.Dropout(0.1), nova.nn.Linear(16, 1)
    )
    rate = nova.optim.CosineAnnealing(0.01, 1500)
    optimizer = nova.optim.AdamW(model.named_parameters(), lr=rate)
    return nova.train_step(model, lambda m, x, y: ((m(x) - y) ** 2).mean(), optimizer)


def kill_at(function: str, number: int) -> None:
    """Replace `os.<function>` by one that ends this process at its call of that number."""
    original, calls = getattr(os, function), 0

    def counted(*args, **options):
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(os, function, counted)


def main(path: str, kind: str, *kill: str) -> None:
    nova.data._WORTH_A_THREAD = 0
    if kind == "plain":
        step, arrays = PlainStep(), make_arrays()
        batches = nova.data.Batches(*arrays, batch_size=7, seed=3)
        epochs, every = 3, 2
    else:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((500, 6)).astype("f4")
        step = compiled_step()
        batches = nova.data.Batches(x, x.sum(1, keepdims=True), batch_size=16, drop_last=False)
        epochs, every = 50, 5
        # The programs of a whole batch and of the last one: kills are to fall into the training.
        for rows in (16, 500 % 16):
            step.lower(x[:rows], x[:rows, :1])
    if kill:
        kill_at(kill[0], int(kill[1]))
    print("ready", flush=True)
    nova.fit(step, batches, epochs, checkpoint=path, every=every, progress="off")
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
