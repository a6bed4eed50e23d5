"""Attention on a Hopper GPU, compared with torch's backends (flash, cuDNN), in one process.

    python benchmarks/gpu/attention.py check             # correctness of many shapes
    python benchmarks/gpu/attention.py time [--choices auto,mma,wgmma-128x128]

`time` prints two lines per shape, forward and with gradients: microseconds of a run in the queue,
and TFLOP/s of the two (forward) or seven matmuls, of which a causal attention computes half.
`--choices` are values of the knob `gpu_attention`. Data is random; contenders take turns; the times
are medians over rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import nova
from benchmarks.gpu.wgmma import measure


@dataclass(frozen=True)
class Case:
    """Queries (batch, heads, rows, features), of which `key_heads` share keys and values."""

    batch: int
    heads: int
    rows: int
    features: int
    causal: bool = True
    keys: int = 0
    key_heads: int = 0
    element: str = "bf16"
    dropout: float = 0.0
    sequences: int = 0
    """Sequences of different lengths that are packed into the rows of a batch; 0: not packed."""

    @property
    def name(self) -> str:
        sizes = f"{self.batch}x{self.heads} heads {self.rows}x{self.features}"
        keys = f" of {self.keys} keys" if self.keys else ""
        grouped = f" of {self.key_heads} key heads" if self.key_heads else ""
        packed = f" {self.sequences} packed sequences" if self.sequences else ""
        dropped = f" dropout {self.dropout}" if self.dropout else ""
        causal = " causal" if self.causal else ""
        return f"{sizes}{keys}{grouped}{causal}{packed}{dropped} {self.element}"

    @property
    def matmul_flops(self) -> float:
        keys = self.keys or self.rows
        scores = self.rows * keys
        if self.sequences:
            scores = sum(length**2 for length in self.lengths)
        flops = 2.0 * self.batch * self.heads * scores * self.features
        return flops / 2 if self.causal else flops

    @property
    def lengths(self) -> list[int]:
        """Of the packed sequences: about 1 : 2 : ... : `sequences`, the same in each batch."""
        total = self.sequences * (self.sequences + 1) // 2
        ends = [self.rows * n * (n + 1) // 2 // total for n in range(self.sequences + 1)]
        return [high - low for low, high in pairwise(ends)]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of q, k, v and the gradient of the result."""
        keys, key_heads = self.keys or self.rows, self.key_heads or self.heads
        q = self.batch, self.heads, self.rows, self.features
        k = self.batch, key_heads, keys, self.features
        return [q, k, k, q]


TIMED = [
    Case(1, 16, 8192, 128),
    Case(8, 12, 1024, 64, causal=False),
    Case(8, 12, 1024, 64),
    Case(4, 16, 2048, 64),
    Case(4, 16, 2048, 128),
    Case(1, 16, 8192, 128, causal=False),
    Case(2, 8, 4096, 256),
    Case(2, 8, 4096, 256, causal=False),
    Case(1, 16, 8192, 128, sequences=8),
    Case(1, 16, 8192, 128, causal=False, sequences=8),
    Case(8, 12, 1024, 64, sequences=4),
    Case(8, 12, 1024, 64, dropout=0.1),
    Case(4, 16, 2048, 128, causal=False, dropout=0.1),
]
CHECKED = [
    Case(2, 3, 512, 64),
    Case(1, 2, 1000, 128),
    Case(2, 2, 777, 128, causal=False, keys=333),
    Case(1, 2, 300, 256),
    Case(1, 2, 513, 96, causal=False),
    Case(2, 8, 384, 64, key_heads=2),
    Case(1, 40, 1500, 64, element="f16"),
    Case(4, 40, 1024, 64, causal=False),
    Case(1, 2, 400, 192),
    Case(2, 3, 1000, 128, sequences=5),
    Case(1, 2, 777, 64, causal=False, sequences=3),
    Case(2, 3, 512, 64, dropout=0.2),
    Case(1, 2, 1000, 128, causal=False, dropout=0.1),
    Case(1, 2, 600, 128, sequences=4, dropout=0.1),
]
SEED = 12345
_NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def make_arrays(case: Case) -> list[Any]:
    """Random torch tensors on the GPU: q, k, v and the gradient of the result."""
    import torch

    element = torch.bfloat16 if case.element == "bf16" else torch.float16
    return [torch.randn(s, device="cuda").to(element) for s in case.shapes]


