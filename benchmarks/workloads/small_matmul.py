"""f32 matmuls that are too small or too thin for packed panels: unpacked GEMM and GEMV."""

from __future__ import annotations

from math import prod

import numpy as np
from harness.case import Case
from harness.peers import torch_tensors
from harness.rates import Work

from workloads.matmul import iree, jax_jit, nova_call, numpy_call, onnxruntime, openvino, oracle

TITLE = "Small matmuls, f32"
MODE = "loop"
UNIT = "us"
SIZES = {
    "8x16x10": {"batch": (), "shape": (8, 16, 10)},
    "1x768x768": {"batch": (), "shape": (1, 768, 768)},
    "96 of 64x64x64": {"batch": (96,), "shape": (64, 64, 64)},
}
THREADS = (1, 2)
TOLERANCE = 1e-5

Arrays = list[np.ndarray]
Shape = tuple[int, int, int]

__all__ = ["oracle"]


def arrays(batch: tuple[int, ...], shape: Shape) -> Arrays:
    generator = np.random.default_rng(0)
    m, k, n = shape
    shapes = [(*batch, m, k), (*batch, k, n)]
    return [generator.standard_normal(s).astype(np.float32) for s in shapes]


def work(batch: tuple[int, ...], shape: Shape) -> Work:
    return Work(flop=2.0 * prod(batch) * prod(shape))


def torch_eager(data: Arrays) -> Case:
    import torch

    # Without a mode or a lambda around it: the call is a good part of the time here.
    return Case(torch.matmul, torch_tensors(data))


CONTENDERS = {
    "Nova": ("nova", nova_call),
    "numpy": ("numpy", numpy_call),
    "torch": ("torch", torch_eager),
    "jax.jit": ("jax", jax_jit),
    "IREE": ("iree", iree),
    "onnxruntime": ("onnxruntime", onnxruntime),
    "OpenVINO": ("openvino", openvino),
}
