"""Attention of packed sequences, compared with torch and a block-diagonal bool mask in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from dropped_attention import CLOSE, SEED, TYPES
from op_philox import weight_factors

import nova
from nova.graph.autodiff import gradients


def segment_lengths(length: int, rng: np.random.Generator) -> list[int]:
    """Lengths of sequences, some of them empty, which fill `length` positions."""
    ends = np.sort(rng.integers(0, length + 1, max(2, length // 24)))
    return [int(n) for n in np.diff([0, *ends, length])]


def sample_ids(order: str, batch: int, length: int, seed: int = 0) -> np.ndarray:
    """Ids of the positions of each point of the batch.

    `order` is sorted, padded (ids below 1 at the end), or any (segments in pieces).
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(batch):
        lengths = segment_lengths(length, rng)
        ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        if order == "padded":
            ids[length - length // 5 :] = 0
        if order == "any":
            ids = rng.integers(-2, 3, length)
        rows.append(ids)
    return np.stack(rows).astype("i4")


def reference(
    arrays: list[np.ndarray], same: np.ndarray, causal: bool, mask: Any, dropout: float
) -> list[np.ndarray]:
    """The result and the gradients of q, k and v; `same` says which pairs share a segment."""
    q, k, v, g = (torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in arrays)
    visible = torch.from_numpy(same)
    if causal:
        visible = visible & torch.ones(visible.shape[-2:], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == bool:
        visible = visible & torch.from_numpy(mask)
    hidden = torch.zeros(visible.shape, dtype=torch.float64).masked_fill(~visible, -torch.inf)
    if mask is not None and mask.dtype != bool:
        hidden = hidden + torch.from_numpy(mask)
    if dropout:
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + hidden).softmax(-1)
        weights = torch.where(visible.any(-1, keepdim=True), weights, 0.0)
        factors = weight_factors(SEED, tuple(weights.shape), dropout)
        out = (weights * torch.from_numpy(factors)) @ v
    else:
        # Rows without a visible key are zeros in torch, too.
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
    return [t.detach().numpy() for t in (out, *torch.autograd.grad(out, (q, k, v), g))]


def check_segments(
    type_: str,
    batch: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    ids: tuple[np.ndarray, np.ndarray],
    *,
    causal: bool = False,
    mask: Any = None,
    dropout: float = 0.0,
    target: str = "cpu",
    shared: tuple[int, ...] | None = None,
    launch: str | None = None,
) -> Any:
    """Compare the kernels of an attention and its gradients; `shared` is the batch of k and v.

    `ids` are those of q and k: (first axis of the batch, length).
    """
    i, j, e, f = sizes
    rng = np.random.default_rng(i + j)
    few = batch if shared is None else shared
    shapes = [(*batch, i, e), (*few, j, e), (*few, j, f), (*batch, i, f)]
    arrays = [rng.standard_normal(shape).astype(TYPES[type_]) for shape in shapes]
    q, k, v, g = (nova.tensor(a) for a in arrays)
    others: list[Any] = [nova.tensor(np.array(0)), *map(nova.tensor, ids)]
    arguments = [*arrays, np.array(SEED), *ids]
    options: dict[str, Any] = {"causal": causal, "segment_ids": tuple(others[1:])}
    if dropout:
        options |= {"dropout": dropout, "seed": others[0]}
    if mask is not None:
        options["mask"] = nova.tensor(mask)
        others.append(options["mask"])
        arguments.append(mask)
    out = nova.attention(q, k, v, **options)
    outputs = [out, *gradients(out, [q, k, v], g)]
    settings: dict[str, Any] = {"run_mode": "sim" if target.startswith("cuda") else "native"}
    if launch is not None:
        settings["launch"] = launch
    program = nova.compile(outputs, inputs=[q, k, v, g, *others], target=target, **settings)
    suffix = "_dropout" * bool(dropout) + "_point"
    for name in ("attend", "attend_gradient"):
        assert f"nova.{name}_segments{suffix}" in program.stages["linalg"]
    same = ids[0][:, :, None] == ids[1][:, None, :]
    same = np.broadcast_to(
        same.reshape(same.shape[0], *(1,) * (len(batch) - 1), i, j), (*batch, i, j)
    )
    wanted = reference(arrays, same.copy(), causal, mask, dropout)
    for name, a, b in zip(("out", "q", "k", "v"), program.run(arguments), wanted, strict=True):
        scale = np.abs(b).max()
        actual = np.asarray(a, np.float64)
        np.testing.assert_allclose(
            actual / scale, b / scale, atol=CLOSE[type_], rtol=0, err_msg=name
        )
    return program
