"""Programs in jax, each with arguments, by the feature of StableHLO that they need.

`test_import_jax_features.py` translates them and compares the results with those of jax. They run
with 64-bit types (`jax.enable_x64`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax_programs import Program, f

_RNG = np.random.default_rng(1)
INTEGERS = ("int16", "uint16", "uint32", "uint64")


def every(name: str, *shape: int) -> np.ndarray:
    """Integers from all of the type's range."""
    limits = np.iinfo(name)
    return _RNG.integers(limits.min, limits.max, shape, dtype=name, endpoint=True)


def window(combine: Any, start: float, size: int, stride: int, padding: str = "VALID") -> Any:
    dims, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lambda x: lax.reduce_window(x, np.float32(start), combine, dims, strides, padding)


def conv(stride: int, **options: Any) -> Any:
    return lambda x, w: lax.conv_general_dilated(x, w, (stride,) * (x.ndim - 2), "VALID", **options)


# One result along an axis, and input that no window reads.
SINGLE_WINDOWS: dict[str, Program] = {
    "max_pool": (window(lax.max, -np.inf, 4, 4), (f(1, 7, 7, 3),)),
    "max_pool_overlapping": (window(lax.max, -np.inf, 3, 2), (f(1, 4, 4, 1),)),
    "sum_pool": (window(lax.add, 0, 4, 4), (f(2, 7, 7, 3),)),
    "window_of_one": (window(lax.max, -np.inf, 1, 4), (f(1, 4, 4, 3),)),
    "conv_2d": (conv(4), (f(1, 3, 7, 7), f(8, 3, 4, 4))),
    "conv_bf16": (
        conv(1),
        (f(1, 3, 9, 9).astype(jnp.bfloat16), f(3, 3, 4, 5).astype(jnp.bfloat16)),
    ),
    "conv_1d": (conv(2), (f(1, 3, 4), f(2, 3, 3))),
    "conv_dilated": (conv(3, rhs_dilation=(2, 2)), (f(1, 3, 6, 6), f(2, 3, 3, 3))),
}

_CASTS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", jnp.bfloat16)


def arithmetic(a: Any, b: Any) -> Any:
    return a + b, a * b, a // b, a % b, a < b, jnp.maximum(a, b), a ^ b, a >> 3, a.sum(), a.argmax()


def scattered(a: Any, b: Any, at: Any) -> Any:
    return a.at[at].add(b), a.at[at[::-1]].max(b), a.at[jnp.array([1, 5, 2])].set(b)


NARROW_AND_UNSIGNED: dict[str, Program] = {
    **{
        f"arithmetic_{t}": (arithmetic, (every(t, 9), np.maximum(every(t, 9), 1).astype(t)))
        for t in INTEGERS
    },
    **{f"cast_{t}": (lambda a: [a.astype(c) for c in _CASTS], (every(t, 9),)) for t in INTEGERS},
    **{
        f"from_float_{t}": (lambda x, t=t: x.astype(t), (np.abs(f(9)) * np.float32(100),))
        for t in INTEGERS
    },
    **{
        f"sort_{t}": (lambda a: (jnp.sort(a), jnp.argsort(a), lax.top_k(a, 3)), (every(t, 33),))
        for t in INTEGERS
    },
    **{
        f"scatter_{t}": (scattered, (every(t, 9), every(t, 3), np.array([1, 5, 1], "u1")))
        for t in INTEGERS
    },
    "large_constant": (
        lambda a: a + np.arange(2**63 - 4096, 2**63 + 4096, dtype="u8"),
        (every("uint64", 8192),),
    ),
    "key": (lambda k: (jax.random.normal(k, (4,)), jax.random.split(k)), (jax.random.PRNGKey(3),)),
    "dropout": (
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, x.shape), x * 2, 0),
        (jax.random.PRNGKey(3), f(8, 4)),
    ),
    "philox": (
        lambda k: lax.rng_bit_generator(
            k, (9,), dtype="uint32", algorithm=lax.RandomAlgorithm.RNG_PHILOX
        ),
        (np.arange(2, dtype="u8"),),
    ),
    "bits": (
        lambda x: (lax.bitcast_convert_type(x, jnp.uint32), lax.bitcast_convert_type(x, "uint16")),
        (f(5),),
    ),
    "count_bits": (lambda x: (lax.clz(x), lax.population_count(x)), (every("uint32", 5),)),
}


