"""Writes the program that descriptors.c calls: relu(x @ w + b).

python examples/c/layer.py layer.nova
"""

from __future__ import annotations

import sys

import numpy as np

import nova


def main(path: str) -> None:
    x = nova.tensor(np.zeros((2, 3), np.float32), name="x")
    w = nova.tensor(np.zeros((3, 2), np.float32), name="w")
    b = nova.tensor(np.zeros(2, np.float32), name="b")
    nova.compile(nova.relu(x @ w + b), inputs=[x, w, b]).save(path)


if __name__ == "__main__":
    main(sys.argv[1])
