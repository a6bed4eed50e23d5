"""Programs in jax, each with arguments: what `test_import_jax.py` translates and compares with jax.

They are grouped by what of the compiler they need: products, windows, gathers and scatters, loops,
random numbers, sorting, element types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...]]
_RNG = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("f4")


def ints(high: int, *shape: int) -> np.ndarray:
    return _RNG.integers(0, high, shape).astype("i4")


# --- training steps -------------------------------------------------------------------------------


def mlp_loss(params, x, y):
    h = jnp.tanh(x @ params["w1"] + params["b1"])
    h = jax.nn.relu(h @ params["w2"] + params["b2"])
    logits = h @ params["w3"] + params["b3"]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))


def sgd_step(params, x, y):
    loss, grads = jax.value_and_grad(mlp_loss)(params, x, y)
    return loss, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def adam_step(params, m, v, t, x, y):
    loss, grads = jax.value_and_grad(mlp_loss)(params, x, y)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

    def update(p, m, v):
        return p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)

    return loss, jax.tree.map(update, params, m, v), m, v, t


def mlp_params() -> dict[str, np.ndarray]:
    sizes = {"w1": (20, 32), "b1": (32,), "w2": (32, 32), "b2": (32,), "w3": (32, 10), "b3": (10,)}
    return {name: f(*shape) * np.float32(0.2) for name, shape in sizes.items()}


def batch() -> tuple[np.ndarray, np.ndarray]:
    return f(16, 20), np.eye(10, dtype="f4")[_RNG.integers(0, 10, 16)]


def zeros(tree: Any) -> Any:
    return jax.tree.map(np.zeros_like, tree)


def attention(x, wq, wk, wv, wo):
    batches, length, width = x.shape

    def heads(z):
        return z.reshape(batches, length, 4, width // 4).transpose(0, 2, 1, 3)

    q, k, v = heads(x @ wq), heads(x @ wk), heads(x @ wv)
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(width // 4)
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    mixed = jnp.einsum("bhts,bhsd->bhtd", weights, v)
    return mixed.transpose(0, 2, 1, 3).reshape(batches, length, width) @ wo


def layer_norm(x, g, b):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: lax.conv_general_dilated(x, w, **options)


NHWC = ("NHWC", "HWIO", "NHWC")
_P = mlp_params()
_BLOCK = (f(2, 8, 16), *(f(16, 16) * np.float32(0.2) for _ in range(4)))
POOL = {"window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1), "padding": "VALID"}

MODELS: dict[str, Program] = {
    "sgd": (sgd_step, (_P, *batch())),
    "adam": (adam_step, (_P, zeros(_P), zeros(_P), np.float32(0), *batch())),
    "attention": (attention, _BLOCK),
    "attention_grad": (jax.grad(lambda *a: (attention(*a) ** 2).sum(), argnums=(0, 1, 4)), _BLOCK),
    "layer_norm": (layer_norm, (f(8, 32), f(32), f(32))),
    "wide_layer": (lambda x, w, b: jax.nn.relu(x @ w + b), (f(64, 128), f(128, 256), f(256))),
}

PRODUCTS: dict[str, Program] = {
    "batch": (lambda x, w: x @ w, (f(4, 64, 32), f(4, 32, 64))),
    "einsum": (lambda a, b: jnp.einsum("ijk,kjl->li", a, b), (f(3, 4, 5), f(5, 4, 6))),
    "vectors": (lambda a, b, m: (a @ b, jnp.outer(a, b), m @ a), (f(6), f(6), f(5, 6))),
    "conv": (conv(window_strides=(1, 1), padding="SAME"), (f(2, 3, 10, 10), f(8, 3, 3, 3))),
    "conv_nhwc": (
        conv(window_strides=(2, 2), padding="VALID", dimension_numbers=NHWC),
        (f(2, 11, 11, 3), f(3, 3, 3, 8)),
    ),
    "conv_groups": (
        conv(window_strides=(1, 1), padding="SAME", feature_group_count=2),
        (f(2, 4, 8, 8), f(6, 2, 3, 3)),
    ),
    "conv_depthwise": (
        conv(window_strides=(1, 1), padding="SAME", feature_group_count=4, dimension_numbers=NHWC),
        (f(2, 8, 8, 4), f(3, 3, 1, 8)),
    ),
    "conv_1d": (
        conv(
            window_strides=(1,),
            padding=[(2, 0)],
            rhs_dilation=(2,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        ),
        (f(2, 12, 3), f(2, 3, 5)),
    ),
    "conv_transpose": (
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
        (f(2, 6, 6, 3), f(3, 3, 3, 5)),
    ),
    "conv_grad": (
        jax.grad(
            lambda x, w: (lax.conv_general_dilated(x, w, (2, 2), "SAME") ** 2).sum(),
            argnums=(0, 1),
        ),
        (f(2, 3, 9, 9), f(4, 3, 3, 3)),
    ),
}

MOVEMENT: dict[str, Program] = {
    "max_pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, **POOL), (f(2, 8, 8, 3),)),
    "max_pool_grad": (
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, **POOL) ** 2).sum()),
        (f(2, 8, 8, 3),),
    ),
    "sum_pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        (f(2, 9, 9, 3),),
    ),
    "take": (lambda t, i: jnp.take(t, i, axis=0), (f(50, 16), ints(50, 4, 7))),
    "gather": (lambda x, i, j: x[i, :, j], (f(5, 6, 7), ints(5, 3), ints(7, 3))),
    "take_along": (lambda x, i: jnp.take_along_axis(x, i, 1), (f(5, 6), ints(6, 5, 2))),
    "embedding_grad": (
        jax.grad(lambda t, i: (t[i] ** 2).sum()),
        (f(50, 16), ints(50, 4, 7)),
    ),
    "scatter": (
        lambda x, i, u: (x.at[i].add(u), x.at[i].max(u), x.at[:3, 1].mul(2.0)),
        (f(10, 3), ints(10, 6), f(6, 3)),
    ),
    "scatter_outside": (
        lambda x, i, u: x.at[i].set(u, mode="drop"),
        (f(10, 3), np.array([1, 40, -30, 7], "i4"), f(4, 3)),
    ),
    "scatter_batch": (
        jax.vmap(lambda x, i, u: x.at[i].add(u)),
        (f(4, 10), ints(10, 4, 3), f(4, 3)),
    ),
    "cumulative": (
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1)),
        (f(4, 17),),
    ),
    "argmax": (lambda x: (jnp.argmax(x, -1), jnp.argmin(x, 0)), (f(7, 19),)),
    "one_hot": (lambda i, x: jax.nn.one_hot(i, 10) + x, (ints(10, 6), f(10))),
    "iota": (lambda x: x + jnp.arange(12.0).reshape(3, 4), (f(3, 4),)),
    "dynamic_slice": (
        lambda x, i, j: (
            lax.dynamic_slice(x, (i, 0), (3, 4)),
            lax.dynamic_slice(x, (j, 1), (2, 2)),
        ),
        (f(9, 4), np.int32(4), np.int32(40)),
    ),
    "dynamic_update": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1)),
        (f(9, 4), f(2, 2), np.int32(4)),
    ),
    "slice_and_pad": (
        lambda x: jnp.pad(x[1:7:2, ::-1], ((1, 2), (0, 3)), constant_values=2.0),
        (f(9, 4),),
    ),
    "pad_inside": (lambda x: lax.pad(x, np.float32(0), ((-1, 2, 1), (0, -1, 0))), (f(5, 4),)),
    "join": (
        lambda x, y: (jnp.concatenate([x, y, x], 0), jnp.stack([x, x], 1), jnp.roll(x, 2, 0)),
        (f(5, 4), f(2, 4)),
    ),
    "results_twice": (lambda a, b: (b, a, a, jnp.ones(3)), (f(2), f(3))),
    "no_elements": (lambda a: (a + 1, a.sum(), a.sum(0)), (f(0, 3),)),
}

LOOPS: dict[str, Program] = {
    "scan_short": (
        lambda x: lax.scan(lambda c, a: (c * 0.9 + a, c), jnp.zeros(4), x),
        (f(6, 4),),
    ),
    "scan_long": (
        lambda x: lax.scan(lambda c, a: (c * 0.9 + a, c), jnp.zeros(4), x),
        (f(40, 4),),
    ),
    "rnn_grad": (
        jax.grad(
            lambda w, x: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), jnp.zeros((2, 4)), x)[
                0
            ].sum()
        ),
        (f(4, 4), f(20, 2, 4)),
    ),
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 5.0, lambda c: (c[0] + 1.0, c[1] * 2), (x, x)),
        (np.float32(0.5),),
    ),
    "fibonacci": (
        lambda n: lax.fori_loop(0, n, lambda i, ab: (ab[1], ab[0] + ab[1]), (0, 1)),
        (np.int32(10),),
    ),
    "large_state": (
        lambda x: lax.fori_loop(0, 20, lambda i, a: jnp.sin(a) + a[::-1] * 0.5, x),
        (f(200, 200),),
    ),
    "cond": (lambda p, x: lax.cond(p, lambda a: a * 2, lambda a: a + 1, x), (np.bool_(1), f(4))),
    "switch": (
        lambda i, x: lax.switch(i, [lambda a: a * 2, lambda a: a + 1, lambda a: a - 5], x),
        (np.int32(1), f(4)),
    ),
    "sort": (lambda x: (jnp.sort(x, -1), jnp.sort(x, 0), jnp.argsort(x, -1)), (f(5, 13),)),
    "sort_ties": (
        lambda x: (jnp.argsort(x, stable=True), -jnp.sort(-x)),
        (ints(4, 30),),
    ),
    "top_k": (lambda x: (*lax.top_k(x, 3), jnp.median(x)), (f(5, 8),)),
    "interp": (lambda x: jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2), (abs(f(7)),)),
}


def key(seed: Any) -> Any:
    return jax.random.wrap_key_data(lax.bitcast_convert_type(seed, jnp.uint32))


RANDOM: dict[str, Program] = {
    "uniform": (lambda k: jax.random.uniform(key(k), (4, 5)), (np.array([0, 7], "i4"),)),
    "normal": (lambda x: x * jax.random.normal(jax.random.key(3), (4, 5)), (f(4, 5),)),
    "dropout": (
        lambda x, s: jnp.where(jax.random.bernoulli(jax.random.key(s), 0.5, x.shape), x * 2, 0),
        (f(8, 16), np.int32(5)),
    ),
}


def half(x: np.ndarray, name: str) -> np.ndarray:
    return np.asarray(jnp.asarray(x).astype(name))


def _unary(*functions: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: [g(x) for g in functions]


_NUMBERS = _RNG.integers(-50, 50, (3, 4)).astype("i4")
_DIVISORS = _RNG.integers(1, 9, (3, 4)).astype("i4")
_BYTES = _RNG.integers(0, 255, (3, 4)).astype("u1")
_FLAGS = (_RNG.random((3, 4)) > 0.5, _RNG.random((3, 4)) > 0.5)

NUMBERS: dict[str, Program] = {
    "bf16": (
        lambda x, w: (jax.nn.gelu(x @ w), jax.nn.softmax(x), x.max(0)),
        (half(f(16, 32), "bfloat16"), half(f(32, 16), "bfloat16")),
    ),
    "bf16_to_f32": (
        lambda x, w: lax.dot(x, w, preferred_element_type=jnp.float32),
        (half(f(16, 32), "bfloat16"), half(f(32, 16), "bfloat16")),
    ),
    "f16": (
        lambda x, w: jax.nn.gelu(x @ w),
        (half(f(16, 32), "float16"), half(f(32, 16), "float16")),
    ),
    "bool": (
        lambda a, b: (a & b, a | ~b, jnp.any(a, 0), jnp.all(b), a ^ b, a.sum()),
        _FLAGS,
    ),
    "u8": (
        lambda a: (a.astype("f4") / 255, a // 3, a >> 1, a.max(), (a.astype("i4") * 2).sum(0)),
        (_BYTES,),
    ),
    "i8_product": (
        lambda a, b: (a @ b, lax.dot(a, b, preferred_element_type=jnp.int32)),
        (_NUMBERS.astype("i1"), _NUMBERS.T.astype("i1")),
    ),
    "i16_inside": (
        lambda a: (jnp.array([3, -7, 300, 4, 5], "i2")[::-1] * (a * 100).astype("i2")).astype("f4"),
        (f(5),),
    ),
    "integers": (
        lambda a, b: (a // b, a % b, a & b, a ^ b, a << 2, a >> 1, jnp.sign(a), abs(a), a * b),
        (_NUMBERS, _DIVISORS),
    ),
    "bits": (
        lambda a: (
            lax.population_count(a),
            lax.clz(a),
            lax.bitcast_convert_type(a, jnp.uint8),
            lax.bitcast_convert_type(a, jnp.float32),
        ),
        (_NUMBERS,),
    ),
    "functions": (
        _unary(
            *(jnp.exp, jnp.expm1, jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.sinh, jnp.cosh),
            *(jnp.arctan, lax.erf, lax.erfc, jnp.cbrt, jax.nn.sigmoid, jnp.floor, jnp.ceil),
            *(jnp.round, lax.round, jnp.sign, jnp.isfinite, jnp.abs, jnp.arcsinh),
        ),
        (f(3, 4),),
    ),
    "positive_functions": (
        _unary(jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.log2, lax.lgamma, lax.digamma),
        (abs(f(3, 4)) + np.float32(0.1),),
    ),
    "bounded_functions": (
        _unary(jnp.arcsin, jnp.arccos, jnp.arctanh, lax.erf_inv),
        (np.tanh(f(3, 4)),),
    ),
    "two_operands": (
        lambda x, y: (jnp.power(abs(x), y), jnp.arctan2(x, y), jnp.mod(x, y), lax.rem(x, y)),
        (f(3, 4), f(3, 4)),
    ),
    "rounding": (
        lambda x: (lax.reduce_precision(x, 8, 7), jnp.clip(x, -0.5, 0.5), jnp.nextafter(x, x + 1)),
        (f(3, 4),),
    ),
}

PROGRAMS = MODELS | PRODUCTS | MOVEMENT | LOOPS | RANDOM | NUMBERS
