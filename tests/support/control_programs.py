"""Programs with loops and branches, for `nova` and for `jax.lax`, whose signatures are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nova

Program = Callable[..., Any]
RNG = np.random.default_rng(7)
X = RNG.normal(size=4).astype(np.float32)
XS = RNG.normal(size=(5, 4)).astype(np.float32)
W = (RNG.normal(size=(4, 4)) / 2).astype(np.float32)


def rows(f: Any, tanh: Any, x: Any, xs: Any, w: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        new = tanh(carry @ w + row)
        return new, (new * row).sum()

    last, ys = f.scan(body, x, xs)
    return (last * last).sum() + (ys * ys).sum()


def backwards(f: Any, tanh: Any, x: Any, xs: Any, w: Any) -> Any:
    """Matrices as carries, a dict of results, from the last row to the first."""

    def body(carry: Any, row: Any) -> Any:
        new = tanh(carry["h"] @ w + row)
        return {"h": new, "n": carry["n"] + 1}, {"y": new, "z": row * 2}

    init = {"h": xs[:3], "n": 0}
    last, ys = f.scan(body, init, xs.reshape(5, 1, 4), reverse=True)
    return (last["h"] * last["h"]).sum() + (ys["y"] * ys["y"] * ys["z"]).sum()


def branches(f: Any, tanh: Any, x: Any, xs: Any, w: Any) -> Any:
    a = f.cond(x.sum() > 0, lambda: tanh(x @ w), lambda: x * xs[0])
    b = f.switch(2, [lambda v: v, lambda v: v + 1, lambda v: v * v * a], a)
    return f.cond(b.sum() > 100, lambda v, u: v * u, lambda v, u: v - tanh(u), a, b).sum()


def nested(f: Any, tanh: Any, x: Any, xs: Any, w: Any) -> Any:
    def inner(v: Any) -> Any:
        return f.fori_loop(0, 3, lambda j, u: tanh(u * x + v) + j * 0.1, v @ w)

    def outer(i: Any, v: Any) -> Any:
        return f.cond(i % 2 == 0, inner, lambda u: u * xs[0], v)

    return f.fori_loop(2, 6, outer, x).sum()


PROGRAMS = [rows, backwards, branches, nested]


def as_nova(program: Program) -> Program:
    return lambda *args: program(nova, nova.tanh, *args)


def as_jax(program: Program) -> Program:
    import jax  # tests of other parts do without it

    return lambda *args: program(jax.lax, jax.numpy.tanh, *args)


def random_program(seed: int) -> Program:
    """Nested loops and branches over a vector and a matrix."""

    def expression(rng: np.random.Generator, depth: int, v: Any, w: Any) -> Any:
        choice = int(rng.integers(8 if depth else 3))
        a, b = float(rng.normal()), int(rng.integers(1, 5))
        if choice < 3:
            return [nova.tanh(v * a), nova.tanh(v @ w) + a, nova.sin(v + a)][choice]

        def deeper(u: Any) -> Any:
            return expression(rng, depth - 1, u, w)

        if choice < 5:
            return nova.cond(v.sum() > a, deeper, lambda u: deeper(u * a), v)
        if choice == 5:
            return nova.fori_loop(0, b + 1, lambda i, u: deeper(u + i * 0.1), v)
        if choice == 6:
            rows = nova.stack([v, v * 0.5, v + 1.0])
            last, ys = nova.scan(lambda c, r: (deeper(c + r), c * r), v, rows, reverse=bool(b % 2))
            return last + ys.sum(axis=0) * 0.1

        def advance(state: Any) -> Any:
            return state[0] + 1, deeper(state[1])

        return nova.while_loop(lambda s: s[0] < b, advance, (0, v))[1]

    return lambda v, w: expression(np.random.default_rng(seed), 3, v, w)


def moving_cases(lib: Any, np_: Any) -> dict[str, Any]:
    """Regions that only move values: carried, constant, or from outside."""
    three = np.full(3, 3, "f4")
    return {
        "shift": lambda a, b: lib.scan(lambda c, s: (s, c), a[0], a),
        "same": lambda a, b: lib.scan(lambda c, s: (c, c), a[0], a),
        "reverse": lambda a, b: lib.scan(lambda c, s: (s, c), a[0], a, reverse=True),
        "constant row": lambda a, b: lib.scan(lambda c, s: (c, np_.asarray(three) * 1), a[0], a),
        "outer carry": lambda a, b: lib.scan(lambda c, s: (b, c), a[0], a),
        "outer row": lambda a, b: lib.scan(lambda c, s: (c + s, b), b, a),
        "invariant row": lambda a, b: lib.scan(lambda c, s: (c + s, b * 2), b, a),
        "swap": lambda a, b: lib.scan(lambda c, _: ((c[1], c[0]), c[0]), (a[1], b), None, length=3),
        "choice": lambda a, b: lib.cond(a.sum() > 0, lambda: (a[0], b), lambda: (b, a[0])),
        "numbers": lambda a, b: lib.cond(
            a.sum() > 0, lambda: (np.float32(1), b), lambda: (np.float32(2), -b)
        ),
        "masked step": lambda a, b: lib.fori_loop(
            0, 4, lambda i, h: lib.cond(i < 2, lambda n: n, lambda n: h, np_.tanh(h + b)), b
        ),
        "outer in while": lambda a, b: lib.while_loop(
            lambda v: v[1].sum() < 3, lambda v: (b, v[1] + 1), (a[0], np.zeros(1, "f4"))
        ),
    }


class Asarray:
    """`np_.asarray` of a region in Nova: a tensor."""

    tanh = staticmethod(nova.tanh)
    asarray = staticmethod(nova.tensor)