def segment_ids(case: Case) -> np.ndarray:
    """The number of the sequence of each row."""
    ids = np.repeat(np.arange(case.sequences, dtype=np.int32), case.lengths)
    return np.tile(ids, (case.batch, 1))


def nova_attention(case: Case, q: Any, k: Any, v: Any, *options: Any) -> Any:
    """The attention of q, k, v, and of a seed and segment ids, if the case has them."""
    if options:
        names = [n for n, has in (("seed", case.dropout), ("segment_ids", case.sequences)) if has]
        arguments = dict(zip(names, options, strict=True))
        return nova.attention(q, k, v, causal=case.causal, dropout=case.dropout, **arguments)
    if case.key_heads:
        grouped = (case.batch, case.key_heads, case.heads // case.key_heads)
        q = nova.reshape(q, (*grouped, case.rows, case.features))
        k, v = (nova.expand_dims(x, 2) for x in (k, v))
        out = nova.scaled_dot_product_attention(q, k, v, causal=case.causal)
        return nova.reshape(out, (case.batch, case.heads, case.rows, case.features))
    return nova.scaled_dot_product_attention(q, k, v, causal=case.causal)


def make_nova(case: Case, arrays: Sequence[Any], gradients: bool, choice: str) -> Callable[[], Any]:
    """The compiled program on device arrays: the result, or also the gradients."""
    import torch

    element = _NUMPY[case.element]
    placed = [x.cpu().view(torch.int16).numpy().view(element) for x in arrays]
    if not gradients:
        placed = placed[:3]
    options = [np.array(SEED)] if case.dropout else []
    options += [segment_ids(case)] if case.sequences else []
    zeros = (np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in (*placed, *options))
    inputs = [nova.tensor(x) for x in zeros]
    out = nova_attention(case, *inputs[:3], *inputs[len(placed) :])
    outputs = [out]
    if gradients:
        outputs += nova.graph.gradients(nova.sum(out * inputs[3]), inputs[:3])
    with nova.knobs.override(gpu_attention=choice):
        program = nova.compile(outputs, inputs=inputs, target="cuda")
    on_device = [nova.to_device(x) for x in (*placed, *options)]
    return lambda: program(*on_device)


def torch_call(case: Case, arrays: Sequence[Any], gradients: bool) -> Callable[[], Any]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v, g = arrays
    leaves = [x.detach().requires_grad_(gradients) for x in (q, k, v)]

    def run() -> Any:
        out = scaled_dot_product_attention(
            *leaves,
            is_causal=case.causal,
            enable_gqa=bool(case.key_heads),
            dropout_p=case.dropout,
        )
        return [out, *torch.autograd.grad(out, leaves, g)] if gradients else [out]

    return run


def packed_call(case: Case, arrays: Sequence[Any], gradients: bool) -> Callable[[], Any]:
    """torch's FlashAttention-2 of sequences of several lengths; tensors have its layout."""
    import torch

    q, k, v, g = (x.transpose(1, 2).flatten(0, 1).contiguous() for x in arrays)
    leaves = [x.detach().requires_grad_(gradients) for x in (q, k, v)]
    ends = np.cumsum([0, *case.lengths * case.batch])
    ends = torch.tensor(ends, dtype=torch.int32, device="cuda")
    longest = max(case.lengths)

    def run() -> Any:
        out, *_ = torch.ops.aten._flash_attention_forward(
            *leaves, ends, ends, longest, longest, case.dropout, case.causal, False
        )
        return [out, *torch.autograd.grad(out, leaves, g)] if gradients else [out]

    return run


def reference_call(case: Case, arrays: Sequence[Any]) -> list[Any]:
    """The result and gradients, written out; dropout has the bits of `nova.kept_weights`."""
    import torch

    q, k, v, g = arrays
    leaves = q, k, v = [x.detach().requires_grad_() for x in (q, k, v)]
    scores = q @ k.mT * case.features**-0.5
    visible = torch.ones(scores.shape, dtype=torch.bool, device="cuda")
    if case.causal:
        visible = visible.tril()
    if case.sequences:
        ids = torch.from_numpy(segment_ids(case)).cuda()
        visible = visible & (ids[:, None, :, None] == ids[:, None, None, :])
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    if case.dropout:
        shape, unit = tuple(weights.shape), 2**15
        kept = nova.kept_weights(np.array(SEED), shape=shape, dropout=case.dropout).numpy()
        dropped = round(case.dropout * unit) / unit
        weights = weights * torch.from_numpy(kept).cuda() / (1 - dropped)
    out = weights @ v
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


def check(cases: Sequence[Case], choice: str) -> int:
    import torch

    wrong = 0
    for case in cases:
        arrays = make_arrays(case)
        wide = [x.double() for x in arrays]
        try:
            if case.dropout or case.sequences:
                expected = reference_call(case, wide)
            else:
                expected = torch_call(case, wide, True)()
            actual = [
                torch.from_dlpack(x).double() for x in make_nova(case, arrays, True, choice)()
            ]
            errors = [
                float((a - b).abs().max() / b.abs().max())
                for a, b in zip(actual, expected, strict=True)
            ]
            message, bad = " ".join(f"{e:.1e}" for e in errors), not max(errors) < 1.5e-2
        except Exception as error:  # a case that fails is a line that says so
            message, bad = f"{type(error).__name__}: {error}"[:400], True
        wrong += bad
        print(f"{'WRONG' if bad else 'right'} {case.name}: {message}", flush=True)
    return int(wrong > 0)


def torch_calls(case: Case, arrays: Sequence[Any], gradients: bool) -> dict[str, Callable[[], Any]]:
    """The backends of torch that run a case."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def limited(backend: Any) -> Callable[[], Any]:
        call = torch_call(case, arrays, gradients)

        def run() -> Any:
            with sdpa_kernel(backend):
                return call()

        return run

    calls = {}
    if case.sequences:
        return {"flash": packed_call(case, arrays, gradients)}
    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION),
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ):
        try:
            call = limited(backend)
            call()
            calls[name] = call
        except RuntimeError as error:
            print(f"{case.name}: torch {name}: {error}"[:200])
    return calls


def measure_case(case: Case, gradients: bool, choices: Sequence[str]) -> dict[str, float]:
    """Microseconds of the backends of torch, and of `nova` with each choice."""
    arrays = make_arrays(case)
    calls = torch_calls(case, arrays, gradients)
    for choice in choices:
        try:
            calls[f"nova {choice}"] = make_nova(case, arrays, gradients, choice)
        except Exception as error:
            print(f"{case.name}: {choice}: {type(error).__name__}: {error}"[:300])
    return measure(calls)


def best_of_torch(times: dict[str, float]) -> float:
    return min(t for name, t in times.items() if not name.startswith("nova"))


def time_case(case: Case, gradients: bool, choices: Sequence[str]) -> None:
    times = measure_case(case, gradients, choices)
    flops = case.matmul_flops * (7 if gradients else 2)
    best = best_of_torch(times)
    rates = "; ".join(
        f"{name} {t:.1f} ({flops / t / 1e6:.0f} TFLOP/s{_ratio(name, best / t)})"
        for name, t in times.items()
    )
    print(f"{case.name}{' with gradients' if gradients else ''}: {rates}", flush=True)


def _ratio(name: str, ratio: float) -> str:
    return f", {ratio:.2f} of torch" if name.startswith("nova") else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("check", "time"))
    parser.add_argument("--choices", default="auto", help="values of the knob gpu_attention")
    parser.add_argument("--cases", type=int, default=len(TIMED), help="so many of the timed cases")
    parser.add_argument("--first", type=int, default=0, help="without the cases before this one")
    parser.add_argument("--only", choices=("forward", "gradients"), help="time one of both")
    options = parser.parse_args(arguments)
    choices = options.choices.split(",")
    if options.action == "check":
        return max(check(CHECKED, choice) for choice in choices)
    for case in TIMED[options.first : options.first + options.cases]:
        for gradients in (False, True):
            if options.only in (None, "gradients" if gradients else "forward"):
                time_case(case, gradients, choices)
    return 0


if __name__ == "__main__":
    sys.exit(main())
