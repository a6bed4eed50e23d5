"""A step in numpy, with the interface of a compiled one: for tests of everything around it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class PlainStep:
    """Least squares by gradient descent with momentum; its arrays are changed in place."""

    def __init__(self, width: int = 3):
        self.weight = np.zeros(width)
        self.speed = np.zeros(width)
        self.count = np.array(0, np.int64)
        self.seen: list[tuple[np.ndarray, ...]] = []

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        error = x @ self.weight - y
        self.speed *= 0.9
        self.speed += x.T @ error / len(x)
        self.weight -= 0.01 * self.speed
        self.count += 1
        self.seen.append((x.copy(), y.copy()))
        return np.array((error**2).mean())

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"weight": self.weight, "speed": self.speed, "count": self.count}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        for name, array in self.state_dict().items():
            array[...] = state[name]

    def bits(self) -> bytes:
        return b"".join(a.tobytes() for a in self.state_dict().values())


def make_arrays(rows: int = 40, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, width))
    return x, x @ np.arange(1.0, width + 1)
