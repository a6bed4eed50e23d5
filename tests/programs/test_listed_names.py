"""The names that real models use: each exists, and a call of it runs.

A list of the ops, layers, optimizers, schedules and transforms that a person who knows torch or jax
looks for. What they compute is compared with torch and jax in the tests of their folders.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova

RNG = np.random.default_rng(2)
V, M, S = (RNG.standard_normal(s).astype("f4") for s in ((6,), (3, 4), (4, 4)))
SPD = S @ S.T + 4 * np.eye(4, dtype="f4")
IMAGE, VOLUME, ROWS = (
    RNG.standard_normal(s).astype("f4") for s in ((1, 4, 6, 6), (1, 4, 4, 4, 4), (1, 4, 8))
)
I3 = np.array([2, 0, 1])
FLAT = {1: ROWS, 2: IMAGE, 3: VOLUME}


def kernel(rank: int) -> np.ndarray:
    return np.ones((4, 4, *(3,) * rank), "f4")


CALLS: dict[str, Callable[[], Any]] = {
    **{f"conv{r}d": lambda r=r: getattr(nova, f"conv{r}d")(FLAT[r], kernel(r)) for r in FLAT},
    **{
        f"conv_transpose{r}d": lambda r=r: getattr(nova, f"conv_transpose{r}d")(FLAT[r], kernel(r))
        for r in FLAT
    },
    **{
        f"{name}{r}d": lambda name=name, r=r: getattr(nova, f"{name}{r}d")(FLAT[r], 2)
        for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
        for r in FLAT
    },
    **{
        f"max_unpool{r}d": lambda r=r: getattr(nova, f"max_unpool{r}d")(
            *getattr(nova, f"max_pool{r}d")(FLAT[r], 2, return_indices=True), 2
        )
        for r in FLAT
    },
    "unfold": lambda: nova.unfold(IMAGE, 2),
    "fold": lambda: nova.fold(nova.unfold(IMAGE, 2, stride=2), (6, 6), 2, stride=2),
    "interpolate": lambda: nova.interpolate(IMAGE, scale_factor=2, mode="bicubic"),
    "grid_sample": lambda: nova.grid_sample(IMAGE, np.zeros((1, 2, 2, 2), "f4")),
    "pixel_shuffle": lambda: nova.pixel_shuffle(IMAGE, 2),
    "batch_norm": lambda: nova.batch_norm(IMAGE, training=True),
    "group_norm": lambda: nova.group_norm(IMAGE, 2),
    "instance_norm": lambda: nova.instance_norm(IMAGE),
    **{
        name: lambda name=name: getattr(nova, name)(M)
        for name in (
            *("glu", "hardswish", "hardsigmoid", "relu6", "hardtanh", "logsigmoid", "selu"),
            *("celu", "softsign", "normalize", "erfc", "erfinv", "lgamma", "digamma"),
            *(
                "nan_to_num",
                "matrix_trace",
                "diag",
                "norm",
                "median",
                "cumsum",
                "cumprod",
                "cummax",
            ),
            *("logcumsumexp", "sort", "argsort", "bitwise_not", "unbind", "isnan"),
        )
        if name not in ("cumsum", "cumprod", "cummax", "logcumsumexp", "bitwise_not", "median")
    },
    **{
        name: lambda name=name: getattr(nova, name)(M, axis=1)
        for name in ("cumsum", "cumprod", "cummax", "logcumsumexp", "median")
    },
    "prelu": lambda: nova.prelu(M, np.float32(0.2)),
    "cosine_similarity": lambda: nova.cosine_similarity(M, M),
    "cdist": lambda: nova.cdist(M, M),
    "huber_loss": lambda: nova.huber_loss(M, M),
    "ctc_loss": lambda: nova.ctc_loss(nova.log_softmax(ROWS[0], axis=1), I3[:2] + 1, 4, 2),
    "triplet_margin_loss": lambda: nova.triplet_margin_loss(M, M, M),
    "cosine_embedding_loss": lambda: nova.cosine_embedding_loss(M, M, np.ones(3, "f4")),
    "einsum": lambda: nova.einsum("ij,ij->i", M, M),
    "tensordot": lambda: nova.tensordot(M, M.T, 1),
    "kron": lambda: nova.kron(M, M),
    "cross": lambda: nova.cross(V[:3], V[3:]),
    "topk": lambda: nova.topk(V, 2),
    "kthvalue": lambda: nova.kthvalue(V, 2),
    "quantile": lambda: nova.quantile(V, 0.5),
    "searchsorted": lambda: nova.searchsorted(np.sort(V), V),
    "bincount": lambda: nova.bincount(I3, 4),
    "histogram": lambda: nova.histogram(V, 4, (-1.0, 1.0)),
    "unique": lambda: nova.unique(I3, 3),
    "scatter": lambda: nova.scatter(V, I3, V[:3], axis=0),
    **{
        f"scatter_{how}": lambda how=how: getattr(nova, f"scatter_{how}")(V, I3, V[:3], axis=0)
        for how in ("add", "min", "max")
    },
    "scatter_reduce": lambda: nova.scatter_reduce(V, 0, I3, V[:3], "mean"),
    "segment_sum": lambda: nova.segment_sum(M, I3, 3),
    "index_put": lambda: nova.index_put(V, (I3,), V[:3]),
    "repeat": lambda: nova.repeat(V, 2),
    "repeat_interleave": lambda: nova.repeat_interleave(V, 2),
    "tile": lambda: nova.tile(V, (2,)),
    "chunk": lambda: nova.chunk(V, 2),
    "movedim": lambda: nova.movedim(M, 0, 1),
    "meshgrid": lambda: nova.meshgrid(V, V),
    "linspace": lambda: nova.linspace(0.0, 1.0, 3),
    "nonzero": lambda: nova.nonzero(I3, 3),
    "masked_select": lambda: nova.masked_select(V, V > 0, 6),
    **{
        f"bitwise_{name}": lambda name=name: getattr(nova, f"bitwise_{name}")(I3, I3)
        for name in ("and", "or", "xor", "left_shift", "right_shift")
    },
    "isclose": lambda: nova.isclose(V, V),
    **{
        f"fft.{name}": lambda name=name: getattr(nova.fft, name)(V)
        for name in ("fft", "ifft", "rfft", "irfft")
    },
    **{
        f"linalg.{name}": lambda name=name: getattr(nova.linalg, name)(SPD)
        for name in ("cholesky", "inv", "det", "qr", "eigh", "svd")
    },
    "linalg.solve": lambda: nova.linalg.solve(SPD, S),
    "linalg.solve_triangular": lambda: nova.linalg.solve_triangular(SPD, S, upper=True),
    **{name: lambda name=name: getattr(nova, name)(1, (3,)) for name in ("rand", "randn")},
    "randint": lambda: nova.randint(1, 0, 4, (3,)),
    "bernoulli": lambda: nova.bernoulli(np.full(3, 0.5, "f4"), 1),
    "categorical": lambda: nova.categorical(M, 1),
    "multinomial": lambda: nova.multinomial(np.abs(V), 1, 2),
    "permutation": lambda: nova.permutation(1, 4),
    "cat": lambda: nova.cat([V, V], dim=0),
    "vmap": lambda: nova.vmap(lambda x: x.sum())(M),
    "jvp": lambda: nova.jvp(nova.sin, (V,), (V,)),
    "jacfwd": lambda: nova.jacfwd(nova.sin)(V),
    "jacrev": lambda: nova.jacrev(nova.sin)(V),
    "hessian": lambda: nova.hessian(lambda x: (x**3).sum())(V),
    "linearize": lambda: nova.linearize(nova.sin, V)[1](V),
    "checkpoint": lambda: nova.checkpoint(nova.sin, policy=nova.checkpoint_policies.dots_saveable)(
        nova.tensor(V)
    ),
    "custom_op": lambda: nova.custom_op(lambda x: x + 1.0)(V),
    "float": lambda: nova.tensor(I3).float(),
    "view": lambda: nova.tensor(M).view(4, 3),
    "masked_fill": lambda: nova.tensor(M).masked_fill(M > 0, 1.0),
}
"""Name under `nova` (or of a method) -> a call of it."""

LAYERS = (
    *(f"Conv{r}d ConvTranspose{r}d BatchNorm{r}d InstanceNorm{r}d MaxPool{r}d" for r in (1, 2, 3)),
    *(f"AvgPool{r}d AdaptiveAvgPool{r}d MaxUnpool{r}d LazyConv{r}d" for r in (1, 2, 3)),
    "LayerNorm GroupNorm RMSNorm RNN LSTM GRU RNNCell LSTMCell GRUCell LazyLinear CTCLoss",
    "TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder",
    "Transformer MultiheadAttention CrossEntropyLoss TripletMarginLoss HuberLoss Identity Flatten",
    "ModuleDict ModuleList ParameterList ParameterDict Sequential Embedding Dropout PReLU",
)
OPTIMIZERS = "RMSprop Adagrad Adamax NAdam RAdam Adafactor Lion Muon LBFGS Adam AdamW SGD"
SCHEDULES = "OneCycleLR CosineAnnealingWarmRestarts PolynomialLR CyclicLR ReduceLROnPlateau"
DTYPES = "i16 u16 u32 u64 complex64 complex128"


def arrays_of(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple | list):
        return [array for item in value for array in arrays_of(item)]
    return [value.numpy() if isinstance(value, nova.Tensor) else np.asarray(value)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_call_runs(name: str) -> None:
    for array in arrays_of(CALLS[name]()):
        assert array.dtype.kind not in "fc" or not np.isnan(array).any()


def test_calls_build_graphs() -> None:
    """Every call is accepted; that it runs is a test of its own in `make nightly`."""
    wrong = {}
    for name, call in CALLS.items():
        try:
            call()
        except Exception as error:  # all of them are reported together
            wrong[name] = repr(error)
    assert not wrong


def test_summary_of_a_module() -> None:
    model = nova.nn.Sequential(nova.nn.Linear(4, 2), nova.nn.ReLU(), nova.nn.BatchNorm1d(2))
    text = model.summary()
    assert "0       Linear       weight [2, 4], bias [2]" in text
    assert text.endswith("19 numbers, 14 trained") and "ReLU" not in text


def test_classes_and_options_exist() -> None:
    missing = [f"nn.{n}" for n in " ".join(LAYERS).split() if not hasattr(nova.nn, n)]
    missing += [
        f"optim.{n}" for n in f"{OPTIMIZERS} {SCHEDULES}".split() if not hasattr(nova.optim, n)
    ]
    missing += [n for n in DTYPES.split() if not hasattr(nova, n)]
    methods = ["register_buffer", "state_dict", "apply", "to", "summary", "register_forward_hook"]
    missing += [f"Module.{n}" for n in methods if not hasattr(nova.nn.Module, n)]
    step = inspect.signature(nova.train_step).parameters
    missing += [f"train_step({n})" for n in ("has_aux", "grad_norm") if n not in step]
    fit = inspect.signature(nova.fit).parameters
    missing += [
        f"fit({n})" for n in ("validation", "on_step", "on_epoch", "loggers") if n not in fit
    ]
    missing += [
        f"train.{n}"
        for n in ("TensorBoardLogger", "CSVLogger", "EarlyStopping")
        if not hasattr(nova.train, n)
    ]
    assert not missing