def pooled_gradient(size: int, stride: int, padding: str) -> Any:
    pool = window(lax.max, -np.inf, size, stride, padding)
    return jax.grad(lambda x: (pool(x) ** 2).sum())


def product(preset: Any, **options: Any) -> Any:
    dims = (((1,), (0,)), ((), ()))
    return lambda a, b: lax.dot_general(a, b, dims, precision=preset, **options)


_MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
_SHARDING = jax.sharding.NamedSharding(_MESH, jax.sharding.PartitionSpec("x"))


def collectives(a: Any) -> Any:
    return (
        lax.psum(a, "x"),
        lax.all_gather(a, "x"),
        lax.ppermute(a, "x", [(0, 0)]),
        lax.all_to_all(a[None], "x", 0, 0),
        lax.psum_scatter(a, "x", tiled=True),
        lax.axis_index("x"),
    )


_WHOLE = jax.sharding.PartitionSpec()
_BF16 = (f(4, 5).astype(jnp.bfloat16), f(5, 6).astype(jnp.bfloat16))
STEPS_OF_MODELS: dict[str, Program] = {
    "checkpoint": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), (f(8),)),
    "pool_gradient": (pooled_gradient(3, 2, "SAME"), (f(2, 7, 7, 3),)),
    "pool_gradient_valid": (pooled_gradient(2, 3, "VALID"), (f(1, 8, 8, 2),)),
    # Equal elements: the first one of a window gets the gradient.
    "pool_gradient_ties": (pooled_gradient(3, 1, "VALID"), (np.ones((1, 5, 5, 1), "f4"),)),
    "bf16_products_in_f32": (
        product(lax.DotAlgorithmPreset.BF16_BF16_F32, preferred_element_type=jnp.float32),
        _BF16,
    ),
    "f32_products": (product(lax.DotAlgorithmPreset.F32_F32_F32), (f(4, 5), f(5, 6))),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x), (f(9),)),
    "reduce_nothing": (lambda x: lax.reduce(x, np.float32(1), lax.add, ()), (f(3, 4),)),
    "f64_to_half": (
        lambda x: (x.astype(jnp.bfloat16), x.astype("f2")),
        (_RNG.standard_normal(9),),
    ),
    "half_to_f64": (lambda x, y: (x.astype("f8"), y.astype("f8")), (_BF16[0], f(3).astype("f2"))),
    "sharded": (lambda a: lax.with_sharding_constraint(a * 2, _SHARDING) + 1, (f(4, 2),)),
    "collectives_of_one": (
        jax.shard_map(
            collectives,
            mesh=_MESH,
            in_specs=_WHOLE,
            out_specs=_WHOLE,
            check_vma=False,
        ),
        (f(4, 2),),
    ),
    "reduce_precision": (
        lambda x: (lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7)),
        (f(9),),
    ),
    "approximate_top_k": (
        lambda x: (lax.approx_max_k(x, 3), lax.approx_min_k(x, 2, reduction_dimension=0)),
        (f(6, 20),),
    ),
    "composite": (lax.composite(lambda x: x * jax.nn.sigmoid(x), "my.silu"), (f(9),)),
}


def scans(x: Any) -> Any:
    axes = range(x.ndim)
    forward = [scan(x, a) for a in axes for scan in (lax.cumsum, lax.cumprod, lax.cummax)]
    return forward, [lax.cumsum(x, a, reverse=True) for a in axes], lax.cumlogsumexp(x, 0)


SCANS: dict[str, Program] = {
    "scan_1d": (scans, (f(300),)),
    "scan_3d": (scans, (f(3, 40, 5),)),
    "scan_one": (scans, (f(1, 3),)),
    "scan_unsigned": (lambda x: (lax.cumsum(x), lax.cummin(x)), (every("uint32", 40),)),
    # In bf16, a sum of ones would stop at 256.
    "scan_bf16": (lambda x: jnp.cumsum(x), (np.ones(2000, jnp.bfloat16),)),
    "scan_gradient": (jax.grad(lambda x: (lax.cumsum(x, 1) ** 2).sum()), (f(3, 20),)),
}

FEATURES: dict[str, Program] = {
    **SINGLE_WINDOWS,
    **NARROW_AND_UNSIGNED,
    **STEPS_OF_MODELS,
    **SCANS,
}
# Those that run on a device, too: one of each lowering.
ON_DEVICE = ("max_pool", "conv_1d", "cast_uint32", "sort_uint16", "scatter_uint64", "key")
ON_DEVICE += ("pool_gradient", "f64_to_half", "half_to_f64", "scan_3d")
